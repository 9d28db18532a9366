"""What a step of particles asks of a GPU that is not there: launches and bytes of the program compiled for it."""

import pytest
from gpu_programs import printed

pytestmark = pytest.mark.long

# One Lennard-Jones liquid, cutoff 2.5 and skin 0.45, of which every particle has room for 140 partners.
PROGRAM = """
import dataclasses
import jax
import jax.numpy as jnp
from gpu_programs import kernels, moved
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from simjax.core.domain import Domain
from simjax.inspect.run_program import devices_of
from simjax.inspect.hlo import parse
from simjax.inspect.target import Target
from simjax.jaxpr.platform import tracing_for
from simjax.models.molecular.molecular_dynamics import MolecularDynamics, Params
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.particles.cells import Cells, cells_for
from simjax.particles.neighbor_policy import NeighborPolicy

ROWS, COUNT = 140, 32_000
f32 = jnp.dtype("float32")
length = (COUNT / 0.8442) ** (1 / 3)
cells = Cells(Domain(cells_for((0.0,) * 3, (length,) * 3, 2.95, (True,) * 3)), 40, (True,) * 3)
model = MolecularDynamics(cells, NeighborPolicy(2.5, 0.45, ROWS, COUNT), LennardJones(), 10)
one = jnp.ones((), f32)
params = Params((one, one), jnp.ones((1,), f32))
mesh = Mesh(devices_of(Target.read("h100:1"))[:1], ("x",))
here = NamedSharding(mesh, PartitionSpec())

def report(name, function, *shapes):
    shapes = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=here), shapes)
    program = parse(jax.jit(function).lower(*shapes).compile().as_text())
    entry = program[program.entry]
    lines = kernels(entry)
    loops = len([line for line in lines if line.op == "while"])
    print(name, len(lines), loops, moved(entry) / (COUNT * ROWS * 4))

def start(position):
    return model.state_from(position, position, jnp.zeros((COUNT,), jnp.int32), params)[0]

def force(state, arrangement):
    return model.system(state, params, arrangement).forces(state)

def pulled(state, arrangement, cotangent):
    def of(position):
        return force(dataclasses.replace(state, position=position), arrangement)
    return jax.vjp(of, state.position)[1](cotangent)

with tracing_for("gpu"):
    state = jax.eval_shape(start, jax.ShapeDtypeStruct((3, COUNT), f32))
    arrangement = jax.eval_shape(lambda state: model.arrange(state, params), state)[1]
    report("list", lambda state: model.arrange(state, params), state)
    report("force", force, state, arrangement)
    report("step", lambda *a: model.step(0, 0.0, jnp.float32(0.005), a[0], params, a[1]), state, arrangement)
    report("gradient", pulled, state, arrangement, state.force)
"""


# Masses that all attract each other, four million pairs.
DIRECT = """
import jax
import jax.numpy as jnp
from gpu_programs import kernels, moved
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from simjax.core.domain import Domain
from simjax.grid import Grid
from simjax.inspect.run_program import devices_of
from simjax.inspect.hlo import parse
from simjax.inspect.target import Target
from simjax.jaxpr.platform import tracing_for
from simjax.models.gravity.force_solvers import DirectSummation, Masses, Params
from simjax.particles.cells import Cells

COUNT = 2000
cells = Cells(Domain(Grid((1, 1, 1), (0,) * 3, (1,) * 3)), COUNT, (False,) * 3)
here = NamedSharding(Mesh(devices_of(Target.read("h100:1"))[:1], ("x",)), PartitionSpec())

def of(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct((*shape, *cells.shape), dtype, sharding=here)

def field(position, ids, mass):
    one = jnp.ones((), jnp.float32)
    state = Masses(position, jnp.zeros_like(position, jnp.int32), ids, mass)
    return DirectSummation().field(cells, state, Params(one, one), None)["acceleration"]

with tracing_for("gpu"):
    text = jax.jit(field).lower(of((3,)), of((), jnp.int32), of(())).compile().as_text()
entry = parse(text)[parse(text).entry]
print(len(kernels(entry)), moved(entry) / (4 * COUNT))
"""


def test_a_direct_sum_stores_nothing_of_a_pair():
    launches, numbers = printed(DIRECT)[-1].split()
    # What is formed once of each particle, the sums, and their components in one array.
    assert int(launches) <= 4
    # Numbers for each particle: five of its own and three sums, some of them twice. Stored for each pair it was 12 000.
    assert float(numbers) < 40


def test_a_step_of_a_liquid_is_a_few_launches_and_reads_its_list_once():
    found = {name: tuple(map(float, figures)) for name, *figures in (line.split() for line in printed(PROGRAM))}
    assert set(found) == {"list", "force", "step", "gradient"}
    assert not any(loops for _, loops, _ in found.values())
    launches = {name: int(count) for name, (count, *_) in found.items()}
    # A list serves ten steps.
    assert launches["force"] <= 5 and launches["step"] + launches["list"] / 10 <= 20
    assert launches["gradient"] <= 6
    # In lengths of the list: it is read once, and what else a pass reads and writes is a third of it.
    assert 1 < found["force"][2] < 1.3 and 1 < found["gradient"][2] < 2
