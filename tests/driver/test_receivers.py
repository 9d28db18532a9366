"""Receivers as an output: records after every step, with the places, as the diagnostics have them at output times."""

import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

PLACES = [[0.2, 0.3], [0.5, 0.61], [0.8, 0.4]]


def sound(physics, **sections):
    return sj.configure(
        "acoustic",
        grid={"shape": [10, 8]},
        physics=physics,
        initial={"pressure": "cos(pi*x) + 0.3*y"},
        boundaries={"x": "rigid", "y": "rigid"},
        time={"end": 0.04, "output_every": 0.02, "dt": 0.005},
        precision="float64",
        **sections,
    )


@pytest.mark.slow
def test_records_of_every_step(tmp_path):
    quiet = {"report": False, "animation": False, "root": str(tmp_path)}
    outputs = [{"receivers": None, "every": "step"}, {"receivers": None, "every": 0.01, "name": "rarely"}]
    result = sound({"receivers": PLACES}, output=quiet, outputs=outputs).run()
    often, rarely = (sj.open_output(result.folder, name).record for name in ("receivers", "rarely"))
    assert often.dims == ("time", "receiver") and often.attrs["units"] == "Pa"
    np.testing.assert_allclose(np.stack([often.x, often.y], -1), PLACES)
    np.testing.assert_allclose(often.time, 0.005 * np.arange(9), atol=1e-15)
    np.testing.assert_allclose(rarely, often[::2], rtol=0, atol=1e-15)
    for k in range(3):
        # Another program, which may round otherwise.
        np.testing.assert_allclose(often[::4, k], result.ds[f"receiver_{k}"], rtol=0, atol=1e-14)
    assert np.ptp(often.values, axis=0).min() > 1e-5


@pytest.mark.slow
def test_a_differentiable_run_reads_them():
    run = sound({"receivers": PLACES}, outputs=[{"receivers": None, "name": "stations"}])
    found = run.differentiable(variables=["stations"])().observed
    expected = np.stack([found[f"receiver_{k}"] for k in range(3)], axis=1)
    np.testing.assert_array_equal(found["stations"]["record"], expected)


def test_there_must_be_receivers():
    with pytest.raises(ConfigurationError, match=r"outputs\[0\].* write physics.receivers, such as \[\[0.5, 0.5\]\]"):
        sound({}, outputs=[{"receivers": None}])
