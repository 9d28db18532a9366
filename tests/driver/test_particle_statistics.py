"""Statistics in time of particles: of instruments and of the model's numbers, also where steps are done again."""

import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError

GAS = {
    "model": "molecular_dynamics",
    "precision": "float64",
    "physics": {"potential": "lennard_jones", "cutoff": 2.0, "mode": "shifted"},
    "box": {"upper": [9.0, 9.0]},
    "particles": {"placement": "square", "count": 64, "temperature": 1.0},
    "time": {"end": 0.08, "output_every": 0.02, "dt": 0.005},
    "output": {"report": False, "animation": False},
    "outputs": [
        {"density": {"shape": [6, 4]}, "every": "step"},
        {"mean_square_displacement": None, "every": "step"},
    ],
    "statistics": [
        {"of": "density", "kinds": ["mean", "variance", "min", "max"], "name": "mesh"},
        {"of": "density", "phase": {"period": 0.02, "bins": 2}, "name": "phases"},
        {"of": "mean_square_displacement", "from": 0.02, "name": "moved"},
        {"of": ["temperature", "energy"], "kinds": ["mean", "covariance"], "every": "frame", "name": "heat"},
    ],
}
NAMES = ("mesh", "phases", "moved", "heat")


def run(folder, changes, names=NAMES, **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(GAS, {**place, **changes}))).run(**options)
    found = {}
    for name in names:
        with sj.open_output(folder, name) as dataset:
            found[name] = dataset.load()
    return found


def same(found, wanted, tolerance):
    for name in found:
        for variable in wanted[name].data_vars:
            if not str(variable).endswith("_time"):
                a, b = found[name][variable], wanted[name][variable]
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{name} {variable}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("particle_statistics")
    return root, run(root / "whole", {})


@pytest.mark.slow
def test_statistics_are_those_of_the_readings_after_every_step(whole):
    root, found = whole
    with sj.open_output(root / "whole", "density") as density:
        seen = density.number_density.values[1:]  # without the start; steps of one length
    mesh = found["mesh"].isel(time=0)
    assert mesh.number_density_mean.dims == ("y", "x") and float(mesh.time_counted) == pytest.approx(0.08)
    # Numbers of order one from 16 steps: roundings.
    for kind, by_numpy in (("mean", np.mean), ("variance", np.var), ("min", np.min), ("max", np.max)):
        np.testing.assert_allclose(mesh[f"number_density_{kind}"], by_numpy(seen, axis=0), rtol=0, atol=1e-14)
    # Steps end at quarters of the period: at 1/4, between two parts, and 2/4 in the later, at 3/4 and 1 in the first.
    later = np.isin(np.arange(1, 17) % 4, (1, 2))
    for part, own in enumerate((~later, later)):
        mean = found["phases"].number_density_mean[0, part]
        np.testing.assert_allclose(mean, seen[own].mean(axis=0), rtol=0, atol=1e-14)
    with sj.open_output(root / "whole", "mean_square_displacement") as moved:
        own = moved.mean_square_displacement.values[5:]
    assert float(found["moved"].mean_square_displacement_mean[0]) == pytest.approx(own.mean(), rel=1e-13)
    with sj.open_run(root / "whole") as frames:
        temperature, energy = frames.temperature.values[1:], frames.energy.values[1:]
    heat = found["heat"].isel(time=0)
    assert heat.temperature_mean.attrs["long_name"] == "mean over time of temperature"
    covariance = np.mean((temperature - temperature.mean()) * (energy - energy.mean()))
    assert float(heat.temperature_mean) == pytest.approx(temperature.mean(), rel=1e-14)
    # Sums of 64 numbers in another program, whose roundings of 1e-16 meet deviations of 1e-3.
    assert float(heat.temperature_energy_covariance) == pytest.approx(covariance, rel=1e-9)
    assert sj.check_files(root / "whole") == []


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same_statistics(whole):
    root, wanted = whole
    run(root / "twice", {"time.end": 0.04})
    same(run(root / "twice", {}, resume=root / "twice"), wanted, 0.0)  # the same programs: bit for bit


@pytest.mark.slow
def test_members_over_devices_whose_steps_are_done_again_count_each_once(whole):
    """The second member is so hot that particles go too far between two arrangements, at which its steps, and those of
    the first, are done again."""
    root, wanted = whole
    members = {"ensemble.size": 2, "ensemble.vary": {"particles.temperature": {"values": [1.0, 6.0]}}}
    mesh = {"mesh.ensemble": 2, "mesh.x": 2, "neighbor_list.rebuild_every": 8}
    alone = {"outputs": [{"density": {"shape": [6, 4]}}], "statistics": GAS["statistics"][:1]}
    found = run(root / "members", {**members, **mesh, **alone}, names=["mesh"])
    assert "are arranged anew after 4 now" in (root / "members" / "run.log").read_text()
    # Sums of sixteen steps: roundings. A step that counts twice adds a sixteenth.
    np.testing.assert_allclose(found["mesh"].time_counted, [[0.08], [0.08]], rtol=1e-12)
    # Forces are added up in the order of cells, which another arrangement changes: rounding, grown in 16 steps.
    same({name: one.isel(member=0, drop=True) for name, one in found.items()}, wanted, 1e-11)
    assert float(found["mesh"].number_density_variance[1].mean()) > float(wanted["mesh"].number_density_variance.mean())


def test_what_cannot_be_is_refused_with_what_to_write(tmp_path):
    axes = {"statistics": [{"of": "density", "over": ["x"]}]}
    assert "statistics[0].over = ['x']: expected no axes" in refusal(changed(GAS, axes))
    both = {"statistics": [{"of": ["density", "temperature"]}]}
    assert "the instrument density alone" in refusal(changed(GAS, both))
    assert "such as temperature, or the name" in refusal(changed(GAS, {"statistics": [{"kinds": "mean"}]}))
    place = {"output.root": str(tmp_path), "output.folder": str(tmp_path / "run")}
    wrong = {"statistics": [{"of": "temperatur"}], **place}
    with pytest.raises(ConfigurationError, match="statistics: temperatur: no diagnostic .* did you mean 'temperature'"):
        sj.Simulation(validate(changed(GAS, wrong))).run()
