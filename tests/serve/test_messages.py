"""Bodies of messages are read as they were written, and nothing in them is executed or larger than they are."""

import io
import json
import zipfile

import numpy as np
import pytest

from simjax.serve.messages import ARGUMENTS, GRADIENTS, JSON, NPZ, RESULTS, Refusal, decode, encode

RNG = np.random.default_rng(7)
REAL = {
    RESULTS: {"initial.u_x": RNG.normal(size=(3, 4)).astype(np.float32), "loss": np.asarray(1 / 3)},
    GRADIENTS: {"initial.u_x": np.asfortranarray(RNG.normal(size=(3, 4))), "image": np.arange(5, dtype=np.int32)},
}


def archive(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize("kind", [JSON, NPZ])
def test_what_is_written_is_read(kind):
    found = decode(encode(REAL, kind), kind, RESULTS)
    assert {section: set(arrays) for section, arrays in found.items()} == {k: set(v) for k, v in REAL.items()}
    for section, arrays in REAL.items():
        for name, value in arrays.items():
            np.testing.assert_array_equal(found[section][name], value)
            assert kind == JSON or found[section][name].dtype == value.dtype


def test_an_npz_of_numpy_is_read_and_read_by_numpy():
    assert decode(archive(diffusivity=0.5), NPZ, ARGUMENTS)[ARGUMENTS]["diffusivity"] == 0.5
    content = encode({RESULTS: {"u": np.ones(2, complex)}, GRADIENTS: {"u": np.zeros(2)}}, NPZ)
    assert sorted(np.load(io.BytesIO(content))) == [f"{GRADIENTS}/u", "u"]
    with pytest.raises(Refusal, match="u is complex, which JSON is not; ask for it by Accept: application/x-npz"):
        encode({RESULTS: {"u": np.ones(2, complex)}}, JSON)


def compressed():
    content = io.BytesIO()
    np.savez_compressed(content, u=np.zeros(10**6))
    return content.getvalue()


def overlapping():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("u.npy", bytes(1000))
        made.filelist.extend(made.filelist * 3)
    return content.getvalue()


def claiming():
    """An array whose header claims eight terabytes."""
    content, header = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("u.npy", header.getvalue() + bytes(8))
    return content.getvalue()


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        (NPZ, archive(u=np.asarray([print], object)), "u: expected a number or nested lists of numbers"),
        (NPZ, archive(u=np.asarray(["1"])), "u: expected a number"),
        (NPZ, compressed(), "got compressed arrays of np.savez_compressed"),
        (NPZ, overlapping(), "got one whose arrays overlap"),
        (NPZ, claiming(), "u: the header says .1000000000000,. numbers of float64, got 8 bytes"),
        (NPZ, archive(u=1.0)[:-30], "the body cannot be read as application/x-npz"),
        (NPZ, b"", "the body cannot be read"),
        (JSON, b"{", "the body cannot be read as application/json"),
        (JSON, b'{"arguments": ' * 10**5, "the body cannot be read"),
        (JSON, b"[1]", 'expected an object of objects, such as {"arguments"'),
        (JSON, b'{"arguments": 1}', "expected an object of objects"),
        (JSON, b'{"arguments": {"u": [[1], [2, 3]]}}', "u: expected a number or nested lists of numbers"),
        (JSON, b'{"arguments": {"u": "1"}}', "u: expected a number"),
        (JSON, b'{"arguments": {"u": true}}', "u: expected a number"),
        (JSON, json.dumps({"arguments": {"u": 10**400}}).encode(), "u: expected a number"),
    ],
)
def test_a_body_that_is_none_is_refused(kind, content, said):
    with pytest.raises(Refusal, match=said) as refused:
        decode(content, kind, ARGUMENTS)
    assert refused.value.status == 400
