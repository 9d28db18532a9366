"""Particles of files that other programs write: read as they were written, and agreed with the configuration."""

import sys

import ase
import gsd.hoomd
import h5py
import jax
import numpy as np
import pytest
from case import QUICK

import simjax as sj
from simjax.config import load_config
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.particle_files import read_particles
from simjax.models.particle_model import family_of

# Bent molecules of three in a box of eight, species 0 in the middle.
rng = np.random.default_rng(3)
CENTRES = np.stack(np.meshgrid(*[[2.0, 6.0]] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
SHAPE = np.array([[0.0, 0, 0], [-0.9, 0.3, 0], [0.9, 0.4, 0.1]])
POSITION = (CENTRES + SHAPE + 0.05 * rng.normal(size=(8, 3, 3))).reshape(-1, 3)
VELOCITY = rng.normal(size=POSITION.shape)
COUNT, SPECIES = len(POSITION), np.tile([0, 1, 1], 8)
MASS, CHARGE = np.array([16.0, 1.0])[SPECIES], np.array([-0.75, 0.375])[SPECIES]
MIDDLE = 3 * np.arange(8)
BONDS = np.stack([np.stack([MIDDLE, MIDDLE + k], 1) for k in (1, 2)], 1).reshape(-1, 2)
ANGLES = np.stack([MIDDLE + 1, MIDDLE, MIDDLE + 2], 1)
ALL = {
    "position": POSITION,
    "velocity": VELOCITY,
    "species": SPECIES,
    "mass": MASS,
    "charge": CHARGE,
    "bonds": BONDS,
    "angles": ANGLES,
}
HALF = np.float32(np.finfo("f4").eps)


def atoms(**changes) -> ase.Atoms:
    given = {"positions": POSITION, "cell": [8, 8, 8], "pbc": True, **changes}
    return ase.Atoms(np.where(SPECIES == 0, "O", "H"), **given)


def by_ase(path):
    molecules = atoms(masses=MASS, charges=CHARGE)
    molecules.set_velocities(VELOCITY)
    molecules.write(path, format="extxyz")


def by_ase_with_velo(path):
    molecules = atoms()
    molecules.set_array("velo", VELOCITY)
    molecules.write(path, format="extxyz")


def lammps_by_ase(style):
    def write(path):
        molecules = atoms(charges=CHARGE)
        molecules.write(path, format="lammps-data", atom_style=style, specorder=["O", "H"], write_image_flags=True)

    return write


def by_mdanalysis(path):
    import MDAnalysis
    from MDAnalysis.core import topologyattrs as attributes

    universe = MDAnalysis.Universe.empty(COUNT, trajectory=True, velocities=True)
    for name, values in (("types", (SPECIES + 1).astype(str)), ("masses", MASS), ("charges", CHARGE)):
        universe.add_TopologyAttr(name, values)
    for kind, groups in (("Bonds", BONDS), ("Angles", ANGLES), ("Dihedrals", []), ("Impropers", [])):
        universe.add_TopologyAttr(getattr(attributes, kind)([tuple(g) for g in groups], types=["1"] * len(groups)))
    universe.atoms.positions, universe.atoms.velocities = POSITION, VELOCITY
    universe.dimensions = [8, 8, 8, 90, 90, 90]
    with MDAnalysis.Writer(str(path), format="DATA", timeunit="ps") as writer:  # its own units: nothing is converted
        writer.write(universe.atoms)


def trajectory_by_mdanalysis(path):
    import MDAnalysis

    universe = MDAnalysis.Universe.empty(COUNT, trajectory=True, velocities=True)
    universe.atoms.positions, universe.atoms.velocities = POSITION, VELOCITY
    universe.dimensions = [8, 8, 8, 90, 90, 90]
    with MDAnalysis.Writer(str(path), COUNT, units=False, convert_units=False) as writer:
        writer.write(universe.atoms)


def by_gsd(path, box=(8, 8, 8, 0, 0, 0), **more):
    frame = gsd.hoomd.Frame()
    frame.configuration.box = box
    particles = {"N": COUNT, "position": POSITION - 4, "types": ["O", "H"], "typeid": SPECIES, "velocity": VELOCITY}
    for name, value in {**particles, "mass": MASS, "charge": CHARGE}.items():
        setattr(frame.particles, name, value)
    for name, groups in {"bonds": BONDS, "angles": ANGLES, **more}.items():
        part = getattr(frame, name)
        part.N, part.group, part.types, part.typeid = len(groups), groups, ["a"], np.zeros(len(groups))
    with gsd.hoomd.open(path, "w") as file:
        file.append(frame)


def by_hand(path, edges=(8.0, 8.0, 8.0), **more):
    """An H5MD file as another program may write it: another group, ids in no order, fixed elements beside framed."""
    ids = np.random.default_rng(0).permutation(1000)[:COUNT]
    with h5py.File(path, "w") as file:
        group = file.create_group("particles/all")
        for name, values in (("position", POSITION), ("velocity", VELOCITY)):
            group[f"{name}/value"] = np.stack([np.zeros_like(values), values])
        group["species/value"] = np.stack([SPECIES] * 2)
        group["mass"], group["charge"], group["id"] = MASS, CHARGE, ids
        group["box/edges/value"] = np.stack([edges, edges])
        group["box"].attrs["boundary"] = [b"periodic"] * 3
        for name, groups in {"bonds": BONDS, "angles": ANGLES, **more}.items():
            file[f"connectivity/{name}"] = ids[groups]


# Format -> who writes it, what of the particles is in it, and to which precision.
WRITERS = {
    "momenta.xyz": (by_ase, ("position", "velocity", "species", "mass", "charge"), 1e-8),  # eight digits
    "velo.extxyz": (by_ase_with_velo, ("position", "velocity", "species"), 1e-8),
    "atomic.data": (lammps_by_ase("atomic"), ("position", "species"), 1e-12),  # printed with all digits but the last
    "charge.lmp": (lammps_by_ase("charge"), ("position", "species", "charge"), 1e-6),  # of charges, printed with %.5f
    "data.molecules": (by_mdanalysis, tuple(ALL), 4 * HALF),
    "frames.h5md": (trajectory_by_mdanalysis, ("position", "velocity"), 4 * HALF),
    "frames.gsd": (by_gsd, tuple(ALL), 4 * HALF),
    "other.h5": (by_hand, tuple(ALL), 0),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the writers
def test_particles_are_read_as_others_write_them(name, tmp_path):
    write, there, precision = WRITERS[name]
    write(tmp_path / name)
    found = read_particles(tmp_path / name, 3)
    assert set(found.arrays) == set(there)
    middle = 4 if name.endswith("gsd") else 0
    for array in there:
        wanted = ALL[array] - (middle if array == "position" else 0)
        np.testing.assert_allclose(found.arrays[array], wanted, rtol=0, atol=precision * 8)
    np.testing.assert_allclose(found.box.lengths, 8, rtol=1e-6)  # printed with six digits by MDAnalysis


LINES = """A title that says 9 atoms

4 atoms
2 bonds
1 angles
2 atom types
0.0 8.0 xlo xhi   # a comment
0.0 8.0 ylo yhi
-1.0 7.0 zlo zhi

Pair Coeffs # lj/cut

1 1.0 1.0

Masses

2 16
1 1.5

Atoms  # molecular

30 1 1 1.0 1.0 1.0 0 0 0
7 1 2 2.0 1.0 1.0 1 0 0
12 1 1 2.0 2.0 1.0 0 0 0
1 2 1 5.0 5.0 5.0 0 0 0

Velocities

1 0.1 0 0
7 0.7 0 0
12 1.2 0 0
30 3.0 0 0

Bonds

1 1 30 7
2 1 7 12

Angles

1 1 30 7 12
"""


def lines(*changes):
    text = LINES
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return lambda path: path.write_text(text)


def test_atoms_are_in_the_order_of_their_numbers(tmp_path):
    lines()(tmp_path / "data.a")
    found = read_particles(tmp_path / "data.a", 3)
    np.testing.assert_array_equal(found.arrays["velocity"][:, 0], [0.1, 0.7, 1.2, 3.0])
    np.testing.assert_array_equal(found.arrays["mass"], [1.5, 16, 1.5, 1.5])
    np.testing.assert_array_equal(found.arrays["bonds"], [[3, 1], [1, 2]])
    np.testing.assert_array_equal(found.arrays["angles"], [[3, 1, 2]])
    np.testing.assert_array_equal(found.box.lower, [0, 0, -1])
    assert found.notes == ("Of data.a Pair Coeffs are not read: physics says them.",)


REFUSED = {
    "tilted.data": (lines(("-1.0 7.0 zlo zhi", "-1.0 7.0 zlo zhi\n0.5 0 0 xy xz yz")), "triclinic box"),
    "sphere.data": (lines(("# molecular", "# sphere")), "Atoms of style sphere; expected one of atomic, charge"),
    "unnamed.data": (lines(("# molecular", "")), "Atoms of 9 columns and no style"),
    "columns.data": (lines(("# molecular", "# full")), "style full in 9 columns; expected 7, or 10 with images"),
    "dihedrals.data": (lines(("Angles", "Dihedrals\n\n1 1 30 7 12 1\n\nAngles")), "holds 1 dihedrals"),
    "labels.data": (lines(("Masses", "Atom Type Labels\n\n1 C\n2 H\n\nMasses")), "a section Atom Type Labels"),
    "types.data": (lines(("2 1 7 12", "2 2 7 12")), "bonds of 2 types; expected one"),
    "named.data": (lines(("2 1 7 12", "2 1 7 13")), "names a particle 13 that it does not hold"),
    "short.data": (lines(("4 atoms", "5 atoms")), "4 lines of Atoms, its header says 5 atoms"),
    "words.data": (lines(("30 1 1 1.0 1.0", "30 1 1 1.0 abc")), "cannot be read"),
    "other.txt": (lambda path: path.write_text("hello"), "none of NPZ, H5MD, extended XYZ"),
    "tilted.xyz": (lambda path: path.write_text('1\nLattice="8 0 0 1 8 0 0 0 8"\nH 0 0 0\n'), "triclinic box"),
    "symbols.xyz": (lambda path: path.write_text("1\n\nQq 0 0 0\n"), "'Qq' is not known; expected chemical symbols"),
    "tilted.gsd": (lambda path: by_gsd(path, box=(8, 8, 8, 0.1, 0, 0)), "triclinic box"),
    "dihedrals.gsd": (lambda path: by_gsd(path, dihedrals=[[0, 1, 2, 3]]), "holds 1 dihedrals"),
    "tilted.h5md": (lambda path: by_hand(path, edges=[[8, 0, 0], [1, 8, 0], [0, 0, 8]]), "triclinic box"),
    "edges.h5md": (lambda path: by_hand(path, edges=(8.0, 8.0)), "the lengths of its box: [8.0, 8.0]; expected 3"),
    "more.h5md": (lambda path: by_hand(path, impropers=np.array([[0, 1, 2, 3]])), "holds 1 impropers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_simjax_does_not_have_is_refused(name, tmp_path):
    write, words = REFUSED[name]
    write(tmp_path / name)
    with pytest.raises((ConfigurationError, InputOutputError)) as refused:
        read_particles(tmp_path / name, 3)
    assert words in str(refused.value)


def test_particles_out_of_the_plane_are_refused(tmp_path):
    by_hand(tmp_path / "a.h5md")
    with pytest.raises(ConfigurationError, match="expected the same of all in a box of 2 axes"):
        read_particles(tmp_path / "a.h5md", 2)


@pytest.mark.parametrize("name, module, package", [("a.xyz", "ase.io.extxyz", "ase"), ("a.gsd", "gsd.hoomd", "gsd")])
def test_a_missing_library_is_named(name, module, package, tmp_path, monkeypatch):
    (tmp_path / name).write_text("1\n\nO 0 0 0\n")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"takes {package}, which .*; pip install 'simjax\[particles\]'"):
        read_particles(tmp_path / name, 3)


# ---- file and configuration

AGREED = [
    "box.upper=[8,8,8]",
    "particles.placement=file",
    "particles.count=null",
    "particles.fractions=[0.3,0.7]",
    "physics.mass=[16,1]",
    "physics.charges={species: [-0.75, 0.375]}",
    "physics.bond=harmonic",
    "physics.angle=harmonic",
]
DIFFERENT = {
    "box": (["box.upper=[8,8,9]"], "box.upper is [8,8,9] here, [8,8,8] there"),
    "walls": (["box.periodic=[true,true,false]", "physics.charges=null"], "Write box.periodic=[true,true,true]"),
    "masses": (["physics.mass=[1]"], "physics.mass is [1] here, [16,1] there. Write physics.mass=[16,1]."),
    "charges": (["physics.charges=null"], "Write physics.charges={species: [-0.75,0.375]}."),
    "species": (
        ["particles.fractions=[1]", "physics.charges=null", "physics.mass=[1]"],
        "Write particles.fractions=[0.333333,0.666667] physics.mass=[16,1] physics.charges={species: [-0.75,0.375]}.",
    ),
    "more species": (
        ["particles.fractions=[0.3,0.3,0.4]", "physics.mass=[16,2,4]", "physics.charges={species: [-0.75,0.375,7]}"],
        "Write physics.mass=[16,1,4].",
    ),
    "bonds": (["physics.bond=null", "physics.angle=null"], "physics.bond is null here, 16 bonds there"),
    "angles": (["physics.angle=null"], "physics.angle is null here, 8 angles there"),
    "chains": (["particles.chain_length=3"], "Write particles.chain_length=null."),
}


def family(path, *overrides):
    return family_of(load_config("lennard_jones", [*AGREED, f"particles.file={path}", *overrides]))


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.slow
def test_differences_are_told_with_what_to_write(name, tmp_path):
    overrides, words = DIFFERENT[name]
    by_hand(tmp_path / "a.h5md")
    with pytest.raises(ConfigurationError) as refused:
        family(tmp_path / "a.h5md", *overrides).start()
    assert words in str(refused.value)


def test_one_species_has_one_mass(tmp_path):
    np.savez(tmp_path / "a.npz", position=POSITION, mass=np.arange(1.0, COUNT + 1))
    with pytest.raises(ConfigurationError, match="species 0 has a mass from 1 to 24"):
        load = ["physics.charges=null", "physics.bond=null", "physics.angle=null", "physics.mass=[1]"]
        family(tmp_path / "a.npz", *load, "particles.fractions=[1]").start()


@pytest.mark.parametrize("mass", [-1.0, 0.0])
def test_masses_that_no_configuration_can_have_are_not_told_as_what_to_write(mass, tmp_path):
    masses = np.full(COUNT, 2.0)
    masses[[3, 5]] = mass
    np.savez(tmp_path / "a.npz", position=POSITION, mass=masses)
    load = ["physics.charges=null", "physics.bond=null", "physics.angle=null", "particles.fractions=[1]"]
    told = rf"expected masses above zero, got {mass:g} of particle 3 \(2 such\); correct them in the file"
    with pytest.raises(ConfigurationError, match=told):
        family(tmp_path / "a.npz", *load, "physics.mass=[1]").start()


def test_bonds_that_no_file_has_are_missed(tmp_path):
    np.savez(tmp_path / "a.npz", position=POSITION)
    with pytest.raises(ConfigurationError, match="physics.bond is harmonic here, no bonds there"):
        family(tmp_path / "a.npz").start()


def energy_of_molecules() -> float:
    """Plain sums over pairs that are not bonded, bonds and angles."""
    apart = POSITION[:, None] - POSITION
    apart -= 8 * np.round(apart / 8)
    r = np.linalg.norm(apart, axis=-1)
    unbonded = np.triu(np.ones((COUNT, COUNT), bool), 1)
    unbonded[BONDS[:, 0], BONDS[:, 1]] = False
    six = (0.8 / r[unbonded & (r < 2.0)]) ** 6
    a, b = (apart[ANGLES[:, k], ANGLES[:, 1]] for k in (0, 2))
    theta = np.arccos(np.sum(a * b, 1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))
    of_bonds = 30 / 2 * np.sum((r[BONDS[:, 0], BONDS[:, 1]] - 1) ** 2)
    return 4 * 0.1 * np.sum(six**2 - six) + of_bonds + 2 / 2 * np.sum((theta - 2) ** 2)


@pytest.mark.slow
def test_molecules_of_a_file_have_the_energy_of_plain_sums(tmp_path):
    by_hand(tmp_path / "a.h5md")
    with h5py.File(tmp_path / "a.h5md", "a") as file:
        file["particles/all/charge"][:] = 0
    simulation = sj.configure(
        "molecular_dynamics",
        physics={
            "potential": {"lennard_jones": {"epsilon": 0.1, "sigma": 0.8}},
            "cutoff": 2.0,
            "mass": [16.0, 1.0],
            "bond": {"harmonic": {"stiffness": 30.0, "rest_length": 1.0}},
            "angle": {"harmonic": {"stiffness": 2.0, "rest": 2.0}},
        },
        box={"upper": [8.0] * 3},
        time={"end": 0.1, "output_every": 0.1, "dt": 0.01},
        precision="float64",
        particles={"placement": "file", "file": str(tmp_path / "a.h5md"), "fractions": [0.3, 0.7]},
    )
    run = compiled_run(simulation.config)

    def begun(values, files):
        state = run.initial_state(values, files, 0)[0]
        model, params = run.build(values, files)
        return model.diagnostics(0.0, state, params)

    found = jax.jit(begun, compiler_options=QUICK)(run.values, run.files)
    kinetic = np.sum(MASS[:, None] * VELOCITY**2) / 2
    # Rounding of sums of some hundred terms.
    np.testing.assert_allclose(found["potential_energy"], energy_of_molecules(), rtol=1e-11)
    np.testing.assert_allclose(found["kinetic_energy"], kinetic, rtol=1e-12)


# ---- masses

STARS = {"position": [[2.0, 5.0], [8.0, 5.0], [5.0, 3.0]], "velocity": [[0.0, 0.3], [0.1, 0.0], [0.0, -0.2]]}
WEIGHT = np.array([0.5, 1.0, 1.5])


def stars(path, total=3.0, **more):
    np.savez(path, **{name: np.asarray(values) for name, values in {**STARS, "mass": WEIGHT, **more}.items()})
    return sj.configure(
        "gravity",
        physics={"forces": "direct", "total_mass": total},
        precision="float64",
        box={"upper": [10.0, 10.0], "periodic": [False, False]},
        particles={"placement": "file", "file": str(path)},
        time={"end": 0.1, "output_every": 0.1, "dt": 0.01},
    )


def test_masses_of_a_file_attract_each_other_by_what_they_weigh(tmp_path):
    run = compiled_run(stars(tmp_path / "a.npz").config)

    def begun(values, files):
        state = run.initial_state(values, files, 0)[0]
        model, params = run.build(values, files)
        return model.diagnostics(0.0, state, params)

    found = jax.jit(begun, compiler_options=QUICK)(run.values, run.files)
    place, velocity = (np.asarray(STARS[name]) for name in ("position", "velocity"))
    pairs = [(0, 1), (0, 2), (1, 2)]
    energy = sum(-WEIGHT[i] * WEIGHT[j] / np.linalg.norm(place[i] - place[j]) for i, j in pairs)
    # Rounding of a few terms.
    np.testing.assert_allclose(found["kinetic_energy"], np.sum(WEIGHT[:, None] * velocity**2) / 2, rtol=1e-13)
    np.testing.assert_allclose(found["potential_energy"], energy, rtol=1e-13)
    np.testing.assert_allclose(run.family.mass(run.start_of), WEIGHT, rtol=1e-15)


HEAVY = {
    "sum": ({"total": 1.0}, "Write physics.total_mass=3."),
    "bonds": ({"bonds": [[0, 1]]}, "holds 1 bonds"),
    "charges": ({"charge": [1.0, 0.0, -1.0]}, "holds 2 charges"),
    "no mass": ({"mass": [0.0, 1.0, 2.0]}, "expected masses above zero, got 0"),
    "outside": ({"position": [[2.0, 5.0], [8.0, 5.0], [5.0, 13.0]]}, "particle 2 at y=13 (1 such) is outside the box"),
}


@pytest.mark.parametrize("name", HEAVY)
def test_masses_that_a_configuration_does_not_have_are_refused(name, tmp_path):
    changes, words = HEAVY[name]
    with pytest.raises(ConfigurationError) as refused:
        family_of(stars(tmp_path / "a.npz", **changes).config).start()
    assert words in str(refused.value)
