"""Runs of fluids, plasmas and masses of particles: refusals, resuming, decomposition, exact solutions."""

import numpy as np
import pytest

import simjax as sj
from simjax.config import load_config, validate
from simjax.config.folders import config_yaml
from simjax.errors import ConfigurationError

COMMON = ["precision=float64", "output.animation=false", "output.report=false"]
# A few steps of every experiment, made small: overrides, and the time between two frames.
SMALL = {
    "dam_break": (["particles.spacing=0.25"], 0.01),
    "taylor_green_sph": (["particles.spacing=0.0625", "physics.transport=false"], 0.005),
    "landau_damping": (["particles.count=512", "physics.mesh_cells=[16]"], 0.1),
    "two_stream": (["particles.count=512", "physics.mesh_cells=[16]"], 0.1),
    "collapsing_sheets": (["particles.count=128", "physics.mesh_cells=[16]"], 0.03),
    "cold_collapse": (["particles.count=64"], 0.02),
    "weibel": (["particles.count=512", "physics.mesh_cells=[8,8]"], 0.4),
    "zeldovich": (["particles.count=128", "physics.mesh_cells=[16]"], 0.0055),
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
    assert whole.sizes["time"] == 3 and sj.check_files(half.folder) == []
    for variable in whole.data_vars:
        np.testing.assert_array_equal(found[variable], whole[variable], err_msg=str(variable))
    assert np.abs(whole["position"][2] - whole["position"][0]).max() > 0


DEVICES = {
    "dam_break": "mesh.x=2",
    "taylor_green_sph": "mesh.y=2",
    "landau_damping": "mesh.x=2",
    "cold_collapse": "mesh.z=2",
    "weibel": "mesh.x=2",
    "zeldovich": "mesh.x=2",
}


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
    "mesh": ["physics.mesh_cells=[8,8,8]", "physics.softening=0"],
    "p3m": ["physics.mesh_cells=[8,8,8]", "physics.cutoff=0.9"],
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
        (["physics.mesh_cells=[16,16]"], "expected 1 number\\(s\\), one per axis of box.upper"),
        (["mesh.x=3"], "physics.mesh_cells\\[0\\] = 16 is not divisible by mesh.x=3; write 15 or 18"),
        (["physics.charge=[1.0,-1.0]"], "expected 1 or 1 number"),
        (["particles.fractions=[0.5,0.4]"], "expected a sum of 1, not 0.9"),
        (["box.periodic=[false]"], "expected true for a plasma"),
        (["neighbor_list.max_neighbors=10"], "neighbor_list.max_neighbors = 10: expected null"),
        (["initial.velocity=['noise(2, 1)']"], "noise"),
    ],
    "cold_collapse": [
        (["physics.forces=mesh"], "physics.mesh_cells: expected cell counts"),
        (["physics.cutoff=0.5"], "physics.cutoff: expected null with physics.forces=direct"),
        (["box.periodic=[true,true,true]"], "expected the other with physics.forces=direct"),
        (["particles.radius=null"], "particles.radius and particles.placement=sphere go together"),
        (["particles.radius=2.5"], "expected at most 2, half the box"),
        (["time.dt=null"], "time.dt is missing"),
        (["physics.hubble_rate=1.0"], "initial_scale_factor and physics.hubble_rate go together"),
        (["physics.omega_matter=0.3"], "physics.omega_matter = 0.3: expected 1 without physics.hubble_rate"),
        (
            ["physics.forces=p3m", "physics.mesh_cells=[8,8,4]", "physics.cutoff=0.9", "box.periodic=[true,true,true]"],
            "mesh_cells\\[2\\] = 4: cells of 1 are longer than the 0.9 that physics.cutoff asks for; write 5 or more",
        ),
    ],
    "weibel": [
        (["box.upper=[12.8]"], "at least 2 axes"),
        (["time.dt=0.3", "physics.mesh_cells=[32,32]"], "waves at the speed 1 need steps of at most 0.283"),
        (["particles.drift=[[1.0,0,0],[0,0,0]]"], "particles.drift\\[0\\] = \\[1.0, 0.0, 0.0\\]: a speed of 1"),
        (["particles.drift=[[0,0],[0,0]]"], "particles.drift\\[0\\] = .*expected a list of 3 components"),
        (["neighbor_list.rebuild_every=2"], "neighbor_list.rebuild_every = 2: expected 1 or null"),
        (["+initial.velocity=['0','0']"], "initial.velocity.*3"),
        (["physics.number_density=10"], "steps of at most 0.5 of its inverse; write 0.16 or less"),
    ],
    "zeldovich": [
        (["physics.total_mass=1.0"], "physics.total_mass = 1: expected 0.119366207, the mean density"),
        (["physics.omega_matter=0.3"], "physics.total_mass = 0.119366: expected 0.0358098622, the mean density"),
        (["physics.forces=direct", "physics.mesh_cells=null", "box.periodic=[false]"], "fills a periodic box"),
        (["+ensemble.vary.physics.total_mass={uniform:[0.1,0.2]}", "ensemble.size=2"], "expected one value"),
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
@pytest.mark.slow
def test_configuration_read_again_is_the_same(name):
    import yaml

    config = load_config(name)
    assert validate(yaml.safe_load(config_yaml(config))) == config


@pytest.mark.long
def test_a_plane_wave_collapses_as_sheets_do(tmp_path):
    """Until they cross, displacements are sin(k x) cosh(sqrt(4 pi G rho) t)."""
    settings = ["particles.count=512", "physics.mesh_cells=[64]", "time.end=0.6", "time.output_every=0.3"]
    dataset = particles(run(tmp_path, "collapsing_sheets", *settings))
    rest = (np.arange(512) + 0.5) / 512
    moved = (dataset["position"] + dataset["image"])[2, :, 0].values - rest
    exact = 0.01 * np.cosh(np.sqrt(4 * np.pi) * 0.6) * np.sin(2 * np.pi * rest)
    # Aliases of a wave of 64 cells, (1 / 64)^2 of its attraction times rate and time; density has risen to 1.4.
    assert np.abs(moved - exact).max() < 0.01 * np.abs(exact).max()


@pytest.mark.slow
def test_a_wave_grows_with_the_scale_factor(tmp_path):
    """In an expanding background of matter displacements grow as a = (3 H0 age / 2)^(2/3) until sheets cross."""
    settings = ["particles.count=128", "physics.mesh_cells=[64]", "time.end=0.0308", "time.output_every=0.0154"]
    dataset = particles(run(tmp_path, "zeldovich", *settings))
    scale = (1.5 * dataset["time"].values + 0.05**1.5) ** (2 / 3)
    assert scale.shape == (3,) and scale[-1] > 2.5 * scale[0]
    # Roundings of the time and a power of it.
    np.testing.assert_allclose(dataset["scale_factor"], scale, rtol=1e-12)
    rest = (np.arange(128) + 0.5) / 128
    exact = 0.1 / np.pi * scale[:, None] / 0.05 * np.sin(2 * np.pi * rest)
    moved = (dataset["position"] + dataset["image"])[:, :, 0].values - rest
    # Aliases of a wave of 64 cells, (1 / 64)^2 of its attraction; density has risen to 2.5 where it is highest.
    assert np.abs(moved - exact).max() < 5e-3 * np.abs(exact).max()


@pytest.mark.slow
def test_currents_of_two_beams_gather_in_filaments_at_their_rate(tmp_path):
    """Cold beams at +v and -v, waves k across them: Gamma^4 + Gamma^2 (k^2 c^2 + omega_p^2 / gamma^3) = (omega_p k v)^2
    / gamma, from the equations of two fluids; Fried (1959), Phys. Fluids 2, 337, without his neglects."""
    settings = ["particles.placement=quiet", "particles.count=1024", "particles.temperature=[0.0]", "time.dt=0.12"]
    settings += ["physics.mesh_cells=[16,4]", "box.upper=['pi','pi/4']", "+initial.velocity=['0','0','1e-4*cos(2*x)']"]
    dataset = particles(run(tmp_path, "weibel", *settings, "time.end=16.8", "time.output_every=0.6"))
    v, k = 0.5, 2.0
    gamma = 1 / np.sqrt(1 - v * v)
    shared = k * k + gamma**-3
    rate = np.sqrt((np.sqrt(shared**2 + 4 * (k * v) ** 2 / gamma) - shared) / 2)
    time, energy = dataset["time"].values, dataset["magnetic_energy"].values
    window = time > 11.9  # the wave of light that starts with it is then a thirtieth, and all of it small
    # Clouds as wide as a cell, 16 to a wave, weaken forces and currents by (k h)^2 / 12 = 1.3 % each.
    assert np.polyfit(time[window], np.log(energy[window]), 1)[0] / 2 == pytest.approx(rate, rel=0.02)
    # Written are velocities, not gamma v, and of the time of the energies: those of the kinetic to rounding.
    factor = 1 / np.sqrt(1 - np.sum(dataset["velocity"].values ** 2, axis=-1))
    kinetic = np.pi**2 / 4 / 1024 * np.sum(factor - 1, axis=-1)
    # The energies' sum has as many terms; gamma v in the place of v would be nearly half more.
    assert kinetic.shape == (29,) and np.all(kinetic > 0)
    np.testing.assert_allclose(dataset["kinetic_energy"], kinetic, rtol=1e-12)
    # Gauss's law is kept but for 140 roundings of a charge density of one.
    assert float(dataset["gauss"].max()) < 1e-13


@pytest.mark.long
def test_a_wave_in_a_plasma_is_damped_at_its_rate(tmp_path):
    """Maxima of the field energy fall at 2 * 0.15336 for k lambda_D = 1/2: the root of the dispersion relation."""
    settings = ["particles.count=8192", "physics.mesh_cells=[32]", "time.dt=0.05", "time.end=12"]
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
