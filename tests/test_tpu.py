"""Compiled for a TPU v5e slice of 4 x 4 that is not there: exchanges are asynchronous, nothing is gathered."""

import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec as P
import simjax as sj
from simjax.models import advection_diffusion, incompressible
from simjax.stepping import Clock, Schedule, advance

devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:4x4")
mesh = topologies.make_mesh(devices, (4, 4), ("x", "y"))
domain = sj.decompose(sj.Grid((256, 256)), mesh, overlap=sys.argv[2] == "overlap")
sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
field = jnp.zeros((256, 256), jnp.float32)
if sys.argv[1] == "advection_diffusion":
    model = advection_diffusion.AdvectionDiffusion(domain, sides)
    params = advection_diffusion.Params(jnp.float32(1e-3), jnp.ones(2, jnp.float32))
    state = advection_diffusion.State(field)
else:
    model = incompressible.Incompressible(domain, sides)
    params, state = incompressible.Params(jnp.float32(1e-3), jnp.float32(0)), incompressible.State((field, field))
clock = Clock.zero(jnp.float32)
state_specs, params_specs = model.partition_specs(state, params)
clock_specs = jax.tree.map(lambda _: P(), clock)

def run(params, state, clock):
    # Two steps of forward Euler make one loop body: all that is counted is in it.
    return advance(model, sj.INTEGRATORS["euler"], params, state, clock, Schedule(1.0, dt=0.1), steps=10, until=1)

specs = (params_specs, state_specs, clock_specs)
shapes = jax.tree.map(
    lambda leaf, spec: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)),
    (params, state, clock), specs)
program = sj.distribute(run, mesh, in_specs=specs, out_specs=(state_specs, clock_specs))
print(program.lower(*shapes).compile().as_text())
"""


@pytest.mark.parametrize(
    ("model", "overlap", "permutes"),
    [
        # One exchange per step, two messages for each of two axes, two steps in the body.
        ("advection_diffusion", "plain", 8),
        ("advection_diffusion", "overlap", 8),
        # Three exchanges per step. XLA may drop messages that would fill corners that no stencil reads.
        pytest.param("incompressible", "plain", 24, marks=pytest.mark.slow),
    ],
)
def test_exchanges_are_asynchronous(model, overlap, permutes):
    environment = {
        **{key: value for key, value in os.environ.items() if key != "XLA_FLAGS"},
        "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-16", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, model, overlap], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    starts = len(re.findall(r"= \S.* collective-permute-start\(", done.stdout))
    assert not re.search(r"\scollective-permute\(", done.stdout), "a synchronous exchange"
    assert starts == len(re.findall(r"collective-permute-done\(", done.stdout))
    assert permutes - 2 <= starts <= permutes
    assert "all-gather" not in done.stdout
