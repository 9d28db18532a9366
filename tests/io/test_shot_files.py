"""Shots in NetCDF and SEG-Y files: round trips, IBM's numbers, headers byte by byte, what is refused."""

import dataclasses
import struct

import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.segy import ibm_numbers, read_segy, write_segy

TIMES = np.arange(11) * 2e-3
RANDOM = np.random.default_rng(0)
RECORDS = RANDOM.normal(size=(3, 4, 11)).astype("f4")


def shots(**changes):
    given = {
        "sources": np.round(RANDOM.uniform(-50, 1000, (3, 1, 2)), 3),
        "signals": RANDOM.normal(size=(3, 1, 11)),
        "times": TIMES,
        "receivers": np.round(RANDOM.uniform(-50, 1000, (3, 4, 2)), 3),
        "recorded": TIMES,
    }
    return sj.Shots(**{**given, **changes})


@pytest.mark.parametrize("receivers", [None, np.array([[1.0, 2.0]] * 4)])
def test_a_netcdf_file_holds_all(tmp_path, receivers):
    given = shots() if receivers is None else shots(receivers=receivers)
    found, records = sj.read_shots(sj.write_shots(tmp_path / "line.nc", given, RECORDS), at_once=2)
    for name in ("sources", "signals", "times", "receivers", "recorded"):
        np.testing.assert_array_equal(getattr(found, name), getattr(given, name))
    np.testing.assert_array_equal(records, RECORDS)
    assert found.at_once == 2
    _, nothing = sj.read_shots(sj.write_shots(tmp_path / "quiet.nc", given))
    assert nothing is None


@pytest.mark.parametrize("axes", [("x", "z"), ("y", "x")])
def test_segy_holds_places_and_records(tmp_path, axes):
    given, pulse = shots(), np.sin(TIMES)
    path = sj.write_shots(tmp_path / "line.sgy", given, RECORDS, axes=axes)
    found, records = sj.read_shots(path, signals=pulse, times=TIMES, axes=axes)
    np.testing.assert_allclose(found.sources, given.sources, rtol=0, atol=1e-10)  # thousandths, and 1e3 of rounding
    np.testing.assert_allclose(found.receivers, given.receivers, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.recorded, TIMES, rtol=1e-14)
    np.testing.assert_array_equal(records, RECORDS)
    np.testing.assert_array_equal(found.signals, np.broadcast_to(pulse, (3, 1, 11)))


def test_headers_stand_where_the_standard_has_them(tmp_path):
    """Bytes by the tables of revision 1, which count from 1."""
    content = sj.write_shots(tmp_path / "line.segy", shots(sources=[[[1.5, -2.25]]] * 3), RECORDS).read_bytes()
    assert len(content) == 3600 + 12 * (240 + 44)
    assert content[:80].decode("cp037").startswith("C 1 ") and content[39 * 80 : 3200].decode("cp037").startswith(
        "C40 END"
    )

    def binary(byte, form=">h"):
        return struct.unpack_from(form, content, byte - 1)[0]

    assert [binary(byte) for byte in (3217, 3221, 3225, 3501, 3503, 3505)] == [2000, 11, 5, 0x0100, 1, 0]

    def trace(number, byte, form=">i"):
        return struct.unpack_from(form, content, 3600 + number * 284 + byte - 1)[0]

    assert [trace(k, 9) for k in range(12)] == [1] * 4 + [2] * 4 + [3] * 4  # the field record
    assert [trace(5, byte, ">h") for byte in (69, 71, 115, 117)] == [-1000, -1000, 11, 2000]
    assert trace(5, 73) == 1500 and trace(5, 45) - trace(5, 49) == -2250  # x, and the elevation less the depth
    assert trace(5, 241, ">f") == RECORDS[1, 1, 0]


def test_numbers_of_ibm(tmp_path):
    """-118.625 is the example of the manual: C276A000."""
    words = np.array([0xC276A000, 0x41100000, 0x40800000, 0x00000000, 0x3F199999], ">u4")
    np.testing.assert_allclose(ibm_numbers(words), [-118.625, 1.0, 0.5, 0.0, 0.1 / 16], rtol=1e-6)  # 24 bits
    path = sj.write_shots(tmp_path / "line.sgy", shots(), np.full((3, 4, 11), 1.0))
    content = bytearray(path.read_bytes())
    struct.pack_into(">h", content, 3224, 1)
    content = content.replace(struct.pack(">f", 1.0), struct.pack(">I", 0xC276A000))
    path.write_bytes(content)
    np.testing.assert_array_equal(read_segy(path).samples, np.full((12, 11), -118.625))


def test_shots_stay_in_the_order_of_the_file(tmp_path):
    path = sj.write_shots(tmp_path / "line.sgy", shots(), RECORDS)
    traces = read_segy(path)
    write_segy(path, dataclasses.replace(traces, shots=10 - traces.shots))
    _, records = sj.read_shots(path, signals=TIMES, times=TIMES)
    np.testing.assert_array_equal(records, RECORDS)


def test_a_file_that_is_damaged_is_refused(tmp_path):
    path = sj.write_shots(tmp_path / "line.sgy", shots(), RECORDS)
    content, traces = path.read_bytes(), read_segy(path)
    for changed, told in (
        (content[:100], "expected a SEG-Y file, got 100 bytes"),
        (content[:-1], "expected traces of 11 samples, 284 bytes each, got 3407 bytes; the file is cut off"),
        (content[:3224] + b"\0\7" + content[3226:], "samples of format 7: expected one of 1, 2, 3, 5, 8"),
    ):
        path.write_bytes(changed)
        with pytest.raises(InputOutputError, match=told):
            sj.read_shots(path)
    write_segy(path, dataclasses.replace(traces, shots=np.array([1] * 5 + [2] * 7)))
    with pytest.raises(InputOutputError, match="got 5 of shot 1 and 7 of shot 2"):
        sj.read_shots(path)
    (tmp_path / "line.nc").write_bytes(b"no file")
    with pytest.raises(InputOutputError, match="expected a NetCDF-4 file"):
        sj.read_shots(tmp_path / "line.nc")


@pytest.mark.parametrize(
    ("error", "told", "call"),
    [
        (ConfigurationError, "signals is missing; write read_shots(path, signals=", lambda p: sj.read_shots(p)),
        (ConfigurationError, "expected signals with their times", lambda p: sj.read_shots(p, signals=TIMES)),
        (ConfigurationError, "expected different ones of x, y and z", lambda p: sj.read_shots(p, axes="xz")),
        (
            ConfigurationError,
            "suffix='.csv': expected one of",
            lambda p: sj.write_shots(p.with_suffix(".csv"), shots()),
        ),
        (
            ConfigurationError,
            "expected an array of shape (3, 4, 11)",
            lambda p: sj.write_shots(p, shots(), RECORDS[1:]),
        ),
        (ConfigurationError, "SEG-Y holds records at shots.recorded", lambda p: sj.write_shots(p, shots())),
        (
            ConfigurationError,
            "SEG-Y has one source for each shot",
            lambda p: sj.write_shots(p, shots(sources=np.zeros((3, 2, 2))), RECORDS),
        ),
        (
            InputOutputError,
            "a whole number of microseconds, 1 to 65535, got 0.5",
            lambda p: sj.write_shots(p, shots(recorded=TIMES / 4000), RECORDS),
        ),
        (InputOutputError, "no such file", lambda p: sj.read_shots(p.with_name("other.sgy"))),
    ],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path, error, told, call):
    path = sj.write_shots(tmp_path / "line.sgy", shots(), RECORDS)
    with pytest.raises(error) as refused:
        call(path)
    assert told in str(refused.value)
