"""Runs of every family over several processes are those of one process, to the bit where nothing is summed."""

import numpy as np
import pytest
from process_groups import outputs, start_runs

import simjax as sj

FEW = ["precision=float64", "output.report=false", "output.animation=false"]
FAMILIES = {
    "fluid": ["grid.shape=[32,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=2", "mesh.y=2"],
    "sod": ["grid.shape=[64]", "time.end=0.05", "time.output_every=0.025", "mesh.x=4"],
    "dye": ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=4"],
    "layered_medium": ["grid.shape=[64,64]", "time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "gray_scott": ["grid.shape=[32,32]", "time.end=20", "time.output_every=10", "mesh.x=2", "mesh.y=2"],
    "lennard_jones": ["particles.count=500", "time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "cold_collapse": ["time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "dam_break": ["time.end=0.01", "time.output_every=0.005", "mesh.x=4"],
    "two_stream": ["time.end=0.4", "time.output_every=0.2", "mesh.x=4"],
}
MEMBERS = ["ensemble.size=4", "ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}"]


def runs_of(root):
    every = {name: [f"experiment={name}", *own] for name, own in FAMILIES.items()}
    flow = every["fluid"][:-2]
    every |= {
        "members": [*flow, *MEMBERS, "mesh.ensemble=2", "mesh.y=2"],
        "members_apart": [*flow, *MEMBERS, "mesh.ensemble=4"],
    }
    return {name: [*own, *FEW, f"output.root={root}"] for name, own in every.items()}


@pytest.mark.slow
def test_runs_of_two_processes_are_those_of_one(tmp_path):
    """With two devices each, and of one process with eight."""
    several, alone = tmp_path / "several", tmp_path / "alone"
    outputs(start_runs(runs_of(several)), timeout=900)
    outputs(start_runs(runs_of(alone), count=1), timeout=900)
    for name in runs_of(several):
        require_same(several / name, alone / name)


def require_same(several, alone):
    assert sj.check_files(several) == []
    assert len({path.name[:-10] for path in (several / "data").glob("*.h5")}) == 2  # each has written its own
    with sj.open_run(several) as found, sj.open_run(alone) as expected:
        written = [str(name) for name, u in expected.items() if u.dtype.kind in "fi" and "time" in u.dims]
        of_places = [name for name in written if expected[name].ndim > 1 + ("member" in expected[name].dims)]
        assert of_places and {*written} <= {*map(str, found)}
        for variable in of_places:  # devices compute the same wherever they are, to the bit
            np.testing.assert_array_equal(found[variable], expected[variable], err_msg=f"{several.name} {variable}")
        for variable in {*written} - {*of_places}:
            # Sums over all devices in another order: rounding, of what cancels in them as well.
            scale = max(float(np.abs(expected[variable]).max()), 1.0)
            np.testing.assert_allclose(found[variable], expected[variable], rtol=0, atol=1e-9 * scale, err_msg=variable)
        np.testing.assert_array_equal(found.step, expected.step)
