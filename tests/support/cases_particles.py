"""Small sets of particles for the tests that run every model in every layout.

What is compared is in the order of ids. Cells are 8 x 8, so that blocks have one cell and more along an axis, and
particles are fast enough to change cells and devices.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from case import Case
from jax.sharding import PartitionSpec
from particles import scattered

from simjax.grid import Grid
from simjax.models.gravity import gravity
from simjax.models.gravity.force_solvers import Params as Attracting
from simjax.models.gravity.force_solvers import ParticleMeshGravity
from simjax.models.molecular import molecular_dynamics
from simjax.models.molecular.pair_potentials import LennardJones
from simjax.models.plasma import electromagnetic, electrostatic
from simjax.models.sph import sph
from simjax.models.sph.initial_conditions import taylor_green
from simjax.models.sph.kernels import WendlandC2
from simjax.particles.cells import Cells, unpack
from simjax.particles.ewald import MeshSum
from simjax.particles.mesh import ParticleMesh
from simjax.particles.neighbor_policy import NeighborPolicy
from simjax.stepping.clock import Schedule
from simjax.stepping.simulate import simulate


@dataclass(frozen=True)
class ParticleCase(Case):
    """A model of particles; its first and last states are arrays `(..., particles)` on every device.

    `species` are given to the model beside these arrays, where it takes them.
    """

    species: Callable = lambda count: ()

    def specs(self, domain, state):
        return PartitionSpec(), jax.tree.map(lambda _: PartitionSpec(), self.params())

    def runner(self, domain):
        model = self.build(domain)

        def run(params, arrays):
            state = model.state_from(*arrays, *self.species(arrays[0].shape[-1]), params)[0]
            trajectory = simulate(
                model,
                None,
                params,
                state,
                self.schedule,
                frames=self.frames,
                checkpoint=self.checkpoint,
            )
            end, count = trajectory.state, arrays[0].shape[-1]
            found = model.cells.absolute(end.position), end.velocity
            position, velocity = (unpack(model.cells, end.ids, u, count) for u in found)
            # A run that failed has moved nothing: its state is the first one, and not compared with itself.
            failed = jnp.where(trajectory.clock.status == 0, 0.0, jnp.nan)
            final = {"position": position + failed, "velocity": velocity + failed}
            weight = 1 + 0.3 * jnp.sin(jnp.arange(count, dtype=jnp.int32).astype(position.dtype))
            return sum(jnp.sum(weight * jnp.sin(u)) for u in (*position, *velocity)) / count, final

        return run


SIDE = 8 * 1.3
_cells = Grid((8, 8), (0.0, 0.0), (SIDE, SIDE))
_schedule = Schedule(interval=0.06, dt=0.01)


def _held(domain, capacity=16):
    return Cells(domain, capacity, (True, True))


def _liquid(domain):
    return molecular_dynamics.MolecularDynamics(
        _held(domain), NeighborPolicy(1.0, 0.25, 16), LennardJones(), steps_per_arrangement=3
    )


def _molecules(model, params):
    position = jnp.asarray(scattered(90, (SIDE, SIDE), 0.75, seed=2))
    velocity = jnp.asarray(np.random.default_rng(3).normal(size=position.shape))
    return position, velocity


def _water(domain):
    kernel = WendlandC2(0.6, 2)
    skin = NeighborPolicy(kernel.support, 0.05, 24)
    return sph.WeaklyCompressibleSPH(_held(domain, 24), skin, kernel, SIDE / 16, steps_per_arrangement=2)


def _vortices(model, params):
    start = taylor_green(16, SIDE, jnp.asarray(1.0), jnp.asarray(1.0))
    return start.position, start.velocity, start.pressure


def _alike(count):
    return (jnp.zeros((count,), jnp.int32),)


def _in_turns(count):
    return (jnp.arange(count, dtype=jnp.int32) % 2,)


def _wet():
    return sph.Params(
        *(jnp.asarray(value) for value in (1.0, 10.0, 0.05)), jnp.zeros(2), *(jnp.asarray(v) for v in (0.02, 0.1))
    )


def _plasma(domain):
    return electrostatic.ElectrostaticPlasma(ParticleMesh(_held(domain), 2, "tsc"))


def _charges():
    return electrostatic.Params(jnp.asarray([-1.0, 0.8]), jnp.asarray([1.0, 3.0]), jnp.asarray(1.3))


def _ions(model, params):
    position = jnp.asarray(scattered(120, (SIDE, SIDE), 0.1, seed=4))
    velocity = jnp.asarray(3 * np.random.default_rng(5).normal(size=position.shape))
    return position, velocity


def _radiating(domain):
    return electromagnetic.ElectromagneticPlasma(_held(domain), 2)


def _fast_charges():
    """Charges whose speeds are near that of light, 4, in a uniform magnetic field."""
    permittivity = jnp.asarray(1.3)
    return electromagnetic.Params(
        jnp.asarray([-1.0, 0.8]),
        jnp.asarray([1.0, 3.0]),
        permittivity,
        jnp.asarray([0.3, -0.5, 0.8]),
        permeability=1 / (16 * permittivity),
    )


def _in_space(model, params):
    position, velocity = _ions(model, params)
    return position, jnp.concatenate([velocity, -velocity[:1] * 0.7])


def _stars(domain):
    return gravity.Gravity(_held(domain), ParticleMeshGravity(MeshSum(0.0, 2)))


def _masses(model, params):
    position, velocity = _ions(model, params)
    return position, velocity, 1 + 0.5 * jnp.sin(position[0])


CASES = (
    ParticleCase(
        "particles-liquid-2d",
        _cells,
        _liquid,
        lambda: molecular_dynamics.Params((jnp.asarray(0.8), jnp.asarray(0.6)), jnp.asarray([1.3])),
        _molecules,
        None,
        _schedule,
        partitioned=(),
        species=_alike,
    ),
    ParticleCase(
        "particles-water-2d",
        _cells,
        _water,
        _wet,
        _vortices,
        None,
        _schedule,
        partitioned=(),
        species=_alike,
    ),
    ParticleCase(
        "particles-plasma-2d",
        _cells,
        _plasma,
        _charges,
        _ions,
        None,
        _schedule,
        partitioned=(),
        species=_in_turns,
    ),
    ParticleCase(
        "particles-radiating-plasma-2d",
        _cells,
        _radiating,
        _fast_charges,
        _in_space,
        None,
        _schedule,
        partitioned=(),
        species=_in_turns,
    ),
    ParticleCase(
        "particles-stars-2d",
        _cells,
        _stars,
        lambda: Attracting(jnp.asarray(0.7), None),
        _masses,
        None,
        _schedule,
        partitioned=(),
    ),
)
