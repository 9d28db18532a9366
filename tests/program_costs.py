"""What the programs of a step cost, by their compiled text: a guard against a change that makes them dearer.

    python tests/program_costs.py            compare with tests/reference/program_costs.json
    python tests/program_costs.py --write    write that file anew

Nothing is run or timed. Figures of one step on one device: collectives by kind; `sent`, bytes given to them; `bytes`
of memory read and written, each value once; `temporaries`, bytes of memory beside the state; and `instructions` of the
whole program. They are read after optimisation, as fusion is most of what makes a step cheap.

What does not depend on the machine: grids are so small that XLA cuts no loop among cores, and what it does for one kind
of processor comes below this text. On one core (`taskset -c 0`), compiled for the oldest processors
(`--xla_cpu_max_isa=SSE4_2`), two of these programs had the same figures but for `temporaries`, which were 2 and 8 %
less: they follow the order of instructions. All but collectives depend on the version of jax, whose passes
fuse in other ways: with another jax than the file's only collectives are compared, which simjax itself asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).parent / "reference" / "program_costs.json"
# Figures of one jax come back to the last byte, but for temporaries; so much may change with a small edit.
TOLERANCES = {"sent": 0.05, "bytes": 0.05, "instructions": 0.05, "temporaries": 0.15}
# Machine code is not wanted, so it is made quickly.
FLAGS = " ".join(
    (
        "--xla_force_host_platform_device_count=8",
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
    )
)
EIGHT = ("mesh.x=2", "mesh.y=4")
PLANE, LAYER = "grid.shape=[64,64]", "physics.layer_cells=4"
SIZES = "ensemble.vary={parameters.size: {linspace: [0.04, 0.05]}}"  # of the start: steps are those of equal members
STEPS: dict[str, tuple[str, ...]] = {
    "flow": ("fluid", PLANE),
    "flow on 2x4": ("fluid", PLANE, *EIGHT),
    "scalar on 2x4": ("dye", PLANE, *EIGHT),
    "gas": ("sod",),
    "gas on 2x4": ("shock_bubble", "grid.shape=[32,32]", *EIGHT),
    "waves": ("layered_medium", PLANE, LAYER),
    "waves on 2x4": ("layered_medium", PLANE, LAYER, *EIGHT),
    "spectral flow on 2x4": ("turbulence_2d", PLANE, *EIGHT),
    "ensemble": ("gray_scott", "grid.shape=[32,32]", "ensemble.size=8", SIZES),
    "particles": ("lennard_jones",),
    "plasma": ("two_stream",),
}
GRADIENT = "gradient of a flow"
GRADIENT_STEPS = 4


def steps_of(experiment: str, *overrides: str) -> dict[str, Any]:
    """Costs of one step of a run."""
    import jax

    import simjax as sj
    from simjax.inspect.hlo import parse
    from simjax.inspect.run_program import compile_for, set_up_for
    from simjax.inspect.target import Target
    from simjax.inspect.time_estimate import Estimator

    config = sj.load(experiment, list(overrides)).config
    target = Target.read(f"cpu:{config.mesh.devices}")
    set_up_for(config, target)
    # Programs before this one may have set it.
    jax.config.update("jax_enable_x64", config.precision == "float64")
    program = compile_for(config, target)
    parsed = parse(program.text)
    tally, _ = Estimator(parsed, None, program.network).step(program.steps)
    return costs(parsed, tally, program.memory.temporaries)


def gradient_of(experiment: str, *overrides: str) -> dict[str, Any]:
    """Costs of value and gradient of a short run by all its unknowns."""
    import jax

    import simjax as sj
    from simjax.certificate.prepared_objective import prepared_objective
    from simjax.inspect.hlo import parse
    from simjax.inspect.links import Switch
    from simjax.inspect.time_estimate import Estimator

    objective = prepared_objective(sj.load(experiment, list(overrides)), steps=GRADIENT_STEPS, devices=1)
    function = jax.value_and_grad(objective.on({}, "two_level"))
    compiled = jax.jit(function).lower(objective.start).compile()
    parsed = parse(compiled.as_text())
    tally = Estimator(parsed, None, Switch(1)).tally(parsed[parsed.entry])
    return costs(parsed, tally, compiled.memory_analysis().temp_size_in_bytes)


def costs(program, tally, temporaries: int) -> dict[str, Any]:
    """The figures of a program."""
    collectives: Counter[str] = Counter()
    for one in tally.exchanges:
        collectives[one.kind] += one.count
    return {
        "collectives": dict(sorted(collectives.items())),
        "sent": sum(one.count * one.bytes for one in tally.exchanges),
        "bytes": tally.work.bytes,
        "temporaries": temporaries,
        "instructions": sum(len(part.instructions) for part in program.computations.values()),
    }


def measured(names: list[str]) -> dict[str, Any]:
    """Version of jax and costs of the programs, found in this process, which has eight devices."""
    import jax

    def of(name: str) -> dict[str, Any]:
        return gradient_of("fluid", PLANE) if name == GRADIENT else steps_of(*STEPS[name])

    return {"jax": jax.__version__, "programs": {name: of(name) for name in names}}


def differences(
    found: Mapping[str, Any], expected: Mapping[str, Any], tolerances: Mapping[str, float] = TOLERANCES
) -> Iterator[str]:
    """A sentence for each figure that is not as it was: collectives exactly, the rest of the same jax to a tolerance.

    What got cheaper is told as well: kept as it was, the file would let it grow again.
    """
    for name, now in found["programs"].items():
        then = expected["programs"].get(name)
        if then is None:
            yield f"{name} is not in the file"
            continue
        if now.get("collectives") != then.get("collectives"):
            yield f"{name}: collectives {now.get('collectives')}, were {then.get('collectives')}"
        if found["jax"] != expected["jax"]:
            continue
        for figure, tolerance in tolerances.items():
            if abs(now[figure] - then[figure]) > tolerance * then[figure]:
                yield f"{name}: {figure} {now[figure]:g}, were {then[figure]:g} ({now[figure] / then[figure] - 1:+.1%})"


def in_a_process(names: list[str]) -> dict[str, Any]:
    """`measured` in a process of its own, as devices and flags are read when jax starts."""
    return told_by(__file__, names, {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS})


def told_by(script: str, names: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Figures of programs that a script prints last when it is started with their names."""
    command = [sys.executable, script, "--names", *names]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=ROOT
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--names", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.names:
        print(json.dumps(measured(options.names)))
        return 0
    found = in_a_process([*STEPS, GRADIENT])
    if options.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    changed = list(differences(found, json.loads(FILE.read_text())))
    print("\n".join([*changed, f"{len(found['programs'])} programs, {len(changed)} differences"]))
    return len(changed)


if __name__ == "__main__":
    raise SystemExit(main())
