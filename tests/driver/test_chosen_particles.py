"""Frames and instruments of some of the particles: which they are, in every file, and what stays whole."""

import h5py
import numpy as np
import pytest
from configurations import DYE, changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError

GAS = {
    "model": "molecular_dynamics", "precision": "float64",
    "physics": {"potential": "lennard_jones", "cutoff": 2.0, "mode": "shifted"},
    "box": {"upper": [9.0, 9.0]},
    "particles": {"placement": "square", "count": 64, "temperature": 1.0},
    "time": {"end": 0.02, "output_every": 0.01, "dt": 0.005},
    "output": {"report": False, "animation": False},
}  # fmt: skip
IDS = [40, 3, 17]


def run(folder, changes, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(GAS, {**place, **changes}))).run(**options)
    with sj.open_run(folder) as dataset:
        return dataset.load()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("particles")
    return root, run(root / "whole", {})


def test_frames_hold_the_chosen_particles_and_their_numbers(whole):
    root, frames = whole
    seen = run(root / "some", {"output.particles": {"ids": IDS}})
    np.testing.assert_array_equal(seen.particle, sorted(IDS))
    for name in ("position", "velocity", "image", "species", "mass"):
        np.testing.assert_array_equal(seen[name], frames[name].sel(particle=sorted(IDS)), name)
    # What is told of all particles stays.
    np.testing.assert_array_equal(seen.energy, frames.energy)
    assert seen.attrs["simjax_particles_in_all"] == 64 and "simjax_particles_in_all" not in frames.attrs
    folder = root / "some"
    with h5py.File(folder / "particles.h5md") as file:
        assert file["particles/trajectory/id"][...].tolist() == sorted(IDS)
        assert file["particles/trajectory/position/value"].shape == (3, 3, 3)
    with h5py.File(folder / "particles.vtkhdf") as file:
        assert file["VTKHDF/NumberOfPoints"][0] == 3
        assert file["VTKHDF/PointData/particle"][...].ravel()[:3].tolist() == sorted(IDS)
    assert (folder / "topology.xyz").read_text().startswith("3\n") and sj.check_files(folder) == []
    assert "Frames hold 3 of 64 particles." in (folder / "provenance.json").read_text()


@pytest.mark.slow
def test_the_choice_does_not_depend_on_devices_members_or_stops(whole):
    root, frames = whole
    corner = {"output.particles": {"region": {"lower": [0, 0], "upper": [4.5, 3]}}}
    inside = np.flatnonzero((frames.position[0] <= [4.5, 3, 0]).all("space"))
    run(root / "twice", {**corner, "mesh.x": 2, "time.end": 0.01})
    seen = run(root / "twice", {**corner, "mesh.x": 2}, resume=root / "twice")
    np.testing.assert_array_equal(seen.particle, inside)
    # Devices add up forces in another order.
    np.testing.assert_allclose(seen.position, frames.position.sel(particle=inside), rtol=0, atol=1e-12)
    with pytest.raises(ConfigurationError, match="output.particles"):
        run(root / "twice", {"output.particles": {"every_nth": 4}, "time.end": 0.03}, resume=root / "twice")
    members = run(root / "members", {"output.particles": {"every_nth": 30}, "ensemble.size": 2, "output.report": True})
    assert members.position.dims == ("member", "time", "particle", "space")
    np.testing.assert_array_equal(members.particle, [0, 30, 60])
    assert "3 of 64 particles" in (root / "members" / "report.html").read_text()


def test_what_cannot_be_chosen_is_refused(whole, tmp_path):
    for chosen, sentence in (
        ({"ids": [64]}, "output.particles.ids: 64: expected numbers from 0 to 63, as there are 64 particles."),
        ({"region": {"lower": [8.9, 8.9], "upper": [9, 9]}}, "no particle starts there; write a larger one."),
    ):
        with pytest.raises(ConfigurationError) as refused:
            run(tmp_path / "none", {"output.particles": chosen})
        assert sentence in str(refused.value) and not (tmp_path / "none").exists()
    assert "two corners of 2 numbers" in refusal(
        changed(GAS, {"output.particles": {"region": {"lower": [0], "upper": [1]}}})
    )
    assert "did you mean 'every_nth'" in refusal(changed(GAS, {"output.particles": {"every_nht": 3}}))
    assert "expected none for a model of fields" in refusal(changed(DYE, {"output.particles": {"every_nth": 3}}))
