"""Weighted moments, extremes and Fourier integrals that are gathered sample by sample.

A sample is a group: at one time, the points that are averaged over. Sums of powers of distances from the mean are
merged as those of groups are: by the formulas of Chan, Golub and LeVeque (1983), The American Statistician 37, 242, for
the second and of Pebay (2008), Sandia report SAND2008-6212, for the third. West (1979), Communications of the ACM 22,
532, is their case of groups of one. Sums of float32 are kept with their rounding errors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.stepping.compensated import added


class Total(NamedTuple):
    """A sum, and what its rounding left out: None in a type that is precise enough without."""

    value: Array
    low: Array | None

    def plus(self, x: Array) -> "Total":
        """The sum with a further term."""
        if self.low is None:
            return Total(self.value + x, None)
        return Total(*added((self.value, self.low), x))


class Extreme(NamedTuple):
    """An extreme value and the time at which it occurred first."""

    value: Array
    time: Array


class Sums(NamedTuple):
    """Sums over the samples so far.

    weight: of all. waiting: time since the last sample. mean: by variable. second: sums of products of distances from
    the means, by pairs of variables. third: of their cubes, by variable. min, max: by variable. fourier: real and
    imaginary parts of the integrals of u exp(-2 pi i f t), by variable, with an axis of frequencies in front.
    """

    weight: Total
    waiting: Array
    mean: dict[str, Total]
    second: dict[tuple[str, str], Total]
    third: dict[str, Total]
    min: dict[str, Extreme]
    max: dict[str, Extreme]
    fourier: dict[str, tuple[Total, Total]]

    def apart(self, bins: int) -> "Sums":
        """The same sums, on the host, for each of some parts of a period."""
        many = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (bins, *leaf.shape)), self)
        return many._replace(waiting=self.waiting)

    def partitions(self, kept: Mapping[str, PartitionSpec]) -> "Sums":
        """The partition of every array, where that of each variable is `kept`."""
        everywhere = PartitionSpec()

        def cut(tree, spec: PartitionSpec):
            return jax.tree.map(lambda _: spec, tree)

        return Sums(
            cut(self.weight, everywhere),
            cut(self.waiting, everywhere),
            {name: cut(own, kept[name]) for name, own in self.mean.items()},
            {pair: cut(own, kept[pair[0]]) for pair, own in self.second.items()},
            {name: cut(own, kept[name]) for name, own in self.third.items()},
            {name: cut(own, kept[name]) for name, own in self.min.items()},
            {name: cut(own, kept[name]) for name, own in self.max.items()},
            {name: cut(own, PartitionSpec(None, *kept[name])) for name, own in self.fourier.items()},
        )


class Averages(NamedTuple):
    """Reductions of a field over the axes that are averaged over: at one place, its value."""

    mean: Callable[[Array], Array]
    expand: Callable[[Array], Array]
    min: Callable[[Array], Array]
    max: Callable[[Array], Array]


@dataclass(frozen=True)
class Moments:
    """The moments that are wanted: variables with a mean, pairs with a second moment, and so on.

    waves: variables with Fourier integrals at each of the `frequencies`.
    """

    means: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    thirds: tuple[str, ...] = ()
    mins: tuple[str, ...] = ()
    maxs: tuple[str, ...] = ()
    waves: tuple[str, ...] = ()
    frequencies: tuple[float, ...] = ()

    def zero(self, shapes: Mapping[str, tuple[int, ...]], dtype) -> Sums:
        """The sums before the first sample, on the host; shapes: of each variable where nothing is averaged over."""
        compensated = np.finfo(dtype).nmant < 52

        def total(shape: Sequence[int]) -> Total:
            return Total(np.zeros(shape, dtype), np.zeros(shape, dtype) if compensated else None)  # pyright: ignore

        def of_waves(name: str) -> tuple[int, ...]:
            return (len(self.frequencies), *shapes[name])

        def extreme(name: str, value: float) -> Extreme:
            return Extreme(np.full(shapes[name], value, dtype), np.full(shapes[name], np.nan, dtype))  # pyright: ignore

        return Sums(
            total(()),
            np.zeros((), dtype),  # pyright: ignore
            {name: total(shapes[name]) for name in self.means},
            {pair: total(shapes[pair[0]]) for pair in self.pairs},
            {name: total(shapes[name]) for name in self.thirds},
            {name: extreme(name, np.inf) for name in self.mins},
            {name: extreme(name, -np.inf) for name in self.maxs},
            {name: (total(of_waves(name)), total(of_waves(name))) for name in self.waves},
        )

    def with_sample(
        self,
        sums: Sums,
        t: Array,
        weight: Array,
        fields: Mapping[str, Array],
        over: Mapping[str, Averages],
        turns: Array | None = None,
    ) -> Sums:
        """The sums with the fields at time `t`, which count with `weight`.

        turns: f t of each frequency, of which whole numbers may be left out; None where there are no waves.
        """
        total = sums.weight.plus(weight)
        share = weight / total.value
        between = sums.weight.value * share  # the product of both weights over their sum
        own, apart, shift = {}, {}, {}
        for name in self.means:
            own[name] = over[name].mean(fields[name])
            apart[name] = fields[name] - over[name].expand(own[name])
            known = sums.mean[name]
            shift[name] = own[name] - known.value
            if known.low is not None:
                shift[name] = shift[name] - known.low
        spread = {(a, b): over[a].mean(apart[a] * apart[b]) for a, b in self.pairs}
        mean = {name: sums.mean[name].plus(share * shift[name]) for name in self.means}
        second = {
            (a, b): sums.second[a, b].plus(weight * spread[a, b] + between * shift[a] * shift[b]) for a, b in self.pairs
        }
        third = {}
        for a in self.thirds:
            skew = weight * over[a].mean(apart[a] ** 3)
            skew = skew + between * (sums.weight.value - weight) / total.value * shift[a] ** 3
            skew = skew + 3 * shift[a] * (between * spread[a, a] - share * sums.second[a, a].value)
            third[a] = sums.third[a].plus(skew)
        least, most = {}, {}
        for name in self.mins:
            value = over[name].min(fields[name])
            less = value < sums.min[name].value
            least[name] = Extreme(*(jnp.where(less, x, old) for x, old in zip((value, t), sums.min[name], strict=True)))
        for name in self.maxs:
            value = over[name].max(fields[name])
            more = value > sums.max[name].value
            most[name] = Extreme(*(jnp.where(more, x, old) for x, old in zip((value, t), sums.max[name], strict=True)))
        waves = {
            name: _with_wave(sums.fourier[name], over[name].mean(fields[name]), weight, turns) for name in self.waves
        }
        return Sums(total, jnp.zeros_like(sums.waiting), mean, second, third, least, most, waves)


def _with_wave(known: tuple[Total, Total], u: Array, weight: Array, turns: Array | None) -> tuple[Total, Total]:
    """Real and imaginary part of an integral of u exp(-2 pi i f t), with a further value of u."""
    assert turns is not None
    angle = (2 * math.pi * turns).reshape(-1, *(1,) * u.ndim)
    real, imaginary = known
    return real.plus(weight * jnp.cos(angle) * u[None]), imaginary.plus(-weight * jnp.sin(angle) * u[None])
