"""Runs of fluids, plasmas and masses of particles: refusals, resuming, decomposition, exact solutions."""

import numpy as np
import pytest

import simjax as sj
from simjax.config import load_config, validate
from simjax.config.folders import config_yaml
from simjax.core.errors import ConfigurationError

COMMON = ["precision=float64", "output.animation=false", "output.report=false"]
# A few steps of every experiment, made small: overrides, and the time between two frames.
SMALL = {
    "dam_break": (["particles.spacing=0.25"], 0.01),
    "taylor_green_sph": (["particles.spacing=0.0625", "physics.transport=false"], 0.005),
    "landau_damping": (["particles.count=512", "physics.field_cells=[16]"], 0.1),
    "two_stream": (["particles.count=512", "physics.field_cells=[16]"], 0.1),
    "collapsing_sheets": (["particles.count=128", "physics.field_cells=[16]"], 0.03),
    "cold_collapse": (["particles.count=64"], 0.02),
}
NAMES = list(SMALL)


def run(tmp_path, name, *overrides, frames=2, resume=None):
    settings, every = SMALL[name]
    times = [f"time.end={frames * every!r}", f"time.output_every={every!r}"]
    overrides = [*COMMON, *settings, *times, "output.fields=null", f"output.root={tmp_path}", *overrides]
    return sj.load(name, overrides=overrides).run(resume=resume)


def particles(result):
    with result.ds as dataset:
        return dataset.load()


# One in every run of the tests: what is resumed and how does not depend on the family.
RESUMED = [
    pytest.param(name, marks=pytest.mark.slow if name == "landau_damping" else pytest.mark.long) for name in NAMES
]


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_goes_on_bit_for_bit(name, tmp_path):
    whole = particles(run(tmp_path / "whole", name))
    half = run(tmp_path / "half", name, frames=1)
    found = particles(run(tmp_path / "half", name, resume=str(half.folder)))
    assert whole.sizes["time"] == 3 and sj.check_run(half.folder) == []
    for variable in whole.data_vars:
        np.testing.assert_array_equal(found[variable], whole[variable], err_msg=str(variable))
    assert np.abs(whole["position"][2] - whole["position"][0]).max() > 0


DEVICES = {
    "dam_break": "mesh.x=2", "taylor_green_sph": "mesh.y=2", "landau_damping": "mesh.x=2",
    "cold_collapse": "mesh.z=2",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", DEVICES)
def test_two_devices_make_the_trajectory_of_one(name, tmp_path):
    one = particles(run(tmp_path / "one", name))
    two = particles(run(tmp_path / "two", name, DEVICES[name]))
    # Sums are taken in another order: rounding, grown over a few steps. Accelerations of order 10 and 100.
    for variable in ("position", "velocity"):
        np.testing.assert_allclose(two[variable], one[variable], rtol=0, atol=1e-11)
    np.testing.assert_array_equal(two["image"], one["image"])


FORCES = {
    "mesh": ["physics.field_cells=[8,8,8]", "physics.softening=0"],
    "p3m": ["physics.field_cells=[8,8,8]", "physics.cutoff=0.9"],
}


@pytest.mark.long
@pytest.mark.parametrize("forces", FORCES)
def test_forces_in_a_periodic_box(forces, tmp_path):
    """The sphere falls in as alone but for its images: momentum stays, energy goes from height to motion."""
    box = ["box.periodic=[true,true,true]", "particles.count=100", "particles.dispersion=0"]
    dataset = particles(run(tmp_path, "cold_collapse", f"physics.forces={forces}", *box, *FORCES[forces], frames=4))
    kinetic, energy = dataset["kinetic_energy"].values, dataset["energy"].values
    assert np.all(np.diff(kinetic) > 0)
    # Steps of 0.005 are short beside the time of collapse; the mesh conserves energy to some percent of what changed.
    assert np.abs(energy - energy[0]).max() < 0.1 * kinetic[-1]
    assert max(np.abs(dataset[f"momentum_{a}"]).max() for a in "xyz") < 1e-12


REFUSED = {
    "dam_break": [
        (["box.upper=[4.1,2.0]"], "box.upper\\[0\\]: expected a length that is a multiple of particles.spacing=0.25"),
        (["particles.fluid=[1.0,4.0]"], "particles.fluid\\[1\\] = 4: expected at most 3"),
        (["box.periodic=[true,false]"], "box.periodic\\[0\\] = true: expected false, a tank has walls"),
        (["physics.gravity=[1.0,-1.0]"], "expected zeros but for the last axis"),
        (["physics.gravity=[-1.0]"], "2 number\\(s\\), one per axis of box.upper"),
        (["physics.kernel=quintic_spline"], "reaches 4.5 spacings, walls are 4 thick; write at most 1.33"),
        (["physics.transport=true"], "expected a flow without a free surface"),
        (["particles.headroom=1.0"], "particles.headroom = 1: expected 0"),
        (["particles.count=100"], "particles.count: unknown key"),
        (["initial.pressure={file: a.nc, variable: p}"], "particles and their velocities come from a particles.file"),
        (["+exact.density=1.0"], "exact: expected a model of fields"),
    ],
    "landau_damping": [
        (["time.dt=0.6", "particles.temperature=[0.0]"], "steps of at most 0.5 of its inverse; write 0.5 or less"),
        (["time.dt=0.3"], "cross more than a cell of 0.785 in a step"),
        (["physics.field_cells=[16,16]"], "expected 1 number\\(s\\), one per axis of box.upper"),
        (["mesh.x=3"], "physics.field_cells\\[0\\] = 16 is not divisible by mesh.x=3; write 15 or 18"),
        (["physics.charge=[1.0,-1.0]"], "expected 1 or 1 number"),
        (["particles.fractions=[0.5,0.4]"], "expected a sum of 1, not 0.9"),
        (["box.periodic=[false]"], "expected true for a plasma"),
        (["arrangement.rows=10"], "arrangement.rows = 10: expected null"),
        (["initial.velocity=['noise(2, 1)']"], "noise"),
    ],
    "cold_collapse": [
        (["physics.forces=mesh"], "physics.field_cells: expected cell counts"),
        (["physics.cutoff=0.5"], "physics.cutoff: expected null with physics.forces=direct"),
        (["box.periodic=[true,true,true]"], "expected the other with physics.forces=direct"),
        (["particles.radius=null"], "particles.radius and particles.placement=sphere go together"),
        (["particles.radius=2.5"], "expected at most 2, half the box"),
        (["time.dt=null"], "time.dt is missing"),
    ],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize(("name", "overrides", "sentence"), CASES)
def test_refusals_write_nothing(name, overrides, sentence, tmp_path):
    with pytest.raises(ConfigurationError, match=sentence):
        run(tmp_path / "root", name, *overrides)
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
def test_a_step_above_the_sound_limit_is_refused_with_it(tmp_path):
    # 0.25 h / c with h = 1.5 * 0.25.
    with pytest.raises(ConfigurationError, match=r"time.dt=0.01 is above the stable limit 0.00469 .*write time.dt="):
        run(tmp_path / "root", "dam_break", "time.dt=0.01", frames=4)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", NAMES)
def test_configuration_read_again_is_the_same(name):
    import yaml

    config = load_config(name)
    assert validate(yaml.safe_load(config_yaml(config))) == config


@pytest.mark.long
def test_a_plane_wave_collapses_as_sheets_do(tmp_path):
    """Until they cross, displacements are sin(k x) cosh(sqrt(4 pi G rho) t)."""
    settings = ["particles.count=512", "physics.field_cells=[64]", "time.end=0.6", "time.output_every=0.3"]
    dataset = particles(run(tmp_path, "collapsing_sheets", *settings))
    rest = (np.arange(512) + 0.5) / 512
    moved = (dataset["position"] + dataset["image"])[2, :, 0].values - rest
    exact = 0.01 * np.cosh(np.sqrt(4 * np.pi) * 0.6) * np.sin(2 * np.pi * rest)
    # Aliases of a wave of 64 cells, (1 / 64)^2 of its attraction times rate and time; density has risen to 1.4.
    assert np.abs(moved - exact).max() < 0.01 * np.abs(exact).max()


@pytest.mark.long
def test_a_wave_in_a_plasma_is_damped_at_its_rate(tmp_path):
    """Maxima of the field energy fall at 2 * 0.15336 for k lambda_D = 1/2: the root of the dispersion relation."""
    settings = ["particles.count=8192", "physics.field_cells=[32]", "time.dt=0.05", "time.end=12"]
    dataset = particles(
        run(tmp_path, "landau_damping", *settings, "time.output_every=0.1", "parameters.amplitude=0.05")
    )
    time, energy = dataset["time"].values, dataset["field_energy"].values
    highest = np.flatnonzero((energy[1:-1] > energy[:-2]) & (energy[1:-1] > energy[2:])) + 1
    highest = highest[(time[highest] > 2) & (time[highest] < 11)]
    slope = np.polyfit(time[highest], np.log(energy[highest]), 1)[0]
    # Maxima are known to half a frame, and the wave's own amplitude bends its rate by a percent or so.
    assert slope == pytest.approx(-2 * 0.15336, rel=0.05)


@pytest.mark.long
def test_vortices_of_smoothed_particles_decay_at_their_rate(tmp_path):
    settings = ["particles.spacing=0.02", "physics.transport=true", "time.end=0.3", "time.output_every=0.1"]
    dataset = particles(run(tmp_path, "taylor_green_sph", *settings))
    kinetic = dataset["kinetic_energy"].values
    # 50 particles along a wave: as in the test of the model, 2 %.
    assert np.log(kinetic[0] / kinetic[-1]) / 0.3 == pytest.approx(16 * np.pi**2 * 0.01, rel=0.02)
