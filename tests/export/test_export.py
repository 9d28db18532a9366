"""Exported programs give what the run gives, and its gradient, where simjax is not installed."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import simjax as sj
from simjax.driver.programs.used_names import used_names
from simjax.export.__main__ import main
from simjax.export.artefact import export_run

SMALL = ["grid.shape=[12,10]", "time.end=0.2", "time.output_every=0.1", "time.dt=0.05", "precision=float64"]

ALONE = """
import sys
sys.modules["simjax"] = None  # importing it fails
import json, jax, numpy as np
jax.config.update("jax_enable_x64", True)
folder = sys.argv[1]
program = jax.export.deserialize(bytearray(open(f"{folder}/program.jax", "rb").read()))
arguments = dict(np.load(f"{folder}/arguments.npz"))

def last(number):
    return program.call({**arguments, "diffusivity": number})["variance_concentration"][-1]

found, slope = jax.value_and_grad(last)(arguments["diffusivity"])
print(json.dumps([float(found), float(slope)]))
"""


def dye(*overrides):
    return sj.load("dye", [*SMALL, *overrides])


def exported(folder, simulation, **options):
    meta = export_run(simulation.config, folder, **options)
    program = jax.export.deserialize(bytearray((folder / "program.jax").read_bytes()))
    return meta, program, dict(np.load(folder / "arguments.npz"))


def test_a_program_needs_no_simjax(tmp_path):
    export_run(dye().config, tmp_path)
    (tmp_path / "alone.py").write_text(ALONE, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "alone.py", "."],
        cwd=tmp_path,
        env={**os.environ, "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    run = dye().differentiable(variables=[])

    def last(number):
        return run({"diffusivity": number}).observed["variance_concentration"][-1]

    wanted = jax.value_and_grad(last)(jax.numpy.asarray(run.values["diffusivity"]))
    # The same program, compiled by itself: its rounding.
    assert wanted[0] > 0 > wanted[1]  # the dye spreads, the sooner the larger its diffusivity
    np.testing.assert_allclose(json.loads(told.stdout), np.asarray(wanted), rtol=1e-12)


def test_what_does_nothing_is_no_argument_and_what_is_not_allowed_gives_no_numbers(tmp_path):
    """`width` is that of the spot at the start, and the start is an argument itself."""
    meta, program, arguments = exported(tmp_path, dye())
    names = {"diffusivity", "velocity_x", "velocity_y", "initial.concentration"}
    assert {*arguments} == {*meta["arguments"]} == names and "width" in meta["without_effect"]
    assert meta["arguments"]["diffusivity"]["low"] == 0.0 and "low" not in meta["arguments"]["velocity_x"]
    for number, finite in {0.0: True, 0.02: True, -0.001: False}.items():
        found = program.call({**arguments, "diffusivity": np.asarray(number)})
        assert all(np.all(np.isfinite(u)) == finite for u in found.values()), number
    first = program.call(arguments)
    for name, u in arguments.items():
        moved = program.call({**arguments, name: u + 0.01 * (1 + np.arange(u.size).reshape(u.shape))})
        assert np.abs(moved["concentration"] - first["concentration"]).max() > 0, name


SHAPE = jax.ShapeDtypeStruct((), np.float64)


@pytest.mark.parametrize(
    ("function", "used"),
    [
        (lambda g: g["a"], "a"),
        (lambda g: jax.lax.scan(lambda c, _: (c + g["a"], c), g["b"], length=3)[0], "ab"),
        # What is carried and enters nothing that is wanted is not used, however it is passed on.
        (lambda g: jax.lax.scan(lambda c, _: ((c[0] + 1, c[1] * g["b"]), None), (g["a"], g["c"]), length=3)[0][0], "a"),
        # What reaches the result after two turns is.
        (
            lambda g: jax.lax.scan(lambda c, _: ((c[0] + c[1], c[2], c[2]), None), (g["a"], g["b"], g["c"]), length=3)[
                0
            ][0],
            "abc",
        ),
        (
            lambda g: jax.lax.while_loop(lambda c: c[1] < g["b"], lambda c: (c[0] + 1, c[1] + 1), (g["a"], g["c"]))[0],
            "abc",
        ),
        (lambda g: jax.lax.cond(g["a"] > 0, lambda u, v: u, lambda u, v: u + 1, g["b"], g["c"]), "ab"),
        (lambda g: jax.lax.cond(g["a"] > 0, lambda u, v: u, lambda u, v: v, g["b"], g["c"]), "abc"),
        (jax.jit(lambda g: g["a"] * g["b"] + 0 * np.ones(2)[0]), "ab"),
    ],
)
def test_inputs_that_a_program_uses_are_found_in_loops_and_branches(function, used):
    assert used_names(jax.jit(function), dict.fromkeys("abcd", SHAPE)) == {*used}


@pytest.mark.slow
def test_a_rollout_is_the_run_for_any_batch_and_platform(tmp_path):
    simulation = dye()
    options = {"batch": "b", "platforms": ["cpu", "cuda", "tpu"], "vjp_order": 0}
    meta, program, arguments = exported(tmp_path, simulation, **options)
    both = {name: np.stack([u, u]) for name, u in arguments.items()}
    both["diffusivity"] = np.asarray([0.01, 0.03])
    found, run = program.call(both), simulation.differentiable()
    for member, number in enumerate(both["diffusivity"]):
        alone = run({"diffusivity": number}).observed
        assert sorted(alone) == sorted(found) == sorted(meta["results"])
        variance = alone["variance_concentration"]
        assert 0 < variance[-1] < variance[0]  # a run that failed is NaN
        for name, u in alone.items():
            np.testing.assert_allclose(found[name][member], u, rtol=1e-12, atol=1e-13)  # rounding
    assert meta["results"]["concentration"]["shape"] == ["b", 3, 12, 10] and meta["platforms"] == options["platforms"]
    assert meta["arguments"]["diffusivity"]["units"] == "m2 s-1" and meta["times"] == pytest.approx([0.0, 0.1, 0.2])


@pytest.mark.slow
def test_a_program_is_written_for_each_of_its_platforms(tmp_path):
    """A gas, which puts less into memory on a GPU, counted by the barriers in its program."""
    tube = sj.load("sod", ["grid.shape=[16]", "time.end=0.02", "time.output_every=0.01"])
    barriers = {}
    for platforms in (("cpu",), ("cuda",), ("cuda", "rocm"), ("cpu", "cuda")):
        _, program, state = exported(tmp_path, tube, what="step", vjp_order=0, platforms=platforms)
        barriers[platforms] = program.mlir_module().count("stablehlo.optimization_barrier")
    assert barriers["cuda",] == barriers["cuda", "rocm"] < barriers["cpu",] < barriers["cpu", "cuda"]
    # The last one, of both, is called here.
    both = program.call(state)
    _, program, _ = exported(tmp_path, tube, what="step", vjp_order=0)
    for name, u in program.call(state).items():
        np.testing.assert_array_equal(both[name], u)


@pytest.mark.slow
def test_steps_one_after_the_other_are_the_run(tmp_path):
    _, program, state = exported(tmp_path, dye(), what="step")
    start = state["concentration"]
    for number in range(4):
        state |= program.call({**state, "time": np.asarray(0.05 * number)})
    last = dye().differentiable()().observed["concentration"][-1]
    assert np.abs(last - start).max() > 0.01
    np.testing.assert_allclose(state["concentration"], last, rtol=1e-12)  # rounding of four steps


@pytest.mark.slow
def test_a_decomposed_program_is_that_of_one_device(tmp_path):
    meta, program, arguments = exported(tmp_path, dye("mesh.x=2"))
    assert meta["devices"] == 2 and meta["arguments"]["initial.concentration"]["partition"] == ["x"]
    mesh = sj.make_mesh({"x": 2})
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    found = jax.jit(program.call, in_shardings=whole)(arguments)["concentration"]
    wanted = dye().differentiable()().observed["concentration"]
    assert np.all(np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)  # rounding


@pytest.mark.slow
def test_a_loss_is_that_of_the_search(tmp_path):
    overrides = ["grid.shape=[16,16]", "time.end=0.2", "time.output_every=0.1"]
    simulation = sj.load("inverse_source", overrides)
    _, program, arguments = exported(tmp_path, simulation, what="loss")
    problem = sj.InverseProblem(simulation)
    latent = problem.start()
    value, _ = problem.least_squares().loss(latent)
    np.testing.assert_allclose(program.call(arguments)["loss"], value, rtol=1e-12)  # rounding
    h, name = 1e-6, next(iter(arguments))
    up, down = (program.call({**arguments, name: arguments[name] + by})["loss"] for by in (h, -h))
    slope = jax.grad(lambda u: program.call({**arguments, name: u})["loss"])(arguments[name])
    # Differences: truncation of order h^2, and rounding of the loss over h.
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["experiment=dye", "what=roll"], "what=roll: expected one of rollout, step, loss."),
        (["experiment=dye", "vjp_order=3"], "vjp_order=3: expected 0, 1 or 2"),
        (["experiment=dye", "platforms=[gpu]"], "platforms=['gpu']: expected some of cpu, cuda, rocm, tpu."),
        (["experiment=dye", "batch=2"], "batch=2: expected the name of an axis, such as b."),
        (["experiment=dye", "what=loss"], "what=loss: expected an experiment with a section inverse"),
        (["experiment=lennard_jones", "what=step"], "what=step: expected a model of fields"),
        (["nowhere"], "nowhere: expected the folder of a run"),
    ],
)
def test_what_cannot_be_exported_is_told(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_exported_by_its_folder(tmp_path, capsys):
    run = dye(f"output.root={tmp_path}", "output.report=false", "output.animation=false").run()
    assert main([str(run.folder)]) == 0
    assert "rollout of advection_diffusion" in capsys.readouterr().out
    assert json.loads((run.folder / "export" / "meta.json").read_text())["configuration"]["grid"]["shape"] == [12, 10]
