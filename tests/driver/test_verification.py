"""Pieces of a run that are computed twice: one flipped bit of a result is found, told and undone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.driver.loop.verification import _different, turned
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.errors import ResourceError

SILENT = {"report": False, "animation": False}
FLOW = {
    "grid": {"shape": [16, 16]},
    "physics": {"viscosity": 0.01},
    "initial": {"velocity": ["noise(2)", "noise(2)"]},
    "time": {"end": 0.4, "output_every": 0.1, "dt": 0.02},
}
LIQUID = {
    "box": {"upper": [5.13] * 3},
    "particles": {"placement": "fcc", "count": 108, "temperature": 1.0},
    "time": {"end": 0.1, "output_every": 0.025, "dt": 0.005},
}
MEMBERS = {"size": 3, "vary": {"physics.viscosity": {"values": [0.01, 0.02, 0.03]}}}
CASES = {
    "fields": ("incompressible", FLOW),
    "fields on two devices": ("incompressible", {**FLOW, "mesh": {"x": 2}}),
    "particles": ("molecular_dynamics", LIQUID),
    "members": ("incompressible", {**FLOW, "ensemble": MEMBERS}),
    "steps of the Courant number": ("incompressible", {**FLOW, "time": {**FLOW["time"], "dt": None, "courant": 0.5}}),
    "statistics": ("incompressible", {**FLOW, "statistics": [{"of": ["velocity"], "kinds": ["mean"]}]}),
}
DEFAULT = ("fields on two devices",)


def flipped(leaf):
    """The array with one bit of one number the other way round, the lowest of the mantissa, where it was."""
    values = np.array(leaf)
    values.reshape(-1).view(f"u{values.itemsize}")[values.size // 2] ^= 1
    return jax.device_put(values, leaf.sharding)


class Flipping:
    """A compiled program, of which the calls that are `struck` return a state with a flipped bit."""

    calls = 0

    def __init__(self, program, struck):
        self._program, self._struck = program, struck

    def __call__(self, *given):
        state, *others = self._program(*given)
        Flipping.calls += 1
        if self._struck(Flipping.calls):
            leaves, tree = jax.tree.flatten(state)
            largest = max(range(len(leaves)), key=lambda k: (leaves[k].dtype.kind == "f", leaves[k].size))
            leaves[largest] = flipped(leaves[largest])
            state = tree.unflatten(leaves)
        return state, *others

    def __getattr__(self, name):
        return getattr(self._program, name)


@pytest.fixture
def strike(monkeypatch):
    """Let calls of the device return a flipped bit: those whose number, from one, is `struck`."""

    def begin(struck):
        Flipping.calls, advance = 0, CompiledInstruments.advance
        monkeypatch.setattr(CompiledInstruments, "advance", lambda *given: Flipping(advance(*given), struck))

    return begin


def simulation(name, folder, **more):
    model, sections = CASES[name]
    return sj.configure(model, **{**sections, "output": {**SILENT, "root": str(folder)}, **more})


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in DEFAULT else [pytest.mark.slow]) for n in CASES])
def test_a_flipped_bit_is_found_and_undone(name, tmp_path, strike):
    """With every piece computed twice the fourth call is the second one of the second piece."""
    plain = simulation(name, tmp_path / "plain").run()
    strike(lambda call: call == 4)
    result = simulation(name, tmp_path / "struck", verify={"every": 1}).run()
    assert result.exit_code == 0
    log = (result.folder / "run.log").read_text()
    assert "computed twice, differ in 1 number of" in log and "the machine computes something wrong" in log
    parts = json.loads((result.folder / "provenance.json").read_text())["parts"]
    assert len(parts) == 2 and parts[1]["outcome"] == result.message
    for variable in plain.ds.data_vars:
        assert np.array_equal(plain.ds[variable].values, result.ds[variable].values, equal_nan=True), variable


@pytest.mark.slow
def test_a_bit_that_flips_in_what_is_computed_once_is_found_by_none(tmp_path, strike):
    """The second of two calls is computed once: what is said of `every` is what it does."""
    plain = simulation("fields", tmp_path / "plain").run()
    strike(lambda call: call == 3)
    result = simulation("fields", tmp_path / "struck", verify={"every": 2}).run()
    assert "computed twice" not in (result.folder / "run.log").read_text()
    assert not np.array_equal(plain.ds.velocity_x[-1], result.ds.velocity_x[-1])


@pytest.mark.slow
def test_a_machine_that_always_computes_wrong_ends_the_run(tmp_path, strike, monkeypatch):
    """Good to the third piece; what is kept goes on, bit for bit, where the machine computes right."""
    plain = simulation("fields", tmp_path / "plain").run()
    with monkeypatch.context() as later:
        later.setattr(CompiledInstruments, "advance", CompiledInstruments.advance)
        strike(lambda call: call > 6 and call % 2 == 0)
        with pytest.raises(ResourceError) as failed:
            simulation("fields", tmp_path / "run", verify={"every": 1}, checkpoint={"every_frames": 1}).run()
    assert failed.value.exit_code == 5
    assert "differ in 1 number of" in str(failed.value) and "is kept in" in str(failed.value)
    (folder,) = (tmp_path / "run" / "incompressible").iterdir()
    kept = sorted(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())
    assert kept and kept[-1] <= 15
    assert sj.check_files(folder) == []
    monkeypatch.undo()
    result = simulation("fields", tmp_path / "run", verify=None).run(resume=folder)
    assert np.array_equal(plain.ds.velocity_x, result.ds.velocity_x)


@pytest.mark.slow
def test_a_right_run_is_the_same_with_and_without(tmp_path):
    plain, twice = (simulation("fields", tmp_path / str(v), verify=v).run() for v in (None, {"every": 2}))
    assert np.array_equal(plain.ds.velocity_x, twice.ds.velocity_x)
    assert "differ" not in (twice.folder / "run.log").read_text()


def test_each_block_is_computed_on_another_device():
    mesh = sj.make_mesh({"x": 2, "y": 4})
    other = turned(mesh)
    assert other.shape == mesh.shape and {*other.devices.flat} == {*mesh.devices.flat}
    assert not np.any(other.devices == mesh.devices)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int32", "bool"])
def test_bits_are_compared_and_not_values(dtype):
    one = jnp.zeros(5, dtype)
    assert int(_different(one, one)) == 0
    if jnp.issubdtype(one.dtype, jnp.inexact):
        assert int(_different(one, one.at[2].set(-0.0))) == 1
        assert int(_different(one.at[1].set(jnp.nan), one.at[1].set(jnp.nan))) == 0
    assert int(_different(one, one.at[2].set(jnp.ones((), dtype)))) == 1


def test_a_search_is_not_computed_twice():
    with pytest.raises(sj.ConfigurationError, match="verify: expected null, as the runs of a search"):
        sj.load("inverse_source", ["verify={every: 1}"])
