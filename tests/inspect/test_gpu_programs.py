"""Programs compiled for an H100 that is not there: how many kernels they start, and what they move."""

import json
import os
import subprocess
import sys

import pytest
from paths import ROOT

PROGRAM = """
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from simjax.core.boundary import PeriodicSide
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.inspect.compiled import devices_of
from simjax.inspect.hlo import parse
from simjax.inspect.target import Target
from simjax.jaxpr.platform import tracing_for
from simjax.models.gas.compressible import Compressible, Params, State
from simjax.ops.gas import Scheme

device = devices_of(Target.read("h100:1"))[0]
there = NamedSharding(Mesh(np.asarray([device]), ("x",)), P())
field = jax.ShapeDtypeStruct((128, 128, 128), "float32", sharding=there)
number = jax.ShapeDtypeStruct((), "float32", sharding=there)
scheme = Scheme(*json.loads(sys.argv[1]))
model = Compressible(Domain(Grid(field.shape)), [(PeriodicSide(), PeriodicSide())] * 3, scheme)
tendency = jax.jit(lambda state, params: model.rhs(jnp.float32(0), state, params))
with tracing_for(device.platform):
    lowered = tendency.lower(State(field, (field,) * 3, field), Params(number))
program = parse(lowered.compile().as_text())
entry = program[program.entry]
kernels = [one for one in entry.instructions if one.op in ("fusion", "copy", "concatenate", "dynamic-update-slice")]
shapes = [shape for one in kernels for shape in (*one.shapes, *entry.operand_shapes(one))]
print(json.dumps({"kernels": len(kernels), "gb": sum(shape.bytes for shape in shapes) / 1e9}))
"""


# What compiles for GPUs comes with another package: pip install -e ".[test,compile-gpu]".
@pytest.mark.parametrize(
    ("scheme", "kernels", "gb"),
    [
        # 12 and 1.30 with jax 0.12; 120 and 16.6 as a CPU has it.
        pytest.param(("weno5", "characteristic", "hllc"), 20, 3.0, id="gpu-weno"),
        # 12 and 1.08 with jax 0.12; 70 and 9.9 as a CPU has it.
        pytest.param(("mc", "primitive", "hllc"), 14, 1.2, id="gpu-mc"),
    ],
)
@pytest.mark.long
def test_a_gas_takes_few_kernels_and_bytes(scheme, kernels, gb):
    environment = {
        **{key: value for key, value in os.environ.items() if key != "XLA_FLAGS"},
        "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, json.dumps(scheme)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kernels"] <= kernels and found["gb"] <= gb, found
