"""Kernels compiled for a TPU v5e and for an H100 that are not there: machine code, in one call, with no copy before it
where arrays reach as far as the blocks; and a step of every model with its derivative.
"""

import os
import subprocess
import sys

import pytest
from paths import ROOT, SUPPORT

DEVICE = """
import re
import sys
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from simjax.stencil.kernels.launch import launch
from simjax.stencil.kernels.operands import Operand
from stencil_programs import Formula, diffusion, shapes_of, staggered, unpadded, wide

jax.config.update("jax_enable_x64", True)  # indices stay of 32 bits
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
target, config = sys.argv[1:]
if target == "tpu":
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
else:
    devices = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=config, topology="1x1x1")
mesh = Mesh(devices.devices[:1], ("x",))
one = NamedSharding(mesh, P())

def report(name, function, *shapes):
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=one), shapes)
    mapped = jax.shard_map(function, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    compiled = jax.jit(mapped).lower(*shapes).compile()
    kernel = 'custom_call_target="' + {"tpu": "tpu_custom_call", "gpu": "mosaic_gpu"}[target]
    calls = [line for line in compiled.as_text().splitlines() if kernel in line]
    moved = sum(int(size) for line in calls for size in re.findall(r'"bytes_accessed":"(\\d+)"', line))
    print(name, len(calls), compiled.memory_analysis().temp_size_in_bytes, moved)
"""

PROGRAM = """
def kernel(program, interior, tile=None):
    return lambda *arrays: launch(program, arrays, interior, target=target, tile=tile)

f32 = jnp.dtype("float32")
for name, program, interior in [
    ("diffusion-1d", diffusion(1), (100_003,)),
    ("diffusion-2d", diffusion(2), (1000, 1003)),
    ("diffusion-3d", diffusion(3), (65, 70, 131)),
    ("staggered-2d", staggered(2), (20, 30)),
    ("staggered-3d", staggered(3), (64, 64, 256)),
    ("bfloat16", diffusion(2, "bfloat16"), (512, 512)),
]:
    report(name, kernel(program, interior), *shapes_of(program, interior))

# A block that reaches as far as the copies: eight rows on a TPU, rows of 16 bytes on a GPU.
room = Formula((Operand(1, (8, 4), f32),), (f32,), diffusion(2).evaluate)
report("room", kernel(room, (512, 512)), *shapes_of(room, (512, 512)))

# Ghost lines beside the fields: nothing of their size is copied.
for name, program, interior in [
    ("beside-2d", staggered(2), (512, 512)), ("beside-3d", wide(3, 2), (65, 72, 256)),
]:
    shapes = jax.eval_shape(lambda *arrays: unpadded(program, arrays), *shapes_of(program, interior))
    report(name, lambda *arrays: launch(program, arrays, interior, target=target), *shapes)

members = jax.vmap(kernel(staggered(2), (64, 256)), in_axes=(0, None, None, 0, None, 0))
shapes = shapes_of(staggered(2), (64, 256))
report("members", members, *(
    jax.ShapeDtypeStruct((3, *s.shape), s.dtype) if k in (0, 3, 5) else s for k, s in enumerate(shapes)))
"""

STEPS = """
from cases import CASES
from simjax.core.domain import Domain
from simjax.integrators.table import INTEGRATORS

def single(x):
    return x.astype(jnp.float32) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

for case in CASES:
    if case.name not in names:
        continue
    params, state = jax.tree.map(single, (case.params(), case.initial_state()))
    model = jax.tree.map(lambda x: single(x) if isinstance(x, jax.Array) else x,
                         case.build(Domain(case.grid, implementation="pallas")))
    integrator = INTEGRATORS[case.integrator]

    def step(params, state):
        prepared = integrator.prepare(model, params, 1e-3)
        return integrator.step(model, jnp.float32(0), jnp.float32(1e-3), state, params, prepared)

    report(case.name, step, params, state)
    report(case.name + "-adjoint", lambda params, state: jax.vjp(step, params, state)[1](state), params, state)
"""

BLOCKED = """
from simjax.stepping.temporal_blocking import blocked
from simjax.core.boundary import PeriodicSide, SlipWall
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.integrators.table import INTEGRATORS
from simjax.models.scalar import advection_diffusion
from simjax.models.waves import acoustic

def several(build, integrator, params, state, shape, steps):
    domain = Domain(Grid(shape), implementation="pallas", steps_per_exchange=steps)
    model, scheme = build(domain), INTEGRATORS[integrator]

    def advance(params, state):
        prepared = scheme.prepare(model, params, 1e-3)
        block = blocked(model, scheme, params, prepared, state, steps, jnp.dtype("float32"))
        times = jnp.zeros(steps, "float32"), jnp.full(steps, 1e-3, "float32"), jnp.arange(steps, dtype="int32")
        return block.advance(state, times)

    return advance, params, state

def field(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")

def heat(shape, integrator, steps, side=PeriodicSide()):
    params = advection_diffusion.Params(field(), field(len(shape)))
    state = advection_diffusion.State(field(*shape))
    build = lambda domain: advection_diffusion.AdvectionDiffusion(domain, [(side, side)] * len(shape))
    return several(build, integrator, params, state, shape, steps)

def sound(shape, steps):
    build = lambda domain: acoustic.Acoustic(domain, [(PeriodicSide(), PeriodicSide())] * len(shape))
    params = acoustic.Params(field(), field(), None, ())
    nothing = (None,) * len(shape)
    state = acoustic.State(field(*shape), (field(*shape),) * len(shape), nothing, nothing, field())
    return several(build, "leapfrog", params, state, shape, steps)

report("heat-2d", *heat((2048, 4096), "euler", 1))
report("heat-2d-four-steps", *heat((2048, 4096), "euler", 4))
report("heat-2d-four-stages", *heat((2048, 4096), "rk4", 1))
report("heat-2d-walls", *heat((1024, 1024), "euler", 2, SlipWall()))
report("heat-3d", *heat((256, 256, 256), "euler", 1))
report("heat-3d-two-steps", *heat((256, 256, 256), "euler", 2))
report("heat-3d-four-steps", *heat((256, 256, 256), "euler", 4))
report("sound-3d", *sound((256, 256, 256), 1))
if target == "tpu":  # four fields with four cells around a tile do not fit a GPU's shared memory
    report("sound-3d-two-steps", *sound((256, 256, 256), 2))
"""

# Kernels of one step: one for each application of a stencil, such as a stage's.
KERNELS = {
    "advection-1d": 1,
    "advection-2d-walls": 2,
    "advection-3d-walls": 1,
    "flow-2d-periodic": 3,
    "gas-1d-weno": 1,
    "acoustic-3d": 3,
    "maxwell-3d": 4,
    "burgers-1d-weno5": 3,
    "transport-2d-implicit": 1,
    "passive-scalar-2d-walls": 4,
}

# What XLA must know of a device to compile for it (openxla/xla, xla/backends/gpu/target_config/specs/h100_sxm.txtpb).
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 12 } runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def compiled(program, target, config=""):
    """(custom calls, bytes of temporary memory, bytes they move) of each function, compiled in a process of its own."""
    environment = {
        **{key: value for key, value in os.environ.items() if key != "XLA_FLAGS"},
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", DEVICE + program, target, config], env=environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: tuple(map(int, figures)) for name, *figures in rows}


# What compiles for GPUs comes with another package: pip install -e ".[test,compile-gpu]".
GPU = pytest.param("gpu", marks=pytest.mark.long)


@pytest.mark.parametrize("target", [pytest.param("tpu", marks=pytest.mark.slow), GPU])
def test_kernels_compile(target):
    found = compiled(PROGRAM, target, H100 if target == "gpu" else "")
    assert len(found) == 10
    assert {name: calls for name, (calls, *_) in found.items()} == dict.fromkeys(found, 1)
    # Copies would be one and three of a field of 512^2; and two of 65 x 72 x 256, whose last axis' ghost lines, two on
    # each side of 256 columns, are made into rows.
    assert found["room"][1] < 512 * 512 * 4 / 100
    assert found["beside-2d"][1] < 3 * 512 * 512 * 4 / 20
    assert found["beside-3d"][1] < 2 * 65 * 72 * 256 * 4 / 4


@pytest.mark.parametrize("target", [pytest.param("tpu", marks=pytest.mark.slow), GPU])
def test_steps_of_models_and_their_derivatives_compile(target):
    found = compiled(f"names = {list(KERNELS)}\n" + STEPS, target, H100 if target == "gpu" else "")
    assert {name: calls for name, (calls, *_) in found.items() if not name.endswith("-adjoint")} == KERNELS
    assert all(found[f"{name}-adjoint"][0] for name in KERNELS)


@pytest.mark.parametrize("target", [pytest.param("tpu", marks=pytest.mark.slow), GPU])
def test_steps_between_exchanges_compile_to_one_kernel(target):
    found = compiled(BLOCKED, target, H100 if target == "gpu" else "")
    assert {name: calls for name, (calls, *_) in found.items()} == dict.fromkeys(found, 1)
    plane, box = 2048 * 4096 * 4, 256**3 * 4
    # Ghost lines, transposed, padded to registers or to 16 bytes, but no copy of a field.
    for name, size in (("heat-2d", plane), ("heat-2d-four-steps", plane), ("heat-3d", box), ("heat-3d-two-steps", box)):
        assert found[name][1] < size / 16
    assert found["sound-3d"][1] < 4 * box / 16
    if target == "tpu":
        # One read and one write of all fields, whatever the stages and steps, and what is brought of ghost cells: at
        # most a tenth more, but for two steps of sound.
        for name in ("heat-2d", "heat-2d-four-steps", "heat-2d-four-stages"):
            assert 2 * plane < found[name][2] < 1.1 * 2 * plane
        for name in ("heat-3d", "heat-3d-two-steps", "heat-3d-four-steps"):
            assert 2 * box < found[name][2] < 1.1 * 2 * box
        # Two steps want four planes with their ghost planes at once: 71 MiB of the 128 that a v5e has.
        assert 8 * box < found["sound-3d"][2] < 1.08 * 8 * box
        assert 8 * box < found["sound-3d-two-steps"][2] < 1.14 * 8 * box
