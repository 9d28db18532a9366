"""What the programs of a step cost on a GPU, by their text compiled for an H100 that is not there: the guard beside
`program_costs`, which is of processors.

    python tests/gpu_program_costs.py            compare with tests/reference/gpu_program_costs.json
    python tests/gpu_program_costs.py --write    write the figures of this version of jax anew

Nothing is run or timed. The compiler comes with the extra `compile-gpu`. Figures of one step on one device: `launches`
of kernels and copies, `bytes` of what each reads and writes, each value once, and `temporaries`, bytes of memory beside
the state. Of a gradient they are of a whole run of a few steps. They follow the version of jax, whose passes fuse in
other ways: the file has a set for each minor version on which it was written, and another one has nothing to compare
with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jax
from program_costs import differences, told_by

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).parent / "reference" / "gpu_program_costs.json"
# Figures of one jax come back to the last byte. A step of twenty launches may not get one more: a twentieth is less.
TOLERANCES = {"launches": 0.04, "bytes": 0.05, "temporaries": 0.15}
ABSENT = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
PLANE = "grid.shape=[64,64]"
FIXED = ("time.courant=null", "time.dt=1e-3")
WENO = ("physics.reconstruction=weno5", "physics.variables=characteristic", "physics.flux=hllc_all_speed")
MC = ("physics.reconstruction=mc", "physics.variables=primitive", "physics.flux=hllc")
BALL = "{ball:{center:[0.4,0.49],radius:0.1}}"
SIZES = "ensemble.vary={parameters.size: {linspace: [0.04, 0.05]}}"  # of the start: steps are those of equal members
STEPS: dict[str, tuple[str, ...]] = {
    "flow, rk4": ("kolmogorov", "grid.shape=[512,512]", "time.integrator=rk4", *FIXED),
    "flow, euler": ("kolmogorov", "grid.shape=[512,512]", "time.integrator=euler", *FIXED),
    "flow in a Fourier basis": ("turbulence_2d", PLANE),
    "gas, WENO5": ("shock_bubble", PLANE, *WENO),
    "gas, MC": ("shock_bubble", PLANE, *MC),
    "flow around a body": (
        "cylinder",
        "grid.shape=[160,80]",
        "coefficients.solid={ball:{center:[0.4,0.49],radius:0.1}}",
    ),
    "gas around a body": ("gas_cylinder", PLANE),
    "absorbed sound": ("layered_medium", "grid.shape=[128,128]"),
    "absorbed light": ("lens", "grid.shape=[128,128]"),
    "dye": ("dye", PLANE),
    "patterns, an ensemble": ("gray_scott", "grid.shape=[32,32]", "ensemble.size=8", SIZES),
    "liquid": ("lennard_jones",),
    "smoothed particles": ("taylor_green_sph",),
    "plasma": ("weibel",),
}
GRADIENT_STEPS = 4
# Of a gas in one dimension: the gradient of a plane takes XLA more than a minute.
GRADIENTS: dict[str, tuple[str, ...]] = {
    "gradient of a flow": ("fluid", PLANE),
    "gradient of absorbed sound": ("layered_medium", PLANE, "physics.layer_cells=4"),
    "gradient of a gas": ("sod", "grid.shape=[64]"),
}


def step_of(experiment: str, *overrides: str) -> dict[str, float]:
    """Costs of one step of a run."""
    import simjax as sj
    from simjax.inspect.hlo import parse
    from simjax.inspect.run_program import compile_for, set_up_for
    from simjax.inspect.target import Target
    from simjax.inspect.time_estimate import Estimator

    config, target = sj.load(experiment, list(overrides)).config, Target.read("h100")
    set_up_for(config, target)
    # Programs before this one may have set it.
    jax.config.update("jax_enable_x64", config.precision == "float64")
    program = compile_for(config, target)
    tally, _ = Estimator(parse(program.text), target.chip, program.network).step(program.steps)
    return costs(tally, program.memory.temporaries)


def gradient_of(experiment: str, *overrides: str) -> dict[str, float]:
    """Costs of value and gradient of a short run by all its unknowns, in double precision as certificates take it."""
    from jax.sharding import SingleDeviceSharding

    import simjax as sj
    from simjax.certificate.prepared_objective import prepared_objective
    from simjax.inspect.hlo import parse
    from simjax.inspect.links import Switch
    from simjax.inspect.run_program import devices_of
    from simjax.inspect.target import Target
    from simjax.inspect.time_estimate import Estimator
    from simjax.jaxpr.platform import tracing_for

    target = Target.read("h100")
    objective = prepared_objective(sj.load(experiment, list(overrides)), steps=GRADIENT_STEPS, devices=1)
    there = SingleDeviceSharding(devices_of(target)[0])
    start = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), objective.start)
    with tracing_for("gpu"):
        lowered = jax.jit(jax.value_and_grad(objective.on({}, "two_level"))).lower(start)
    compiled = lowered.compile()
    parsed = parse(compiled.as_text())
    tally = Estimator(parsed, target.chip, Switch(1)).tally(parsed[parsed.entry])
    return costs(tally, compiled.memory_analysis().temp_size_in_bytes)


def costs(tally, temporaries: int) -> dict[str, float]:
    """The figures of a program."""
    return {"launches": sum(tally.launches.values()), "bytes": tally.work.bytes, "temporaries": temporaries}


def measured(names: list[str]) -> dict[str, Any]:
    """Version of jax and costs of the programs, found in this process."""
    found = {}
    for name in names:
        begin = time.process_time()
        found[name] = gradient_of(*GRADIENTS[name]) if name in GRADIENTS else step_of(*STEPS[name])
        print(f"{name}: {time.process_time() - begin:.0f} CPU s", file=sys.stderr)
    return {"jax": jax.__version__, "programs": found}


def minor(version: str) -> str:
    """`0.10` of `0.10.1`."""
    return ".".join(version.split(".")[:2])


def in_a_process(names: list[str]) -> dict[str, Any]:
    """`measured` in a process of its own, as flags are read when jax starts."""
    environment = {**os.environ, **ABSENT}
    environment.pop("XLA_FLAGS", None)
    return told_by(__file__, names, environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--names", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.names:
        print(json.dumps(measured(options.names)))
        return 0
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    found, own = in_a_process([*STEPS, *GRADIENTS]), minor(jax.__version__)
    if options.write:
        FILE.write_text(json.dumps(dict(sorted({**kept, own: found}.items())), indent=1) + "\n")
        return 0
    if own not in kept:
        print(f"{FILE.name} has no figures of jax {own}: write them with --write")
        return 1
    changed = list(differences(found, kept[own], TOLERANCES))
    print("\n".join([*changed, f"{len(found['programs'])} programs, {len(changed)} differences"]))
    return len(changed)


if __name__ == "__main__":
    raise SystemExit(main())
