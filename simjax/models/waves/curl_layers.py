"""Absorbing layers of fields that the curls of others advance."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
from jax import Array

from simjax.models.waves.pml import AbsorbingLayer, Profile, Term
from simjax.models.waves.yee import Curl


class Layer(eqx.Module):
    """Layers along one axis: profiles on faces and at centres, and the medium of `Prepared` on their lines."""

    face: Profile
    center: Profile
    impermittivity: tuple[Array, ...]
    decay: tuple[Array, ...] | None
    impermeability: tuple[Array, ...]


def factor_of_curl(dt, component: int, medium: Any) -> Array:
    """Factor of a component of the curl of H in a drift; medium: of the whole block (`maxwell.Prepared`) or a layer."""
    factor = dt * medium.impermittivity[component]
    return factor if medium.decay is None else factor / (1 + 0.5 * dt * medium.decay[component])


def read_layers(layer: AbsorbingLayer, curls: Sequence[Curl], slopes) -> tuple[tuple, tuple]:
    """Terms of curls, and those on the lines of layers, None where there are none."""

    def read(u: Array, axis: int):
        return layer.read(u, axis) if layer.absorbs(axis) else (u, None)

    pairs = tuple(
        tuple(read(u, axis) for u, (axis, _, _) in zip(terms, curl, strict=True))
        for terms, curl in zip(slopes, curls, strict=True)
    )
    whole, lines = (tuple(tuple(pair[k] for pair in terms) for terms in pairs) for k in range(2))
    return whole, lines


def of_memories(form: Callable, curls: Sequence[Curl], *memories):
    """Memories `form(axis, memory, ...)` of those of several states; None where there is no layer."""
    return tuple(
        tuple(
            None if parts[0] is None else form(axis, *parts)
            for parts, (axis, _, _) in zip(zip(*kept, strict=True), curl, strict=True)
        )
        for kept, curl in zip(zip(*memories, strict=True), curls, strict=True)
    )


def absorbed(
    layer: AbsorbingLayer,
    u: Array,
    curl: Curl,
    lines,
    memories,
    layers: Sequence[Layer | None],
    factor_of: Callable,
    dt,
):
    """A field and its memories after the layers' part of an update by the curl.

    lines: the terms of the curl on the lines of layers. layers: per axis. factor_of: of one of these, its profile and
    what the update multiplies the curl by on its lines.
    """
    own = [k for k, memory in enumerate(memories) if memory is not None]
    terms = [Term(curl[k][0], lines[k], memories[k], *factor_of(layers[curl[k][0]])) for k in own]
    u, changed = layer.correct(u, terms, dt)
    result = list(memories)
    for k, memory in zip(own, changed, strict=True):
        result[k] = memory
    return u, tuple(result)
