"""A profile of a few steps: names of parts in compiled programs, times that add up, and what is written of them."""

import json

import jax
import jax.numpy as jnp
import pytest

import simjax as sj
from simjax.driver.loop.profile import parts_of_operations, times_by_part
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.build import plan_frames
from simjax.driver.start.mesh_choice import with_devices
from simjax.jaxpr.jaxpr_parts import BETWEEN, OTHER, PARTS, part, part_of

HLO = """HloModule jit_step, is_scheduled=true
  %pad.1 = f32[8]{0} fusion(%u), kind=kLoop, metadata={op_name="jit(step)/tendency/vmap(halo exchange)/pad" stack=1}
  %mul = f32[8]{0} multiply(%pad.1, %u), metadata={op_name="jit(step)/tendency/mul"}
  %copy.2 = f32[8]{0} copy(%mul)
  %add = f32[8]{0} add(%u, %u), metadata={op_name="jit(step)/add"}
  ROOT %loop.3 = (s32[], f32[8]{0}) while(%tuple), body=%b, metadata={op_name="jit(step)/forces/while"}
"""


def event(operation, begin, length, run=1, module="jit_step"):
    about = {"hlo_module": module, "hlo_op": operation, "run_id": run}
    return {"ph": "X", "name": operation, "ts": begin, "dur": length, "args": about}


def test_the_innermost_part_is_found_below_transformations():
    assert part_of("jit(step)/tendency/transpose(jvp(halo exchange))/mul") == "halo exchange"
    assert part_of("jit(step)/while/body/closed_call/tendency/mul") == "tendency"
    assert part_of("jit(step)/while/body/mul") is None and part_of("") is None


def test_operations_without_a_name_belong_with_what_they_read():
    parts, containers = parts_of_operations(HLO)
    assert parts == {"pad.1": "halo exchange", "mul": "tendency", "copy.2": "tendency", "add": None, "loop.3": "forces"}
    assert containers == {"loop.3"}


def test_the_time_of_every_instant_is_shared_by_what_runs_then():
    """Two calls of 12 and 2 microseconds: what runs at once shares its time, a loop has what nothing in it takes."""
    events = [
        event("pad.1", 0, 4),
        event("mul", 2, 2),
        event("add", 5, 1),
        event("loop.3", 7, 5),
        event("mul", 8, 2),
        event("mul", 100, 2, run=2),
        event("mul", 0, 50, module="jit_other"),
        {"ph": "M", "name": "thread"},
    ]
    times = times_by_part(events, "jit_step", HLO)
    expected = {"halo exchange": 3.0, "tendency": 1.0 + 2.0 + 2.0, OTHER: 1.0, "forces": 3.0, BETWEEN: 1.0 + 1.0}
    assert times == {name: pytest.approx(1e-6 * value) for name, value in expected.items()}


def compiled_step(name, *changes):
    config = with_devices(sj.load(name, list(changes)).config)
    programs = compiled_run(config)
    state, clock = programs.start()
    program = programs.single_step(plan_frames(config, 1).schedule)
    given = programs.values, programs.files, state, clock, jnp.asarray(1, jnp.int32)
    return program.lower(*given).compile().as_text()


@pytest.mark.parametrize(
    "name, changes, expected",
    [
        ("fluid", ["grid.shape=[16,16]"], {"halo exchange", "projection", "pressure solve", "time step limit"}),
        ("lennard_jones", ["particles.count=108", "box.upper=[5.04,5.04,5.04]"], {"neighbor list", "sums over pairs"}),
    ],
)
@pytest.mark.slow
def test_parts_are_named_in_compiled_programs(name, changes, expected):
    found = {*parts_of_operations(compiled_step(name, *changes))[0].values()}
    assert expected <= found <= {None, *PARTS}


def test_names_of_parts_change_no_program():
    def squared(u):
        return u * u

    named = part("forces")(squared)
    assert jax.jit(squared).lower(1.0).as_text() == jax.jit(named).lower(1.0).as_text().replace("named", "squared")


@pytest.mark.slow
def test_a_profiled_run_is_the_same_run_and_tells_where_its_time_goes(tmp_path):
    few = ["grid.shape=[16,16]", "time.end=0.04", "output.animation=false", f"output.root={tmp_path}"]
    plain = sj.load("fluid", [*few, "output.report=false", "output.folder=plain"]).run()
    folder = sj.load("fluid", [*few, "output.folder=profiled", "profile=true"]).run().folder
    assert (folder / "metrics.jsonl").read_text() == (plain.folder / "metrics.jsonl").read_text()
    found = json.loads((folder / "profile.json").read_text())
    assert {*found} == {
        "device",
        "steps",
        "seconds",
        "seconds_untraced",
        "parts",
        BETWEEN,
        "bytes",
        "flops",
        "bytes_per_second",
        "flops_per_second",
        "copy_bytes_per_second",
        "share_of_copy",
        "flops_per_byte",
        "peak_bytes",
    }
    # The parts are those of the traced calls, by construction: but for rounding.
    assert sum(found["parts"].values()) + found[BETWEEN] == pytest.approx(found["seconds"], rel=1e-12)
    assert found["parts"]["pressure solve"] > 0 and {*found["parts"]} <= {*PARTS, OTHER}
    assert found["steps"] == 3 and found["bytes"] > 0 and found["copy_bytes_per_second"] > 0
    traces = {path.suffix for path in (folder / "profile").rglob("*") if path.is_file()}
    assert traces == {".gz", ".pb"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Where a step&#x27;s time goes" in page and "pressure solve" in page and "share of a copy" in page
    assert "profile: a step takes" in (folder / "run.log").read_text()
