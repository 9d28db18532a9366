"""The reaction of bodies in incompressible flow: their pressure, and the force and torque of the fluid on them."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.models.flow.bodies.solid_geometry import inverse, neighbour_sum
from simjax.models.flow.bodies.solid_moments import moments, planes
from simjax.models.flow.bodies.solids import Immersion


class Reaction(eqx.Module):
    """Pressure, and the force and torque of the fluid on bodies, of the last stage; zero before the first one.

    pressure: kinematic, at cell centres. force: of the fluid on all bodies, over its density, one number per axis.
    torque: the same, one number in a plane and three in space. impulse, elapsed: integrals of the pressure and of one
    over the time since the last stage, zero after each. beside: the same integral of the force and the torque that the
    momentum lost in `reaction` does not hold, numbers in their order. step: the length of the last step.
    """

    pressure: Array
    force: tuple[Array, ...]
    torque: tuple[Array, ...]
    impulse: Array
    elapsed: Array
    beside: tuple[Array, ...]
    step: Array


def reaction(
    immersion: Immersion,
    domain: Domain,
    layout: FieldLayout,
    before: Reaction,
    free: Sequence[Array],
    joined: Sequence[Array],
    phi: Array,
    gradients: Sequence[Array],
    step: Array,
) -> Reaction:
    """The pressure, and the force and torque of the fluid on the bodies: the momentum that it loses to them in a stage.

    before: the reaction with the impulse of the pressure that acted in the stage. free, joined: the velocity before and
    after `join`. The gradient of that pressure acted everywhere and adds up to what is on the sides of the domain; that
    of phi acts on open faces only, so that its sum over the other ones is the bodies'. With `Reaction.beside` it is
    what the fluid does to them: the momentum of a periodic box changes by what drives the flow outside of bodies, less
    this force, to rounding. In bodies the pressure is that of the fluid beside.
    """
    rate, box, ndim = inverse(before.elapsed), immersion.box, domain.grid.ndim
    lost = [
        box.cut(u) - box.cut(v) - (1 - share) * box.cut(slope)
        for u, v, share, slope in zip(free, joined, immersion.projected, gradients, strict=True)
    ]
    acted = jnp.concatenate(moments(domain, layout, lost, immersion.faces.centre, box)) + jnp.stack(before.beside)
    force, torque = jnp.split(acted, [ndim])
    pressure = rate * (before.impulse + phi)
    within = jnp.where(box.cut(immersion.active), box.cut(pressure), 0.0)
    (around,) = box.changed_with_neighbours(domain, (pressure,), (within,), (layout,))
    pressure = box.put(pressure, within + immersion.fill * neighbour_sum(around, ndim))
    return Reaction(
        pressure,
        tuple(rate * force),
        tuple(rate * torque),
        jnp.zeros_like(phi),
        jnp.zeros_like(before.elapsed),
        jax.tree.map(jnp.zeros_like, before.beside),
        step,
    )


def with_more(reaction: Reaction, force: Array, torque: Array) -> Reaction:
    """The reaction with more of a force and a torque."""
    both = tuple(map(jnp.add, reaction.force, force)), tuple(map(jnp.add, reaction.torque, torque))
    return dataclasses.replace(reaction, force=both[0], torque=both[1])


def still(domain: Domain, like: Array) -> Reaction:
    """The reaction before any step."""
    ndim, zero = domain.grid.ndim, jnp.zeros((), like.dtype)
    force, torque = (zero,) * ndim, (zero,) * len(planes(ndim))
    return Reaction(jnp.zeros_like(like), force, torque, jnp.zeros_like(like), zero, (*force, *torque), zero)


def acting(reaction: Reaction, beside: Sequence[Array]) -> Reaction:
    """The rate of change of a reaction while its pressure acts, and `beside` the rate of `Reaction.beside`."""
    none = jax.tree.map(jnp.zeros_like, reaction)
    return dataclasses.replace(
        none, impulse=reaction.pressure, elapsed=jnp.ones_like(reaction.elapsed), beside=tuple(beside)
    )
