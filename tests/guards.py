"""What a change of the shell must leave as it is: the configuration and the programs of every shipped experiment.

    python tests/guards.py            compare with tests/reference/guards.json
    python tests/guards.py --write    write that file anew

A configuration is compared as `--cfg job` prints it. A program is one step, the start, or what is observed, lowered for
one CPU device on a small grid; it is compared without the names of its functions. Digests belong to one version of jax.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).parent / "reference" / "guards.json"
CELLS = {1: 32, 2: 16, 3: 12}
FINER = {"turbulence_2d": 32}  # for a band of forced waves
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_names(program: str) -> str:
    """Text of StableHLO whose functions are called by numbers in the order in which they appear."""
    numbers: dict[str, str] = {}
    return re.sub(r"@[\w.\"]+", lambda name: numbers.setdefault(name[0], f"@f{len(numbers)}"), program)


def programs(experiment: str) -> Iterator[tuple[str, str]]:
    """Name and text of the programs of an experiment."""
    import jax
    import jax.numpy as jnp

    from simjax.config import load_config
    from simjax.driver.compiled_run import compiled_run
    from simjax.stepping.simulate import Schedule

    config = load_config(experiment)
    if not config.schema.of_particles and not experiment.startswith(("inverse", "from_file")):
        shape = [min(n, FINER.get(experiment, CELLS[config.ndim])) for n in config.grid_of_fields().shape]
        layer = ["physics.layer_cells=4"] if hasattr(config.physics, "layer_cells") else []
        config = load_config(experiment, [f"grid.shape={shape}".replace(" ", ""), *layer])
    jax.config.update("jax_enable_x64", config.precision == "float64")
    compiled = compiled_run(config)
    time = config.time
    schedule = Schedule(time.end, **({"dt": time.dt} if time.dt else {"courant": time.courant, "max_steps": 1000}))
    given, state = (compiled.values, compiled.files), compiled.template(compiled.room())
    when, until = jax.ShapeDtypeStruct((), compiled.dtype), jax.ShapeDtypeStruct((), jnp.int32)
    members = jax.ShapeDtypeStruct((() if compiled.members is None else (compiled.members,)), jnp.int32)
    yield "start", compiled.starter().lower(*given, members).as_text()
    yield "step", compiled.advance(schedule, 1).lower(*given, *state, until).as_text()
    yield "observe", compiled.observe().lower(*given, *state, when).as_text()


def guards(experiment: str) -> dict[str, str]:
    """Digests of one experiment, found in this process."""
    command = [sys.executable, "-m", "simjax.run", f"experiment={experiment}", "--cfg", "job"]
    composed = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    return {"configuration": digest(composed), **{n: digest(without_names(text)) for n, text in programs(experiment)}}


def main() -> int:
    shipped = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(guards(options.only)))
        return 0
    command = [sys.executable, __file__, "--only"]

    def one(experiment: str) -> dict[str, str]:
        done = subprocess.run([*command, experiment], capture_output=True, text=True, env=ENVIRONMENT)
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"error": done.stderr[-500:]}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(shipped, pool.map(one, shipped), strict=True))
    if options.write:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    expected = json.loads(FILE.read_text())
    changed = [(e, k) for e in {**expected, **found} for k in {**expected.get(e, {}), **found.get(e, {})}
               if expected.get(e, {}).get(k) != found.get(e, {}).get(k)]  # fmt: skip
    for experiment, what in changed:
        print(f"{experiment}: {what} is {found.get(experiment, {}).get(what)}")
    print(f"{len(found)} experiments, {len(changed)} differences")
    return len(changed)


if __name__ == "__main__":
    raise SystemExit(main())
