"""Trajectories in MDAnalysis: in the run's own units, with the time between frames, species, masses and charges."""

import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.particle_output import ParticleWriter

POSITION = np.random.default_rng(0).uniform(0, 4, (3, 2, 5))  # frames, axes, particles
CHARGE, SPECIES = np.array([1.0, -1, -1, 1, 0]), np.array([0, 1, 1, 0, 0])


def turns(position, frame):
    """Each particle goes round x once a frame, and one of them back round y."""
    found = np.zeros(position.shape, "i4")
    found[..., 0, :], found[..., 1, 3] = frame, -frame
    return found


def write(folder, members=None, species_names=("fluid", "wall")):
    options = {"species_names": species_names, "species": SPECIES, "mass": 1.0 + SPECIES, "charge": CHARGE}
    about = {"epsilon": {"units": "1", "long_name": "depth"}, "energy": {"units": "1", "long_name": "total energy"}}
    writer = ParticleWriter(
        folder,
        lower=(0.0, 0.0),
        upper=(4.0, 4.0),
        periodic=(True, True),
        names=("position", "velocity", "image"),
        members=members,
        parameters={"epsilon": np.float64(2.0)},
        diagnostics=["energy"],
        attributes={},
        title="a test",
        about=about,
        **options,
    )
    for frame, position in enumerate(POSITION):
        position = position if members is None else position + 10 * np.arange(members)[:, None, None]
        energy = np.full(() if members is None else (members,), 0.5 * frame)
        writer.write(
            [10 * frame],
            [0.25 * frame],
            {"position": position[None], "velocity": -position[None], "image": turns(position, frame)[None]},
            {"energy": energy[None]},
        )
    writer.close(True)
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MDAnalysis' own dependencies
def test_a_universe_has_times_species_masses_and_charges(tmp_path):
    universe = sj.open_universe(write(tmp_path))
    assert universe.trajectory.dt == 0.25 and [frame.time for frame in universe.trajectory] == [0.0, 0.25, 0.5]
    assert universe.select_atoms("type wall").indices.tolist() == [1, 2]
    np.testing.assert_array_equal(universe.atoms.masses, 1.0 + SPECIES)
    np.testing.assert_array_equal(universe.atoms.charges, CHARGE)
    frame = universe.trajectory[2]
    np.testing.assert_array_equal(frame.positions[:, :2], POSITION[2].T.astype("f4"))  # MDAnalysis keeps float32
    np.testing.assert_array_equal(frame.velocities, -frame.positions)
    np.testing.assert_array_equal(universe.dimensions[:2], [4, 4])
    assert frame.data["energy"] == 1.0
    with sj.open_run(tmp_path) as dataset:
        assert dataset.energy.attrs["long_name"] == "total energy" and dataset.epsilon.attrs["long_name"] == "depth"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("members", [None, 2])
def test_particles_go_on_beyond_the_box(tmp_path, members):
    universe = sj.open_universe(write(tmp_path, members), member=None if members is None else 1, unwrapped=True)
    for number, frame in enumerate(universe.trajectory):
        expected = POSITION[number] + (0 if members is None else 10) + 4.0 * turns(POSITION[number], number)
        np.testing.assert_allclose(frame.positions[:, :2], expected.T, rtol=2e-7)  # MDAnalysis keeps float32
    universe.trajectory[1]  # frames that are read again are not moved twice
    first = universe.atoms.positions.copy()
    universe.trajectory[0]
    universe.trajectory[1]
    np.testing.assert_array_equal(universe.atoms.positions, first)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_member_of_an_ensemble_is_chosen(tmp_path):
    write(tmp_path, members=2, species_names=())
    universe = sj.open_universe(tmp_path, member=1)
    np.testing.assert_array_equal(universe.atoms.positions[:, :2], (POSITION[0].T + 10).astype("f4"))
    assert set(universe.atoms.types) == {"0", "1"}
    for member in (None, 2):
        with pytest.raises(ConfigurationError, match="0 to 1"):
            sj.open_universe(tmp_path, member=member)


def test_a_folder_without_particles_is_refused(tmp_path):
    with pytest.raises(InputOutputError, match="no run of particles"):
        sj.open_universe(tmp_path)
    write(tmp_path)
    with pytest.raises(ConfigurationError, match="leave it out"):
        sj.open_universe(tmp_path, member=3)
