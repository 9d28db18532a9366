"""Fields kept in 16 bits between steps, as deviations from a state at rest, rounded up or down at random.

A step changes a smooth field by less than half of the spacing of 16-bit numbers, so that rounding to the nearest would
undo it, step after step. Rounded up with a probability that is the share of the way to the number above, the change is
right in the mean, and what is left is noise that does not add up in one direction (Croci, Fasi, Higham, Mary and
Mikaitis 2022, R. Soc. Open Sci. 9, 211631). The random bits are a function of time and of the place in the whole grid:
a run is the same however it is decomposed and wherever it is resumed.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.arguments import require_kind, require_one_of
from simjax.core.domain import Domain
from simjax.core.model import GridModel
from simjax.integrators.integrator import Integrator
from simjax.integrators.splitting import Leapfrog
from simjax.schema.storage_section import STORAGE


class Stored(Integrator):
    """A scheme after whose steps fields have the values of 16-bit numbers; what it computes is in single precision.

    dtype: bfloat16 (8 significant bits, the range of float32) or float16 (11 bits, from 6e-8 to 65504). rest: for
    initial fields, one number per component: uniform values that are taken off before; others are zero.

    Derivatives are those of steps without rounding. Sums over the grid are kept in the mean, not to rounding.

    Examples:
        >>> scheme = sj.Stored(sj.INTEGRATORS["rk4"], "bfloat16")
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.float32(0.01), jnp.ones(1, jnp.float32))
        >>> start = line.State(jnp.sin(jnp.linspace(0, 6, 32, dtype=jnp.float32)))
        >>> end = sj.integrate(line, scheme, params, start, dt=0.01, steps=10).concentration
        >>> bool(jnp.all(end == end.astype(jnp.bfloat16))), end.dtype
        (True, dtype('float32'))
    """

    scheme: Integrator
    dtype: str = eqx.field(static=True)
    rest: tuple[tuple[str, tuple[float, ...]], ...] = eqx.field(static=True)
    packs: bool = eqx.field(static=True)
    """True where fields take 16 bits of memory after a step, which has no useful derivative."""

    def __init__(
        self, scheme: Integrator, dtype: str, rest: Mapping[str, tuple[float, ...]] | None = None, packs: bool = False
    ):
        require_one_of("Stored: dtype", dtype, STORAGE)
        require_kind("Stored: scheme", scheme, Integrator, "an Integrator; write INTEGRATORS['rk4']")
        self.scheme, self.dtype, self.rest, self.packs = scheme, dtype, tuple(sorted((rest or {}).items())), packs

    @property
    def order(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.order

    @property
    def courant_limit(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scheme.courant_limit

    @property
    def stages(self) -> int:
        return self.scheme.stages

    def prepare(self, model, params, dt):
        return self.scheme.prepare(model, params, dt)

    def stable_dt(self, model, state, params):
        return self.scheme.stable_dt(model, state, params)

    def step(self, model, t, dt, state, params, prepared=None):
        def kept(state, before=None):
            return self.rounded(model, t, state, params, before)

        if isinstance(self.scheme, Leapfrog):  # the first half is final before the second one reads it
            return kept(self.scheme.step(model, t, dt, state, params, prepared, kept))
        return kept(self.scheme.step(model, t, dt, state, params, prepared))

    def packing(self) -> "Stored":
        """The scheme whose fields take 16 bits of memory after a step."""
        return Stored(self.scheme, self.dtype, dict(self.rest), True)

    def rounded(self, model: GridModel, t: Array, state, params, before=None) -> Any:
        """The state after a step that began at `t`, with values that 16 bits hold.

        before: a state, of which fields that are the same array are left as they are.
        """
        domain, count = model.domain, itertools.count()

        def field(u: Array, rest, old=None) -> Array:
            number = next(count)
            if u is old:
                return u
            kept = _plus(_sixteen_bits(_less(u, rest), _random_bits(domain, u.shape, t, number), self.dtype), rest)
            # What is rounded twice, as rest + deviation is, is so once and for all.
            packed = _less(kept, rest).astype(self.dtype)
            if self.packs:
                return _plus(lax.optimization_barrier(packed).astype(u.dtype), rest)
            return u + lax.stop_gradient(_plus(packed.astype(u.dtype), rest) - u)

        return self._of_fields(field, model, state, params, *([] if before is None else [before]))

    def packed(self, model: GridModel, state, params) -> Any:
        """A state with values that 16 bits hold, in 16 bits."""
        return self._of_fields(lambda u, rest: _less(u, rest).astype(self.dtype), model, state, params)

    def unpacked(self, model: GridModel, kept, params) -> Any:
        """The state in single precision of which `kept` is packed."""
        return self._of_fields(lambda u, rest: _plus(u.astype(jnp.float32), rest), model, kept, params)

    def _of_fields(self, change: Callable, model: GridModel, state, params, *others) -> Any:
        """A state of which the fields are changed, given their values at rest; others: trees like it."""
        leaves, tree = jax.tree.flatten(state)
        rest = jax.tree.leaves(self._at_rest(model, params)) or [None] * len(leaves)
        along = zip(leaves, rest, *map(jax.tree.leaves, others), strict=True)
        return tree.unflatten([change(u, *more) if is_kept(model.domain, u) else u for u, *more in along])

    def _at_rest(self, model: GridModel, params) -> Any:
        """The uniform state that is taken off; None: zero."""
        if not self.rest:
            return None
        domain, given = model.domain, dict(self.rest)
        counts = {name: len(layouts) for name, layouts in model.component_layouts().items()}
        fields = {
            name: tuple(jnp.full(domain.block_shape, number, jnp.float32) for number in given.get(name, (0.0,) * count))
            for name, count in counts.items()
        }
        return model.state_from(fields, params)


def _plus(u: Array, rest: Array | None) -> Array:
    return u if rest is None else u + rest


def _less(u: Array, rest: Array | None) -> Array:
    return u if rest is None else u - rest


def is_kept(domain: Domain, u: Array) -> bool:
    """Tell whether a leaf of a state, packed or not, is one of the fields of which 16 bits are kept."""
    return u.ndim >= domain.grid.ndim and u.dtype in (jnp.float32, *STORAGE)


def _random_bits(domain: Domain, shape: tuple[int, ...], t: Array, number: int) -> Array:
    """32 random bits for each entry of leaf `number` of the state: a hash of time, leaf and place."""
    lead, index = len(shape) - domain.grid.ndim, jnp.zeros((), jnp.uint32)
    whole = (*shape[:lead], *domain.grid.shape)
    for axis, n in enumerate(shape):
        first = jnp.asarray(domain.first_index(axis - lead) if axis >= lead else 0).astype(jnp.uint32)
        place = (first + jnp.arange(n, dtype=jnp.uint32)).reshape([n if k == axis else 1 for k in range(len(shape))])
        index = index * np.uint32(whole[axis]) + place
    now = lax.bitcast_convert_type(jnp.asarray(t, jnp.float32), jnp.uint32)
    return _hashed(index ^ _hashed(_hashed(now) + np.uint32(number)))


def _hashed(x: Array) -> Array:
    """A permutation of 32 bits in which each input bit flips each output bit half of the time (Wellons 2018)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _sixteen_bits(u: Array, random: Array, dtype: str) -> Array:
    """float32 rounded up or down to 16 bits at random, in the mean to itself; what is not finite stays so."""
    dropped = jnp.finfo(jnp.float32).nmant - jnp.finfo(dtype).nmant
    bits = lax.bitcast_convert_type(u, jnp.uint32)
    cut = (bits + (random >> np.uint32(32 - dropped))) & np.uint32(2**32 - 2**dropped)
    found = lax.bitcast_convert_type(cut, jnp.float32)
    return jnp.where(jnp.isfinite(u), found.astype(dtype).astype(u.dtype), u)
