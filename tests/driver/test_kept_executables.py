"""Executables of a run are taken from an earlier process without tracing, and only where nothing has changed."""

import dataclasses
import gc
import logging
import os

import h5py
import jax
import jax.numpy as jnp
import pytest
from jax._src import compilation_cache

import simjax as sj
from simjax.config import validate
from simjax.driver.programs import compile_cache, program_identity
from simjax.driver.programs.kept_executables import (
    KeptExecutables,
    KeptProgram,
    executables_of_earlier_processes,
    kept_executables,
)
from simjax.driver.programs.program_identity import identity_of, is_foreign
from simjax.driver.shared_programs import forget_programs
from simjax.instruments.histogram import Histogram
from simjax.run import COLLECTIONS, main

QUIET = ["output.report=false", "output.animation=false"]
MEMBERS = [
    "model=advection_diffusion",
    "physics={diffusivity: 0.1, velocity: [1.0]}",
    "grid.shape=[16]",
    "initial={concentration: 'sin(2*pi*x)'}",
    "time={end: 0.02, output_every: 0.01, dt: 0.001}",
    "ensemble.size=2",
    "ensemble.vary={physics.diffusivity: {values: [0.1, 0.2]}}",
    "mesh.ensemble=2",
    "mesh.x=2",
    *QUIET,
]
CLUSTER = ["particles.count=16", "time={end: 0.02, output_every: 0.01, dt: 0.01}", *QUIET]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs kept in a new folder, which jax asks for as in a process that has just begun."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(compile_cache, "_PROCESS", compile_cache._Process())
    compilation_cache.reset_cache()
    jax.config.update("jax_enable_compilation_cache", True)
    settings = compile_cache.settings_to_keep_programs()
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    forget()
    yield compile_cache.kept_programs()
    for name, value in {**before, "jax_enable_compilation_cache": False}.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    forget()


def forget():
    """Forget what this process has traced and compiled, of which another one knows nothing."""
    forget_programs()
    jax.clear_caches()


def arrays(folder):
    """All arrays of a run's files, as bytes."""
    found = {}
    for path in sorted(path for path in folder.glob("*") if path.suffix in (".nc", ".h5", ".h5md")):
        with h5py.File(path) as file:
            names = []
            file.visit(names.append)
            found |= {(path.name, n): file[n][()].tobytes() for n in names if isinstance(file[n], h5py.Dataset)}
    return found


@pytest.mark.parametrize(
    ("experiment", "overrides"),
    [(None, MEMBERS), ("cold_collapse", CLUSTER)],
    ids=["members on several devices", "particles"],
)
def test_what_is_taken_computes_the_same_to_the_last_bit(experiment, overrides, programs, tmp_path, monkeypatch):
    """Nothing is traced for it; the run that keeps them has traced and compiled all of them."""

    def simulation(name):
        forget()
        return sj.load(experiment, [*overrides, f"output.root={tmp_path}", f"output.folder={name}"])

    def refuse(*_):
        raise AssertionError("It is traced again.")

    with executables_of_earlier_processes():
        kept = arrays(simulation("kept").run().folder)
        monkeypatch.setattr(KeptExecutables, "compile", refuse)
        monkeypatch.setattr(KeptProgram, "trace", refuse)
        taken = arrays(simulation("taken").run().folder)
    assert len(kept) > 3 and taken == kept


# ---------------------------------------------------------------------- one program


@pytest.fixture
def made(monkeypatch):
    """A list with an entry for each program that was compiled rather than taken."""
    made, compile_one = [], KeptExecutables.compile
    monkeypatch.setattr(KeptExecutables, "compile", lambda *given: made.append(1) or compile_one(*given))
    return made


def add(x, y):
    logging.getLogger("simjax").warning("The sum was traced.")
    return {"sum": x + y, "none": None}


def call(programs, identity="run", count=3):
    """Call a program as a new process does."""
    forget()
    program = KeptExecutables(identity, programs).program(jax.jit(add, donate_argnums=0), "sum", (("cells", 2),))
    x, y = jnp.arange(float(count)), jnp.ones(count)
    shapes, memory = program.eval_shape(x, y), program.lower(x, y).compile().memory_analysis()
    found = program(x, y)
    assert x.is_deleted() and memory is not None
    assert found["none"] is None and shapes["sum"].shape == found["sum"].shape == (count,)
    assert found["sum"].tolist() == [float(n) + 1 for n in range(count)]
    return program


def entry_of(programs):
    (file,) = programs.folder.glob("run-*.program")
    return file


def test_a_program_is_taken_with_what_was_told_when_it_was_traced(programs, made, caplog):
    for _ in range(2):
        call(programs)
        assert caplog.messages == ["The sum was traced."]
        caplog.clear()
    assert len(made) == 1
    call(programs, identity="another run")
    call(programs, count=4)
    assert len(made) == 3


def test_arguments_that_it_was_not_compiled_for_are_taken_nevertheless(programs):
    call(programs)
    program = call(programs)
    assert program(jnp.arange(5.0), jnp.ones(5))["sum"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_wrong_file_is_a_miss(programs, made):
    """One that is cut off, one that is none, one for other arguments, and one whose machine code is gone."""
    call(programs)
    file, key = entry_of(programs), entry_of(programs).stem
    whole = programs.get(key)
    for wrong in (
        whole[:-40],
        b"",
        b"no pickle",
        whole.replace(b"float32", b"float99").replace(b"_exec", b"_exce")[:50],
    ):
        programs.put(key, wrong)
        call(programs)
    file.write_bytes(file.read_bytes()[:-1])
    call(programs)
    call(programs, count=4)
    other = next(one for one in programs.folder.glob("run-*.program") if one != file)
    programs.put(key, programs.get(other.stem))
    call(programs)
    assert len(made) == 8
    for code in programs.folder.glob("jit_add*.program"):
        code.unlink()
    call(programs)
    assert len(made) == 9
    call(programs)
    assert len(made) == 9


def test_a_file_that_others_can_have_written_is_a_miss(programs, made, monkeypatch):
    """Of another user, or of this one where others may write: what it holds would be run."""
    call(programs)
    for mode in (0o620, 0o602):
        entry_of(programs).chmod(mode)
        call(programs)  # and replaces it
        assert entry_of(programs).stat().st_mode & 0o077 == 0
    assert len(made) == 3
    monkeypatch.setattr(os, "getuid", lambda: os.stat(programs.folder).st_uid + 1)
    call(programs)
    assert len(made) == 4


# ---------------------------------------------------------------------- the identity


def test_another_configuration_is_another_run(tmp_path):

    def config(*overrides):
        return sj.load("sod", list(overrides)).config

    usual = identity_of(config())
    assert usual is not None and identity_of(config()) == usual
    others = [
        config("grid.shape=[200]"),
        config("time.courant=0.4"),
        config("time.end=0.1"),
        config("precision=float32"),
        config("output.fields=[density]"),
        config("initial.density='where(x < 0.4, 1, 0.125)'"),
    ]
    assert len({usual, *map(identity_of, others)}) == 1 + len(others)
    same = config("output.report=false", "title=Mine", "checkpoint.keep=5", f"output.root={tmp_path}")
    assert identity_of(same) == usual


def test_what_a_configuration_names_is_part_of_it(tmp_path):
    config = sj.load("sod").config
    file = tmp_path / "data.csv"

    def with_file(text):
        file.write_text(text)
        return identity_of(dataclasses.replace(config, objective=str(file)))

    assert with_file("1") != with_file("2") and with_file("1") == with_file("1")
    assert identity_of(dataclasses.replace(config, objective=str(tmp_path))) is None
    assert identity_of(dataclasses.replace(config, objective="gs://bucket/data")) is None


@pytest.mark.parametrize("what", ["sources_digest", "packages_digest", "devices", "settings"])
def test_other_versions_devices_and_settings_are_another_run(what, monkeypatch):
    config = sj.load("sod").config
    usual = identity_of(config)
    monkeypatch.setattr(program_identity, what, lambda: ["another"])
    assert identity_of(config) != usual


def test_settings_of_jax_and_of_the_compiler_count(monkeypatch):
    usual = program_identity.settings()
    with jax.default_matmul_precision("highest"):
        assert program_identity.settings() != usual
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert program_identity.settings() != usual


def test_all_of_simjax_counts_as_its_sources():
    inside = {file.relative_to(program_identity.PACKAGE).parts[0] for file in program_identity.PACKAGE.rglob("*.py")}
    assert {"driver", "models", "ops", "grid.py"} <= inside


def test_sources_and_packages_are_read(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(program_identity, "PACKAGE", tmp_path)
    read = program_identity.sources_digest.__wrapped__
    first = read()
    (tmp_path / "a.py").write_text("2")
    assert read() != first
    monkeypatch.syspath_prepend(tmp_path)
    packages = program_identity.packages_digest.__wrapped__
    first = packages()
    (tmp_path / "solver-2.0.dist-info").mkdir()
    assert packages() != first


# ---------------------------------------------------------------------- a user's code


def test_code_of_a_user_is_never_taken_from_an_earlier_process(programs):
    """No key tells what it was when the executable was made."""

    class Decay(sj.CenteredModel):
        fields, parameters = ("u",), {"rate": 1.0}

        def rhs(self, t, state, params):
            return {"u": -params["rate"] * state["u"]}

        def stable_dt(self, state, params):
            return 1 / params["rate"]

    @sj.instrument("counted")
    class Counted(Histogram):
        pass

    config = sj.load("sod").config
    with executables_of_earlier_processes():
        assert kept_executables(config) is not None
        own = sj.configure(Decay, grid={"shape": [8]}, initial={"u": 1}, time={"end": 1, "output_every": 1, "dt": 0.1})
        assert kept_executables(own.config) is None
        for kind, keeps in (("histogram", True), ("counted", False)):
            seen = {kind: {"bins": 4, "lower": 0, "upper": 1}, "of": "density"}
            changed = {**config.write(), "outputs": [seen]}
            assert (kept_executables(validate(changed)) is not None) == keeps, kind
    assert kept_executables(config) is None  # outside of commands
    assert not is_foreign([jnp.sin, jax.jit, {"a": (1, "b")}, sj.Grid((4,))])

    def mine(x):
        return x

    wrapped = compile_cache.KeptPrograms.trim  # simjax's own function
    assert is_foreign(mine) and is_foreign({"a": [mine]}) and not is_foreign(wrapped)


def test_a_command_leaves_the_search_for_garbage_as_it_was(capsys):
    before, during = gc.get_threshold(), []
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simjax.run._version", lambda: during.append(gc.get_threshold()) or "1")
        assert main(["--version"]) == 0
    assert during == [COLLECTIONS] and gc.get_threshold() == before
