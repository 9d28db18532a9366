"""Frames and instruments of some of the particles: which they are, in every file, and what stays whole."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import DYE, changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.instruments.instrument import View
from simjax.instruments.particles_on_mesh import MeshTemperature, MeshVelocity, NumberDensity

GAS = {
    "model": "molecular_dynamics",
    "precision": "float64",
    "physics": {"potential": "lennard_jones", "cutoff": 2.0, "mode": "shifted", "mass": [1.0, 3.0]},
    "box": {"upper": [9.0, 9.0]},
    "particles": {"placement": "square", "count": 64, "temperature": 1.0, "fractions": [0.5, 0.5]},
    "time": {"end": 0.02, "output_every": 0.01, "dt": 0.005},
    "output": {"report": False, "animation": False},
    "outputs": [
        {"tracks": {"ids": [5, 63]}, "every": "step"},
        {"density": {"shape": [6, 4]}, "of": ["number_density", "velocity", "temperature"]},
    ],
}
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


@pytest.mark.slow
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


def shared(position, values):
    """Sums of values of particles on a mesh of 6 x 4 by numpy, each shared by a product of linear shares."""
    places = [x[:, None] / 9 * n - 0.5 - np.arange(n) for x, n in zip(position, (6, 4), strict=True)]
    wide = [1 - np.abs((place + n / 2) % n - n / 2) for place, n in zip(places, (6, 4), strict=True)]
    return np.einsum("p,px,py->yx", values, *(np.clip(one, 0, None) for one in wide))


@pytest.mark.slow
def test_instruments_follow_tagged_particles_and_share_them_among_cells(whole):
    root, frames = whole
    with sj.open_output(root / "whole", "tracks") as tracks, sj.open_output(root / "whole", "density") as density:
        np.testing.assert_array_equal(tracks.step, range(5))
        assert tracks.position.dims == ("time", "particle", "space") and tracks.particle.values.tolist() == [5, 63]
        own = frames.sel(particle=[5, 63]).isel(space=slice(2))
        np.testing.assert_allclose(tracks.velocity[::2], own.velocity, rtol=0, atol=1e-13)
        np.testing.assert_allclose(tracks.position[::2], own.position + 9 * own.image, rtol=0, atol=1e-13)
        mass = frames.mass.values
        for time, x, v in zip(range(3), frames.position.values[..., :2], frames.velocity.values[..., :2], strict=True):
            count, total = shared(x.T, np.ones(64)), shared(x.T, mass)
            mean = [shared(x.T, mass * own) / total for own in v.T]
            square = sum(shared(x.T, mass * own**2) - total * one**2 for own, one in zip(v.T, mean, strict=True))
            own = density.isel(time=time)
            # Sums of a few numbers of order ten.
            np.testing.assert_allclose(own.number_density, count * 24 / 81, rtol=0, atol=1e-13)
            np.testing.assert_allclose([own.mean_velocity_x, own.mean_velocity_y], mean, rtol=0, atol=1e-12)
            np.testing.assert_allclose(own.temperature, square / (2 * count), rtol=0, atol=1e-12)
        assert float(density.number_density[-1].mean()) == pytest.approx(64 / 81, rel=1e-13)


@pytest.mark.slow
def test_the_density_of_a_box_with_walls_keeps_all_that_is_inside():
    grid = Grid((1, 1), (0.0, -1.0), (2.0, 1.0))
    position = jnp.asarray([[0.0, 0.1, 2.0, 1.0, 2.1, jnp.nan], [-1.0, 0.3, 1.0, 0.5, 0.0, 0.0]])
    view = View(Domain(grid), (False, True), {"position": position}, dict)
    density = NumberDensity(cells=(4, 2)).read(view)
    assert float(density.sum()) == pytest.approx(4 * 8 / 4, rel=1e-15)
    # At the wall all is in the first cell along x; on the edge of a period half of it is on the other side.
    np.testing.assert_allclose(density[0], np.asarray([0.5 + 0.2, 0.5 + 0.8]) * 2, rtol=0, atol=1e-14)
    variables = {"position": position[:, :4], "velocity": position[:, :4] ** 2}
    mass = np.asarray([1.0, 2.0, 3.0, 4.0])

    def warmth(variables):
        seen = view._replace(variables=variables)
        return MeshTemperature((4, 2), mass).read(seen).sum() + MeshVelocity((4, 2), 0, mass, "u").read(seen).sum()

    # Cells without particles too: their ratios are of nothing and nothing.
    assert all(np.isfinite(u).all() and u.any() for u in jax.grad(warmth)(variables).values())
    slope = jax.grad(lambda x: (NumberDensity(cells=(4, 2)).read(view._replace(variables={"position": x}))[1]).sum())
    assert np.isfinite(slope(position[:, :4])).all()


@pytest.mark.slow
def test_the_choice_does_not_depend_on_devices_members_or_stops(whole):
    root, frames = whole
    corner = {"output.particles": {"region": {"lower": [0, 0], "upper": [4.5, 3]}}}
    inside = np.flatnonzero((frames.position[0] <= [4.5, 3, 0]).all("space"))
    # What instruments see is on devices and across stops as well: test_instruments.
    chosen = {**corner, "mesh.x": 2, "outputs": []}
    run(root / "twice", {**chosen, "time.end": 0.01})
    seen = run(root / "twice", chosen, resume=root / "twice")
    np.testing.assert_array_equal(seen.particle, inside)
    # Devices add up forces in another order.
    np.testing.assert_allclose(seen.position, frames.position.sel(particle=inside), rtol=0, atol=1e-12)
    with pytest.raises(ConfigurationError, match="output.particles"):
        run(root / "twice", {"output.particles": {"every_nth": 4}, "time.end": 0.03}, resume=root / "twice")
    few = {"output.particles": {"every_nth": 30}, "outputs": [], "output.report": True}
    members = run(root / "members", {**few, "ensemble.size": 2})
    assert members.position.dims == ("member", "time", "particle", "space")
    np.testing.assert_array_equal(members.particle, [0, 30, 60])
    assert "3 of 64 particles" in (root / "members" / "report.html").read_text()


@pytest.mark.slow
def test_what_cannot_be_chosen_is_refused(whole, tmp_path):
    for chosen, sentence in (
        ({"ids": [64]}, "output.particles.ids: 64: expected numbers from 0 to 63, as there are 64 particles."),
        ({"region": {"lower": [8.9, 8.9], "upper": [9, 9]}}, "no particle starts there; write a larger one."),
    ):
        with pytest.raises(ConfigurationError) as refused:
            run(tmp_path / "none", {"output.particles": chosen})
        assert sentence in str(refused.value) and not (tmp_path / "none").exists()
    with pytest.raises(ConfigurationError, match="tracks has ids with 64: expected numbers from 0 to 63"):
        run(tmp_path / "none", {"outputs": [{"tracks": {"ids": [64]}}]})
    assert "outputs[0].tracks.ids is missing" in refusal(changed(GAS, {"outputs": [{"tracks": {}}]}))
    assert "density.shape = [4]" in refusal(changed(GAS, {"outputs": [{"density": {"shape": [4]}}]}))
    assert "two corners of 2 numbers" in refusal(
        changed(GAS, {"output.particles": {"region": {"lower": [0], "upper": [1]}}})
    )
    assert "did you mean 'every_nth'" in refusal(changed(GAS, {"output.particles": {"every_nht": 3}}))
    assert "expected none for a model of fields" in refusal(changed(DYE, {"output.particles": {"every_nth": 3}}))
