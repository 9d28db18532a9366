"""Tables of sensors: what is read, and what is refused with which sentence."""

import numpy as np
import pytest

from simjax.errors import ConfigurationError, InputOutputError
from simjax.inverse.methods.sensors import read_sensors
from simjax.schema.tables import LARGEST_FILE


def written(folder, text):
    path = folder / "sensors.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_full_table_in_any_order(tmp_path):
    path = written(
        tmp_path,
        "# thermometers\nvalue, y, t, x\n\n3.5, 0.2, 2.0, 0.1\n1.5,0.2,1e0,0.1\n"
        "  # a pause\n4.5,0.4,2.0,0.3\n2.5,0.4,1.0,0.3\n",
    )
    found = read_sensors(path, 2).of("temperature")
    np.testing.assert_array_equal(found.times, [1.0, 2.0])
    np.testing.assert_array_equal(found.positions, [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_array_equal(found.values, [[1.5, 2.5], [3.5, 4.5]])
    assert found.present.all() and found.deviations is None
    assert found.values.dtype == found.times.dtype == found.positions.dtype == np.float64


def test_missing_readings_variables_and_deviations(tmp_path):
    path = written(
        tmp_path,
        '\ufefft,x,value,deviation,variable\n0,0.5,1,0.1,u\n1,0.5,2,0.2,u\n1,0.7,3,0.3,u\n0.5,0.9,-4,0.4,"v"\n',
    )
    sensors = read_sensors(str(path), 1)
    assert sorted(sensors.readings) == ["u", "v"] and sensors.name == "sensors.csv"
    u, v = sensors.of("u"), sensors.of("v")
    np.testing.assert_array_equal(u.present, [[True, False], [True, True]])
    np.testing.assert_array_equal(u.values, [[1, 0], [2, 3]])
    np.testing.assert_array_equal(u.deviations, [[0.1, 1], [0.2, 0.3]])
    np.testing.assert_array_equal(v.times, [0.5])
    np.testing.assert_array_equal(v.positions, [[0.9]])
    np.testing.assert_array_equal(v.values, [[-4]])


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_was_written_is_read_back(tmp_path, axes):
    rng = np.random.default_rng(axes)
    times, positions = np.sort(rng.normal(size=4)), rng.normal(size=(5, axes))
    values, present = rng.normal(size=(4, 5)), rng.random((4, 5)) < 0.7
    present[:, 0] = present[0] = True
    lines = [
        ",".join(map(repr, map(float, (times[m], *positions[n], values[m, n]))))
        for m in range(4)
        for n in range(5)
        if present[m, n]
    ]
    text = "\n".join([",".join(["t", *"xyz"[:axes], "value"]), *lines])
    found = read_sensors(written(tmp_path, text), axes).of("u")
    np.testing.assert_array_equal(found.times, times)
    np.testing.assert_array_equal(found.positions, positions)
    np.testing.assert_array_equal(found.values, np.where(present, values, 0))
    np.testing.assert_array_equal(found.present, present)


HEAD = "t,x,y,value\n"
REFUSALS = {
    "empty": ("\n# nothing\n", "sensors.csv is empty; write the columns t,x,y,value and a line per reading."),
    "no readings": (HEAD, "sensors.csv has columns but no readings; write a line for each reading."),
    "column renamed": (
        "t,x,y,values\n0,0,0,1\n",
        "sensors.csv line 1 has no column 'value'; rename 'values'.",
    ),
    "column missing": ("t,x,value\n0,0,1\n", "sensors.csv line 1 has no column 'y'; write t,x,y,value."),
    "column misspelt": (
        "t,x,y,value,deviatoin\n0,0,0,1,1\n",
        "sensors.csv line 1 has an unknown column 'deviatoin'; did you mean 'deviation'?",
    ),
    "column unknown": (
        "# stations\nt,x,y,value,station\n0,0,0,1,7\n",
        "sensors.csv line 2 has an unknown column 'station'; write t, x, y, value, deviation or variable.",
    ),
    "column twice": ("t,x,y,value,x\n0,0,0,1,7\n", "sensors.csv line 1 has the column 'x' twice; remove one."),
    "short line": (
        HEAD + "0,0,0,1\n\n1,0,0\n",
        "sensors.csv line 4 has 3 cells for 4 columns; write one for each column.",
    ),
    "no number": (
        HEAD + "0,0,0,1\n1,0,here,1\n",
        "sensors.csv line 3, column 'y': 'here' is not a number; write one.",
    ),
    "nothing": (HEAD + "0,0,0,\n", "sensors.csv line 2, column 'value': '' is not a number; write one."),
    "not finite": (
        HEAD + "0,0,0,NaN\n",
        "sensors.csv line 2, column 'value': NaN is not finite; leave the line out.",
    ),
    "deviation": (
        "t,x,y,value,deviation\n0,0,0,1,0\n",
        "sensors.csv line 2, column 'deviation': 0 is not positive; write a standard deviation.",
    ),
    "no variable": (
        "t,x,y,value,variable\n0,0,0,1,\n",
        "sensors.csv line 2, column 'variable' is empty; write the name of a variable.",
    ),
    "twice": (
        HEAD + "0,0,0,1\n1,0,0,1\n0.0,0,0,2\n",
        "sensors.csv line 4 repeats variable, time and position of line 2; write one reading of them.",
    ),
}


@pytest.mark.parametrize("text, sentence", REFUSALS.values(), ids=REFUSALS)
def test_refusals_name_line_and_column(tmp_path, text, sentence):
    with pytest.raises(ConfigurationError) as caught:
        read_sensors(written(tmp_path, text), 2)
    assert str(caught.value) == sentence


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(InputOutputError, match=r"absent.csv cannot be read \(No such file or directory\)\."):
        read_sensors(tmp_path / "absent.csv", 1)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\x00\xfe")
    with pytest.raises(ConfigurationError, match=r"picture.csv is not text in UTF-8; save it as CSV in UTF-8\."):
        read_sensors(tmp_path / "picture.csv", 1)


def test_readings_of_another_variable_are_refused(tmp_path):
    sensors = read_sensors(written(tmp_path, "t,x,value,variable\n0,0,1,temperature\n0,0,2,pressure\n"), 1)
    with pytest.raises(ConfigurationError, match=r"no readings of 'temprature'; did you mean 'temperature'\?"):
        sensors.of("temprature")
    with pytest.raises(ConfigurationError, match=r"no readings of 'w'; it has those of pressure, temperature\."):
        sensors.of("w")


def test_a_table_too_large_for_sensors_is_refused_unread(tmp_path):
    path = tmp_path / "sensors.csv"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)  # holes: nothing lies on the disk
    with pytest.raises(ConfigurationError, match="at most 256 MiB"):
        read_sensors(path, 1)
