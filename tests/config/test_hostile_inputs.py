"""Malformed overrides, values and files: each is refused in a sentence, with its exit code, before a compilation.

The tables are by class of mistake: wrong type, empty, huge, not finite, deep, unknown and misspelled.
"""

import re
import struct
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
from configurations import DYE, FLOW, changed
from field_files import read_field
from scipy.io import netcdf_file

import simjax.application
import simjax.io.memory
import simjax.run
from simjax.config import load_config, validate
from simjax.config.read_stretched_grid import read_faces
from simjax.driver.loop.field_faults import _field_name
from simjax.driver.simulation import Simulation
from simjax.driver.start.build import named_values
from simjax.errors import ConfigurationError, InputOutputError, ResourceError, SimjaxError
from simjax.grid import CENTER, Grid
from simjax.io.particle_files import read_particles
from simjax.io.stored_variable import BYTES_PER_VALUE
from simjax.models.particle_model import family_of
from simjax.models.placement import BYTES_PER_PARTICLE
from simjax.models.waves.wave_setup import read_signal

# What no user should read: Python's own words for objects, classes and addresses, and sentences cut at their end.
GARBLED = re.compile(r"object at 0x|<ast|<class|Traceback|\w+Exception\b|\w+Error\b|=\.$|\(None\)|\['|'\] is")


def tidy(sentence):
    assert sentence and not GARBLED.search(re.sub(r"= .*?: expected", "", sentence)), sentence
    assert len(sentence) < 3000
    return sentence


# ---- the command line

FLUID = "experiment=fluid"
COMMANDS = {
    # unknown and misspelled
    "expriment=fluid": ["did you mean experiment=fluid?"],
    "expriment=fluid seed=3": ["did you mean experiment=fluid?"],
    "fluid": ["did you mean experiment=fluid?"],
    "experiment=fluid expriment=gas": ["did you mean experiment=...?"],
    "experiment=FLUID": ["did you mean experiment=fluid?"],
    "experiment=fluid physics.viscsity=1": ["did you mean 'physics.viscosity'?"],
    "experiment=fluid ensemble.vary={physics.viscosity:{unifrm:[1,2]}}": ["uniform"],
    "experiment=fluid _target_=os.system": ["name a model with model=..."],
    "experiment=fluid title=cast(1)": ["Unknown function 'cast'"],
    # wrong type
    "experiment=fluid grid=1": ["grid = 1", "shape, lower, upper"],
    "experiment=fluid time.end=[1]": ["time.end = [1]"],
    "experiment=fluid boundaries.x={kind:[]}": ["boundaries.x"],
    "experiment=fluid initial.velocity=[[['1']],0]": ["initial.velocity[0]"],
    "experiment=fluid resume=5": ["resume = 5"],
    # empty
    "experiment=": ["(nothing)"],
    "experiment=fluid grid.shape=[]": ["1 to 3"],
    "experiment=fluid =5": ["expected key=value"],
    "experiment=fluid +=1": ["is no key"],
    "experiment=fluid .=1": ["is no key"],
    "experiment=fluid a..b=1": ["is no key"],
    "experiment=fluid grid.=1": ["is no key"],
    "experiment=fluid ../conf=config": ["is no key"],
    "experiment=fluid -m seed=glob(*)": ["no values to run with"],
    # without end
    "experiment=fluid -m seed=range(0,1e9)": ["a range of 1e+09 values", "at most 10000 runs"],
    "experiment=fluid -m seed=range(0,inf)": ["a range of inf values"],
    "experiment=fluid -m seed=shuffle(range(0,10002))": ["a range of 1e+04 values"],
    "experiment=fluid -m seed=range(0,101) time.courant=range(0.1,0.5,0.004)": ["101 x 100 are 10100 runs"],
    "experiment=fluid ensemble.size=1000001": ["ensemble.size = 1000001", "<= 1000000"],
    # huge
    "experiment=fluid grid.upper=[1e308,1e308]": ["at most 1e+18", "other units"],
    "experiment=fluid grid.upper=[1e-320,1]": ["cells of at least 1e-18"],
    "experiment=lennard_jones box.upper=[1e300,1e300,1e300]": ["at most 1e+18"],
    "experiment=fluid seed=99999999999999999999999999": ["seed"],
    "experiment=fluid " + "a" * 100_000 + "=1": ["is no key"],
    "experiment=fluid title=" + "a" * 5000: ["5000 characters"],
    "experiment=fluid initial.velocity=['noise(1e308)',0]": ["at most 1048576"],
    "experiment=fluid initial.velocity=['noise(8,1e308)',0]": ["below 2**31"],
    # not finite
    "experiment=fluid time.end=nan": ["time.end = nan"],
    "experiment=fluid grid.upper=[inf,1]": ["grid.upper[0] = inf"],
    "experiment=fluid initial.velocity=['9**9**9**9',0]": ["out of range"],
    # deep
    "experiment=fluid a=" + "[" * 500 + "]" * 500: ["deeper than 30 levels"],
    "experiment=fluid a=" + "{a:" * 100 + "1" + "}" * 100: ["deeper than 30 levels"],
    "experiment=fluid " + ".".join(["a"] * 60) + "=1": ["deeper than 30 levels"],
    "experiment=fluid initial.velocity=['" + "-" * 150 + "x',0]": ["100 levels of nesting"],
    # of another alphabet
    "experiment=fluid title=\x01": ["control characters"],
    "experiment=fluid title=\ud800": ["UTF-8"],
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:60].encode("ascii", "replace").decode())
def test_malformed_commands_are_refused_in_a_sentence(command, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simjax.application, "run", lambda *_: pytest.fail("it runs"))
    assert simjax.run.main(command.split(" ")) == 2
    printed = tidy(capsys.readouterr().err)
    for words in COMMANDS[command]:
        assert words in printed
    assert not list(tmp_path.iterdir())


# ---- every key, with every class of wrong value

DEEP = 1
for _ in range(60):
    DEEP = [DEEP]
VALUES = {
    "text": "nonsense",
    "empty text": "",
    "list": [1, "a", None],
    "empty list": [],
    "mapping": {"a": {"b": 1}},
    "empty mapping": {},
    "numbered mapping": {1: 2, None: 3},
    "null": None,
    "true": True,
    "negative": -1,
    "huge": 10**30,
    "tiny": 1e-320,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "deep": DEEP,
    "null character": "a\0b",
    "half a character": "\ud800",
    "long": "x" * 20_000,
    "bytes": b"bytes",
    "formula": "__import__('os').system('true')",
    "reference": "${oc.env:HOME}",
}
KEYS = [
    "model",
    "physics",
    "physics.viscosity",
    "grid",
    "grid.shape",
    "grid.shape.0",
    "grid.lower",
    "grid.upper",
    "time",
    "time.end",
    "time.output_every",
    "time.dt",
    "time.courant",
    "time.integrator",
    "boundaries",
    "boundaries.x",
    "boundaries.y.lower",
    "initial",
    "initial.velocity",
    "forcing",
    "forcing.velocity",
    "closure",
    "closure.velocity",
    "exact",
    "exact.velocity_x",
    "parameters",
    "parameters.a",
    "coefficients",
    "mesh",
    "mesh.x",
    "ensemble",
    "ensemble.size",
    "ensemble.vary",
    "ensemble.vary.physics.viscosity",
    "output",
    "output.fields",
    "output.root",
    "output.folder",
    "checkpoint",
    "checkpoint.keep",
    "limits",
    "limits.memory",
    "seed",
    "precision",
    "title",
    "experiment_name",
    "resume",
    "implementation",
    "steps_per_exchange",
    "inverse",
    "inverse.unknowns",
    "inverse.observations",
    "box",
    "particles",
    "neighbor_list",
    "unknown",
]


@pytest.mark.parametrize("kind", VALUES)
def test_a_wrong_value_at_any_key_is_refused_in_a_sentence(kind):
    """Some values are right at some keys: those are taken, and nothing else may happen."""
    taken = []
    for key in KEYS:
        mapping = changed(FLOW, {} if key == "grid.shape.0" else {key: VALUES[kind]})
        if key == "grid.shape.0":
            mapping["grid"]["shape"][0] = VALUES[kind]
        try:
            validate(mapping)
            taken.append(key)
        except ConfigurationError as error:
            tidy(str(error))
    # A null leaves the optional keys at their defaults, and a huge viscosity is one.
    never = {"model", "grid", "grid.shape", "grid.shape.0", "physics", "time", "seed", "precision", "unknown"}
    assert not never & {*taken}
    assert kind == "null" or len(taken) < 0.4 * len(KEYS)


# ---- files of fields

GRID = Grid((6, 4), (0.0, 0.0), (3.0, 2.0))
FIELD = np.random.default_rng(0).normal(size=(4, 6))


def with_attributes(**attributes):
    def write(path):
        with h5py.File(path, "w") as file:
            file["c"] = FIELD
            file["c"].attrs.update(attributes)

    return write


def classic_with(**attributes):
    def write(path):
        with netcdf_file(path, "w") as file:
            for name, size in (("y", 4), ("x", 6)):
                file.createDimension(name, size)
            file.createVariable("c", "d", ("y", "x"))[:] = FIELD
            for name, value in attributes.items():
                setattr(file.variables["c"], name, value)

    return write


def of_shape(shape):
    def write(path):
        with h5py.File(path, "w") as file:
            file.create_dataset("c", shape, "f8")

    return write


def without_a_space(path):
    with h5py.File(path, "w") as file:
        file["c"] = h5py.Empty("f8")


def packed(**arrays):
    def write(path):
        with path.open("wb") as file:
            np.savez(file, **arrays)

    return write


def with_header(header):
    """An NPZ whose array has this header, whatever it says."""

    def write(path):
        text = header.encode() + b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("c.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 64)

    return write


FILES = {
    "scale of words": (with_attributes(scale_factor="ten"), 2, "its scale_factor is 'ten'; expected a number"),
    "scale of nothing": (with_attributes(scale_factor=h5py.Empty("f8")), 2, "scale_factor"),
    "empty scale": (with_attributes(scale_factor=np.zeros(0)), 2, "its scale_factor is []; expected one finite number"),
    "scale of several": (with_attributes(scale_factor=[1.0, 2.0]), 2, "its scale_factor is [1.0, 2.0]"),
    "scale not finite": (with_attributes(scale_factor=np.nan), 2, "its scale_factor is nan"),
    "offset of words": (with_attributes(add_offset=b"abc"), 2, "add_offset"),
    "complex offset": (with_attributes(add_offset=1j), 2, "add_offset"),
    "fill of words": (with_attributes(_FillValue="none"), 2, "its _FillValue is 'none'; expected a number"),
    "units of numbers": (with_attributes(units=np.arange(3)), 2, "is in '[0 1 2]'"),
    "units of nothing": (with_attributes(units=h5py.Empty("f8")), 2, "expected 'm s-1'"),
    "endless units": (with_attributes(units="m" + "1" * 5000), 2, "expected 'm s-1'"),
    "classic scale of words": (classic_with(scale_factor="ten"), 2, "scale_factor"),
    "no rows": (of_shape((0, 6)), 2, "has shape (0, 6) and holds no values"),
    "no array": (without_a_space, 2, "is empty and holds no values"),
    "empty npz": (packed(), 2, "it holds nothing"),
    "empty array": (packed(c=np.zeros((0,))), 2, "holds no values"),
    "declared": (of_shape((2**20, 2**20)), 5, "of shape (1048576, 1048576), would need about"),
    "claimed": (
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000)}"),
        4,
        "claims shape",
    ),
    "negative shape": (with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -2)}"), 4, "damaged"),
    "calls in the header": (with_header("{'descr': f(1), 'fortran_order': False, 'shape': (1,)}"), 4, "damaged"),
    "no header": (with_header(""), 4, "damaged"),
    "not a position": (packed(c=FIELD, x=np.full(6, np.nan), y=np.zeros(4)), 2, "c"),
}


@pytest.mark.parametrize("name", FILES)
def test_odd_files_are_refused_in_a_sentence(name, tmp_path):
    write, code, words = FILES[name]
    write(tmp_path / "file")
    with pytest.raises(SimjaxError) as refused:
        read_field(
            tmp_path / "file", "c", GRID, (CENTER,) * 2, periodic=(False, False), units="m s-1", order=("y", "x")
        )
    assert refused.value.exit_code == code and words in tidy(str(refused.value))


def test_faces_and_signals_are_estimated_before_they_are_read(tmp_path, monkeypatch):
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}"
    (tmp_path / "f.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(64))
    with pytest.raises(InputOutputError, match=r"f.npy is damaged or incomplete \('f' claims shape"):
        read_faces("f.npy", [tmp_path])
    (tmp_path / "f.txt").write_text("1 " * 10_000)
    monkeypatch.setattr(simjax.io.memory, "host_memory", lambda: 2**18)
    for read in (lambda: read_faces("f.txt", [tmp_path]), lambda: read_signal(tmp_path / "f.txt")):
        with pytest.raises(ResourceError, match="f.txt, of 0 MiB, would need about 0.000298 GiB"):
            read()


def test_several_missing_values_are_all_missing(tmp_path):
    values = FIELD.copy()
    values[1, 4], values[2, 2] = -99.0, -98.0
    with h5py.File(tmp_path / "a", "w") as file:
        file["c"] = values
        file["c"].attrs["missing_value"] = [-99.0, -98.0]
    with pytest.raises(ConfigurationError, match="2 of 24 values are not finite"):
        read_field(tmp_path / "a", "c", GRID, (CENTER,) * 2, periodic=(False, False))


# ---- files of particles

PLACES = np.random.default_rng(1).random((8, 3))
IN_H5MD = "particles/trajectory/"


def in_h5md(**arrays):
    def write(path):
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[IN_H5MD + name.replace("__", "/")] = values

    return write


PARTICLES = {
    "a.npz": (lambda path: path.touch(), 4, "is empty"),
    "b.h5md": (lambda path: path.touch(), 4, "is empty"),
    "none.npz": (packed(position=np.zeros((0, 3))), 2, "holds no values"),
    "nothing.npz": (packed(), 2, "expected an array position"),
    "flat.npz": (packed(position=np.zeros(5)), 2, "position is (5,)"),
    "one.npz": (packed(position=np.float64(1)), 2, "position is ()"),
    "objects.npz": (packed(position=np.array([[object()]])), 2, "pickled"),
    "complex.npz": (packed(position=PLACES * 1j), 2, "complex128"),
    "velocity.npz": (packed(position=PLACES, velocity=PLACES * np.nan), 2, "velocity of particle 0 is not finite"),
    "species.npz": (packed(position=PLACES, species=np.full(8, 2**32)), 2, "species from 4294967296"),
    "fractional.npz": (packed(position=PLACES, species=np.full(8, 0.5)), 2, "expected whole numbers"),
    "text.npz": (lambda path: path.write_text("hello"), 4, "cannot be read"),
    "group.h5md": (in_h5md(position=PLACES), 2, "expected (frames, particles, 3"),
    "frames.h5md": (in_h5md(position__value=np.zeros((0, 8, 3))), 2, "at least one frame"),
    "plane.h5md": (in_h5md(position__value=np.zeros((1, 8, 2))), 2, "expected (frames, particles, 3"),
    "empty.h5md": (in_h5md(position__step=np.zeros(3)), 2, "position has no values"),
    "other.h5md": (in_h5md(), 2, "has no group"),
}


@pytest.mark.parametrize("name", PARTICLES)
def test_odd_files_of_particles_are_refused_in_a_sentence(name, tmp_path):
    write, code, words = PARTICLES[name]
    write(tmp_path / name)
    with pytest.raises(SimjaxError) as refused:
        read_particles(tmp_path / name, 3)
    assert refused.value.exit_code == code and words in tidy(str(refused.value))


def test_species_for_every_frame_are_read(tmp_path):
    in_h5md(position__value=PLACES[None], species__value=np.arange(16).reshape(2, 8))(tmp_path / "a.h5md")
    np.testing.assert_array_equal(read_particles(tmp_path / "a.h5md", 3).arrays["species"], np.arange(8, 16))


def test_particles_millions_of_boxes_away_are_refused(tmp_path):
    np.savez(tmp_path / "far.npz", position=np.full((8, 3), 1e300))
    with pytest.raises(ConfigurationError, match="lengths of the box away"):
        family("lennard_jones", "particles.placement=file", f"particles.file={tmp_path / 'far.npz'}").start()


# ---- memory, before any is taken


def family(experiment, *overrides):
    # An experiment of molecules may have a density instead.
    uncounted = ["particles.count=null"] if experiment == "lennard_jones" else []
    config = load_config(experiment, [*uncounted, *overrides])
    return family_of(config)


@pytest.mark.parametrize(
    "experiment, override, count",
    [
        ("lennard_jones", "particles.density=1e9", "4.738e+12"),
        ("lennard_jones", "particles.density=1e300", "e+303"),
        ("polymer_melt", "particles={count:null,density:1e12}", "e+1"),
        ("two_stream", "particles.count=1073741824", "1.074e+09"),
        ("zeldovich", "particles.count=1073741824", "1.074e+09"),
        ("dam_break", "particles.spacing=1e-9", "e+1"),
    ],
)
def test_counts_are_estimated_before_a_place_is_made(experiment, override, count):
    with pytest.raises(ResourceError, match=r"particles would need about .* GiB.* particles fit") as refused:
        family(experiment, override).start()
    assert count in str(refused.value) and refused.value.exit_code == 5


def test_members_are_estimated_before_their_values_are_drawn(monkeypatch):
    vary = {"physics.viscosity": {"uniform": [1e-3, 1e-2]}}
    config = validate(changed(FLOW, {"ensemble": {"size": 10**6, "vary": vary}}))
    monkeypatch.setattr(simjax.io.memory, "host_memory", lambda: 2**28)
    with pytest.raises(ResourceError, match="ensemble.size=1000000 would need about 0.186 GiB"):
        named_values(config)


@pytest.mark.parametrize("name", ["random", "fcc", "sc"])
def test_the_estimate_of_particles_holds(name):
    inside = family("lennard_jones", f"particles.placement={name}", "particles.count=1500", "particles.distance=0.2")
    peak = peak_of(inside.start)
    assert 0.05 * BYTES_PER_PARTICLE * 1500 < peak < BYTES_PER_PARTICLE * 1500


@pytest.mark.parametrize("shape", [(60, 80), (240, 320)])
def test_the_estimate_of_a_file_holds(tmp_path, shape):
    """Taken as it is, interpolated, and averaged onto the grid."""
    values = np.random.default_rng(0).normal(size=(240, 320))
    np.savez(tmp_path / "a.npz", c=values)
    grid = Grid(shape[::-1], (0.0, 0.0), (1.0, 1.0))
    options = {"periodic": (True, True), "order": ("y", "x")}
    peak = peak_of(lambda: read_field(tmp_path / "a.npz", "c", grid, (CENTER,) * 2, **options))
    # Besides the values, the archive's buffers.
    assert peak < values.size * (8 + BYTES_PER_VALUE) + 2**17


def peak_of(work):
    work()  # imports
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- names in messages


@pytest.mark.parametrize(
    "state, name",
    [
        ({"u": 1}, "u"),
        ({"velocity": (1,)}, "velocity_x"),
        ({"velocity": (None, 1)}, "velocity_y"),
        ({"a": {"b": 1}}, "a.b"),
    ],
)
def test_fields_are_named_as_a_user_writes_them(state, name):
    import jax

    ((path, _),) = jax.tree_util.tree_leaves_with_path(state)
    assert _field_name(path) == name


def test_a_step_too_long_for_one_member_names_it(tmp_path, monkeypatch):
    """Forward Euler with diffusion along two axes: dt <= h^2 / (4 kappa), of 1/16 and 1/8."""
    vary = {"physics.diffusivity": {"values": [1e-3, 2e-3, 0.3, 4e-3]}}
    changes = {"ensemble": {"size": 4, "vary": vary}, "time.dt": 0.02, "time.integrator": "euler"}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        Simulation(validate(changed(DYE, changes))).run()
    text = str(refused.value)
    assert "for the initial state of member 2 (physics.diffusivity=0.3); write time.dt=" in text
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigurationError, match="member 3 .*, the strictest of 2 that it is too long for"):
        vary["physics.diffusivity"]["values"] = [1e-3, 0.2, 2e-3, 0.3]
        Simulation(validate(changed(DYE, changes))).run()


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_files_that_cannot_be_opened(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputOutputError):
        read_particles(tmp_path / name, 3)
