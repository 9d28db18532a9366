"""Zarr stores: what is read of them, and that nothing in a store runs, fills the memory or leads elsewhere."""

import gzip
import json
import pickle
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from simjax.errors import ConfigurationError, InputOutputError, ResourceError
from simjax.io.conventions import values_of
from simjax.io.initial_files import find_stored
from simjax.io.zarr_files import LARGEST_TEXT

VALUES = np.random.default_rng(5).normal(size=(13, 17, 7))
CHUNKS = (5, 6, 4)
RANGES = [(3, 9), (2, 17), (1, 6)]
PLAIN = {"id": "zlib", "level": 1}


class Evil:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def write_array(folder, values, cut, compress=zlib.compress, **about):
    """An array of format 2, as its specification says, without a library."""
    folder.mkdir(parents=True)
    (folder.parent / ".zgroup").write_text('{"zarr_format": 2}')
    text = {
        "zarr_format": 2,
        "shape": values.shape,
        "chunks": cut,
        "dtype": values.dtype.str,
        "compressor": PLAIN,
        "fill_value": None,
        "order": "C",
        "filters": None,
        **about,
    }
    attributes = text.pop("attributes", {})
    (folder / ".zarray").write_text(json.dumps(text))
    (folder / ".zattrs").write_text(json.dumps(attributes))
    counts = [-(-n // m) for n, m in zip(values.shape, cut, strict=True)]
    for place in np.ndindex(*counts):
        block = np.zeros(cut, values.dtype)
        own = values[tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, cut, strict=True))]
        block[tuple(map(slice, own.shape))] = own
        (folder / ".".join(map(str, place))).write_bytes(compress(block.tobytes()))
    return folder.parent


def write_format_3(folder, values, chunks, compress=gzip.compress, **about):
    folder.mkdir(parents=True)
    (folder.parent / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    text = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": values.shape,
        "data_type": "float64",
        "fill_value": 0.0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip"}],
        **about,
    }
    (folder / "zarr.json").write_text(json.dumps(text))
    for place in np.ndindex(*[-(-n // m) for n, m in zip(values.shape, chunks, strict=True)]):
        block = np.zeros(chunks, values.dtype)
        own = values[tuple(slice(at * n, (at + 1) * n) for at, n in zip(place, chunks, strict=True))]
        block[tuple(map(slice, own.shape))] = own
        path = folder.joinpath("c", *map(str, place))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress(block.tobytes()))
    return folder.parent


def refusal(store, variable="c", error=ConfigurationError, read=False):
    with pytest.raises(error) as refused:
        found = find_stored(store, variable)
        if read:
            found.read_whole()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("write", [write_array, write_format_3])
def test_an_array_is_read_whole_and_in_parts(tmp_path, write):
    store = write(tmp_path / "a.zarr" / "c", VALUES, CHUNKS)
    found = find_stored(store, "c")
    np.testing.assert_array_equal(found.read_whole(), VALUES)
    np.testing.assert_array_equal(found.read(RANGES), VALUES[tuple(slice(*one) for one in RANGES)])


def test_names_coordinates_and_missing_values_are_read(tmp_path):
    dims = {"attributes": {"_ARRAY_DIMENSIONS": ["x"], "scale_factor": 0.5, "units": "m"}}
    store = write_array(tmp_path / "a" / "c", np.array([1, -9, 3], "i2"), (2,), fill_value=-9, **dims)
    write_array(store / "x", np.array([0, 1, 2], "i4"), (3,), **dims)
    found = find_stored(store, "c")
    assert found.dims == ("x",)
    np.testing.assert_array_equal(values_of(found, "c"), [0.5, np.nan, 1.5])
    np.testing.assert_array_equal(values_of(found.coordinates["x"], "x"), [0, 0.5, 1])
    (store / "x" / ".zarray").write_text(json.dumps({"dtype": "|O", "shape": [3]}))  # names are no places
    assert not find_stored(store, "c").coordinates
    (store / "c" / "1").unlink()
    np.testing.assert_array_equal(values_of(find_stored(store, "c"), "c"), [0.5, np.nan, np.nan])


@pytest.mark.parametrize("place", ["compressor", "filters"])
@pytest.mark.parametrize("own", [True, False])
def test_a_store_runs_nothing(tmp_path, place, own):
    """The codec that unpickles, in what is read and in another variable of the store."""
    mark = tmp_path / "mark"
    codec = {"id": "pickle", "protocol": 5}
    about = {"compressor": codec} if place == "compressor" else {"compressor": None, "filters": [codec]}
    dims = {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
    bad, good = ("c", "x") if own else ("x", "c")
    store = write_array(
        tmp_path / "a" / bad, np.zeros(3), (3,), lambda block: pickle.dumps(Evil(mark)), **about, **dims
    )
    write_array(store / good, np.arange(3.0), (3,), **dims)
    assert "is written with the codec 'pickle'; expected zlib," in refusal(store)  # x is the coordinate of c
    if not own:
        write_array(store / "alone", np.arange(3.0), (3,))
        np.testing.assert_array_equal(find_stored(store, "alone").read_whole(), np.arange(3.0))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"dtype": "|O"}, "has dtype |O; expected real numbers"),
        ({"dtype": [["a", "<f8"]]}, "expected real numbers"),
        ({"compressor": {"id": "numcodecs.pickle"}}, "codec 'numcodecs.pickle'"),
        ({"compressor": {"id": ["pickle"]}}, "is written with the codec"),
        ({"filters": [{"id": "json2"}]}, "codec 'json2'"),
        ({"filters": [PLAIN]}, "compressed twice over"),
    ],
)
def test_what_is_not_accepted_is_named(tmp_path, about, said):
    assert said in refusal(write_array(tmp_path / "a" / "c", np.zeros(3), (3,), **about))


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"data_type": "string"}, "the data type string; expected real numbers"),
        ({"codecs": [{"name": "numcodecs.pickle"}]}, "codec 'numcodecs.pickle'"),
        ({"codecs": [{"name": "bytes"}, {"name": "gzip"}, {"name": "gzip"}]}, "compressed twice over"),
        ({"storage_transformers": [{"name": "x"}]}, "expected regular ones"),
        ({"chunk_grid": {"name": "rectilinear"}}, "expected regular ones"),
    ],
)
def test_what_is_not_accepted_in_format_3_is_named(tmp_path, about, said):
    assert said in refusal(write_format_3(tmp_path / "a" / "c", np.zeros(3), (3,), **about))


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"shape": [-3]}, "its shape is [-3]"),
        ({"chunks": [0]}, "its chunks is [0]"),
        ({"chunks": [3, 3]}, "its chunks are (3, 3) for shape (3,)"),
        ({"order": "A"}, "in order 'A'"),
        ({"dimension_separator": "/../"}, "its dimension_separator is /../"),
        ({"fill_value": [1]}, "its fill value is [1]"),
        ({"fill_value": "abc"}, "its fill value is abc"),
    ],
)
def test_a_text_that_is_wrong_is_damage(tmp_path, about, said):
    assert said in refusal(write_array(tmp_path / "a" / "c", np.zeros(3), (3,), **about), error=InputOutputError)


def test_chunks_are_compared_with_their_shape(tmp_path):
    for number, (compress, said) in enumerate(
        (
            (lambda block: zlib.compress(block)[:-6], "a chunk is cut, or larger than its shape"),
            (lambda block: zlib.compress(block + b"\0"), "a chunk has another size than its shape"),
            (lambda block: zlib.compress(block + bytes(3)), "a chunk is cut, or larger than its shape"),
            (lambda block: zlib.compress(block[:-1]), "a chunk has another size than its shape"),
            (lambda block: block, "while decompressing data"),
        )
    ):
        store = write_array(tmp_path / f"{number}" / "c", np.arange(3.0), (3,), compress)
        assert said in refusal(store, error=InputOutputError, read=True)
    store = write_array(tmp_path / "lost" / "c", np.arange(3.0), (3,))
    (store / "c" / "0").unlink()
    assert "a chunk is missing" in refusal(store, error=InputOutputError, read=True)


@pytest.mark.parametrize("compressor", ["zlib", "gzip", "bz2"])
def test_a_chunk_that_unpacks_to_more_than_its_shape_takes_no_memory(tmp_path, compressor):
    import bz2

    packed = {"zlib": zlib.compress, "gzip": gzip.compress, "bz2": bz2.compress}[compressor](bytes(2**26))
    store = write_array(tmp_path / "a" / "c", np.zeros(8), (8,), lambda block: packed, compressor={"id": compressor})
    tracemalloc.start()
    assert "larger than its shape" in refusal(store, error=InputOutputError, read=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22  # of the 2**26 bytes; the packed chunk has up to 2**16


def test_sizes_are_said_before_memory_is_taken(tmp_path):
    chunks = {"shape": [10], "chunks": [2**40]}
    store = write_array(tmp_path / "a" / "c", np.zeros(10), (10,), **chunks)
    assert "a chunk of 'c', of shape (1099511627776,), would need" in refusal(store, error=ResourceError, read=True)
    store = write_array(tmp_path / "b" / "c", np.zeros(10), (10,), shape=[2_000_000], chunks=[1])
    assert "lies in 2000000 chunks" in refusal(store, read=True)


@pytest.mark.parametrize("name", [".zarray", ".zattrs"])
def test_texts_of_any_size_are_not_read(tmp_path, name):
    store = write_array(tmp_path / "a" / "c", np.zeros(3), (3,))
    with (store / "c" / name).open("a") as file:
        file.write(" " * LARGEST_TEXT)
    assert f"{name} has 167" in refusal(store, error=InputOutputError)  # 2**24 and some bytes
    (store / "c" / name).write_text("[" * 100_000)
    assert "is damaged or incomplete" in refusal(store, error=InputOutputError)


def sharded(chunks, *, codecs=({"name": "bytes", "configuration": {"endian": "little"}},), **more):
    settings = {"chunk_shape": chunks, "codecs": codecs, **more}
    return {"codecs": [{"name": "sharding_indexed", "configuration": settings}]}


@pytest.mark.parametrize(
    ("about", "error", "said"),
    [
        (sharded([1]), InputOutputError, "its shards have 1000001 chunks"),
        (sharded([2]), InputOutputError, "are no multiples of chunks"),
        (sharded([1000001], codecs=[{"name": "numcodecs.pickle"}]), ConfigurationError, "codec 'numcodecs.pickle'"),
        (
            sharded([1000001], index_codecs=[{"name": "gzip"}]),
            ConfigurationError,
            "codec 'gzip'; expected bytes, crc32c",
        ),
        (sharded([1000001], codecs=sharded([1000001])["codecs"]), ConfigurationError, "codec 'sharding_indexed'"),
        (sharded([1000001], index_location="middle"), InputOutputError, "neither at the start nor at the end"),
    ],
    ids=lambda given: str(given)[-30:],
)
def test_shards_are_looked_at_before_they_are_read(tmp_path, about, error, said):
    store = write_format_3(tmp_path / "a" / "c", np.zeros(1_000_001), (1_000_001,), **about)
    assert said in refusal(store, error=error)


def test_a_chunk_lies_within_its_shard(tmp_path):
    far = write_format_3(
        tmp_path / "far" / "c", np.arange(3.0), (3,), lambda _: struct.pack("<QQ", 0, 25), **sharded([3])
    )
    assert "beyond its shard" in refusal(far, error=InputOutputError, read=True)
    short = write_format_3(tmp_path / "short" / "c", np.arange(3.0), (3,), lambda _: b"", **sharded([3]))
    assert "shorter than its index" in refusal(short, error=InputOutputError, read=True)
    block = np.arange(3.0).tobytes()
    store = write_format_3(
        tmp_path / "whole" / "c",
        np.arange(3.0),
        (3,),
        lambda block: block + struct.pack("<QQ", 0, 24),
        **sharded([3], index_codecs=[{"name": "bytes", "configuration": {"endian": "little"}}]),
    )
    np.testing.assert_array_equal(find_stored(store, "c").read_whole(), np.frombuffer(block))


def test_nothing_outside_the_store_is_read(tmp_path):
    secret = write_array(tmp_path / "secret" / "c", np.arange(3.0), (3,))
    store = write_array(tmp_path / "a" / "c", np.arange(3.0), (3,))
    (store / "c" / "0").unlink()
    (store / "c" / "0").symlink_to(secret / "c" / "0")
    assert "holds a symbolic link" in refusal(store, read=True)
    (store / "d").symlink_to(secret / "c")
    assert "holds a symbolic link" in refusal(store, "d")
    assert "no variable '../secret/c'" in refusal(store, "../secret/c")
    named = {"attributes": {"_ARRAY_DIMENSIONS": ["../../secret/c"]}}
    found = find_stored(write_array(tmp_path / "b" / "c", np.arange(3.0), (3,), **named), "c")
    assert not found.coordinates


# ---- stores that other programs wrote


@pytest.mark.parametrize("compressor", [None, "Zlib", "GZip", "BZ2", "Zstd", "LZ4", "Blosc"])
@pytest.mark.parametrize("filters", [(), ("Shuffle",), ("Delta",), ("BitRound",)], ids=str)
def test_stores_of_format_2_are_read_as_zarr_wrote_them(tmp_path, compressor, filters):
    import numcodecs
    import zarr

    settings = {"Shuffle": {"elementsize": 8}, "Delta": {"dtype": "<i4"}, "BitRound": {"keepbits": 52}}
    values = (1000 * VALUES).astype("<i4") if "Delta" in filters else VALUES
    array = zarr.open_group(tmp_path / "a", mode="w", zarr_format=2).create_array(
        "c",
        shape=values.shape,
        chunks=CHUNKS,
        dtype=values.dtype,
        order="F",
        compressors=None if compressor is None else getattr(numcodecs, compressor)(),
        filters=[getattr(numcodecs, name)(**settings[name]) for name in filters],
    )
    array[:] = values
    np.testing.assert_array_equal(find_stored(tmp_path / "a", "c").read_whole(), values)


@pytest.mark.parametrize("codecs", [(), ("GzipCodec",), ("ZstdCodec",), ("BloscCodec", "Crc32cCodec")], ids=str)
@pytest.mark.parametrize("shards", [None, (10, 12, 8)])
def test_stores_of_format_3_are_read_as_zarr_wrote_them(tmp_path, codecs, shards):
    import zarr

    array = zarr.open_group(tmp_path / "a", mode="w", zarr_format=3).create_array(
        "c",
        shape=VALUES.shape,
        chunks=CHUNKS,
        shards=shards,
        dtype="f8",
        compressors=[getattr(zarr.codecs, name)() for name in codecs],
        filters=[zarr.codecs.TransposeCodec(order=(2, 0, 1))],
        serializer=zarr.codecs.BytesCodec(endian="big"),
    )
    array[:] = VALUES
    found = find_stored(tmp_path / "a", "c")
    np.testing.assert_array_equal(found.read_whole(), VALUES)
    np.testing.assert_array_equal(found.read(RANGES), VALUES[tuple(slice(*one) for one in RANGES)])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_packed_stores_are_read_as_xarray_wrote_them(tmp_path, zarr_format):
    import xarray as xr

    dataset = xr.Dataset({"c": (("y", "x"), VALUES[0].copy())}, coords={"x": np.arange(7.0)})
    dataset["c"][2, 3] = np.nan
    dataset["c"].encoding.update(scale_factor=0.001, add_offset=5.0, dtype="i2", _FillValue=-1)
    dataset.to_zarr(tmp_path / "a", zarr_format=zarr_format, consolidated=False)
    found = find_stored(tmp_path / "a", "c")
    values = values_of(found, "c")
    assert np.argwhere(np.isnan(values)).tolist() == [[2, 3]]
    np.testing.assert_allclose(values, dataset["c"], rtol=0, atol=0.0005 + 1e-12)  # half of the last digit
    np.testing.assert_array_equal(found.coordinates["x"].read_whole(), np.arange(7.0))


@pytest.mark.parametrize("compressor", ["Zstd", "LZ4", "Blosc"])
def test_a_compressor_says_its_size_before_numcodecs_takes_it(tmp_path, compressor):
    import numcodecs

    packed = getattr(numcodecs, compressor)().encode(bytes(2**24))
    about = {"compressor": {"id": compressor.lower()}}
    store = write_array(tmp_path / "a" / "c", np.zeros(8), (8,), lambda block: packed, **about)
    assert "says another size than that of its shape" in refusal(store, error=InputOutputError, read=True)
