"""Dispersive media of light: poles of the permittivity, as charges bound or free that follow the electric field.

Each pole adds a polarisation of its own to eps E, and keeps one or two fields for each component of E. Time derivatives
are differences over a step, all else are means of its two ends (the trapezoidal rule): of second order, reversible, and
stable with any step that is stable without poles. In a step E changes by the poles' currents, and these follow the mean
of E before and after it, so both are solved for together, in each cell alone.
"""

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least

Parts = tuple[Array, ...]
"""The fields that a pole keeps for one component of E, in V/m: their squares times half its strength are its energy."""


class Pole(eqx.Module):
    """A part of the permittivity with a frequency of its own.

    strength (F/m): a number, one value for each cell, or a function of place, as `Params.permittivity`; zero where the
    medium is not. Its other numbers are the same everywhere.
    """

    strength: eqx.AbstractVar[Any]
    parts: ClassVar[int]
    wrong: ClassVar[str]  # what `is_unphysical` tells

    def __check_init__(self):
        require_at_least(type(self).__name__, {"strength": self.strength})

    @property
    @abc.abstractmethod
    def lossy(self) -> bool:
        """Tell whether it takes energy from the field for good."""

    @abc.abstractmethod
    def is_unphysical(self) -> Array:
        """Tell whether a number other than the strength has a wrong sign."""

    @abc.abstractmethod
    def gain(self, dt) -> Array:
        """The part of its current in a step that follows the mean of E in it, times dt, for a strength of one."""

    @abc.abstractmethod
    def drive(self, dt, kept: Parts) -> Array:
        """The part of its current that follows from what it keeps at the beginning, times dt, for a strength of one."""

    @abc.abstractmethod
    def advanced(self, dt, mean: Array, kept: Parts) -> Parts:
        """The parts that it keeps after a step, from the mean of E in it."""

    @abc.abstractmethod
    def heat(self, dt, mean: Array, before: Parts, after: Parts) -> Array:
        """The energy per volume that it takes in a step, for a strength of one."""


class _Resonance(Pole):
    """Charges with inertia: what they keep ends with the rate q, of which w q is the current for a strength of one."""

    strength: eqx.AbstractVar[Any]
    frequency: eqx.AbstractVar[Array]
    damping: eqx.AbstractVar[Array | None]
    wrong: ClassVar[str] = "frequency <= 0 or damping < 0"
    stiffness: ClassVar[float]  # 1 where a force draws the charges back, 0 where they are free

    def __check_init__(self):
        require_at_least(type(self).__name__, {"frequency": self.frequency}, strictly=True)
        require_at_least(type(self).__name__, {"damping": self.damping})

    @property
    def lossy(self):
        return self.damping is not None

    def is_unphysical(self):
        wrong = ~(self.frequency > 0)
        return wrong if self.damping is None else wrong | ~(self.damping >= 0)

    def _half(self, dt) -> Array:
        return 0.5 * dt * self.frequency

    def _inertia(self, dt) -> Array:
        """The factor of the change of the rate in half a step, as the forces change in it too."""
        damped = 1.0 if self.damping is None else 1 + 0.5 * dt * self.damping
        return damped + self.stiffness * self._half(dt) ** 2

    def _unforced(self, dt, kept: Parts) -> Array:
        """The rate in the middle of a step, times the inertia, without a field."""
        return kept[-1] if len(kept) == 1 else kept[1] - self._half(dt) * kept[0]

    def gain(self, dt):
        return 2 * self._half(dt) ** 2 / self._inertia(dt)

    def drive(self, dt, kept):
        return 2 * self._half(dt) / self._inertia(dt) * self._unforced(dt, kept)

    def advanced(self, dt, mean, kept):
        half = self._half(dt)
        rate = (self._unforced(dt, kept) + half * mean) * (1 / self._inertia(dt))
        return (*(p + 2 * half * rate for p in kept[:-1]), 2 * rate - kept[-1])

    def heat(self, dt, mean, before, after):
        if self.damping is None:
            return jnp.zeros_like(mean)
        return 0.25 * dt * self.damping * (before[-1] + after[-1]) ** 2


class DrudePole(_Resonance):
    """Free charges, as in metals and plasmas: eps(w) = eps - s wp^2 / (w^2 - i g w) for fields as exp(i w t).

    s strength (F/m), wp frequency (rad/s), the plasma frequency where s is the permittivity of vacuum, g damping (1/s;
    None: no losses). Drude (1900), Ann. Phys. 306, 566.

    Examples:
        >>> metal = sj.DrudePole(jnp.asarray(1.0), frequency=jnp.asarray(9.0), damping=jnp.asarray(0.3))
    """

    strength: Any
    frequency: Array
    damping: Array | None = None
    parts: ClassVar[int] = 1
    stiffness: ClassVar[float] = 0.0


class LorentzPole(_Resonance):
    """Bound charges that resonate: eps(w) = eps + s w0^2 / (w0^2 - w^2 + i g w) for fields as exp(i w t).

    s strength (F/m), what the pole adds to the permittivity at low frequencies, w0 frequency (rad/s), g damping (1/s;
    None: no losses).

    Examples:
        >>> lossless = sj.LorentzPole(jnp.asarray(2.0), frequency=jnp.asarray(12.0))
    """

    strength: Any
    frequency: Array
    damping: Array | None = None
    parts: ClassVar[int] = 2
    stiffness: ClassVar[float] = 1.0


class DebyePole(Pole):
    """Dipoles that relax, as in water: eps(w) = eps + s / (1 + i w tau) for fields as exp(i w t).

    s strength (F/m), what the pole adds to the permittivity at low frequencies, tau relaxation_time (s).

    Examples:
        >>> water = sj.DebyePole(jnp.asarray(73.0), relaxation_time=jnp.asarray(0.4))
    """

    strength: Any
    relaxation_time: Array
    parts: ClassVar[int] = 1
    wrong: ClassVar[str] = "relaxation time <= 0"

    def __check_init__(self):
        require_at_least("DebyePole", {"relaxation_time": self.relaxation_time}, strictly=True)

    @property
    def lossy(self):
        return True

    def is_unphysical(self):
        return ~(self.relaxation_time > 0)

    def gain(self, dt):
        return dt / (self.relaxation_time + 0.5 * dt)

    def drive(self, dt, kept):
        return -self.gain(dt) * kept[0]

    def advanced(self, dt, mean, kept):
        return (kept[0] + self.gain(dt) * (mean - kept[0]),)

    def heat(self, dt, mean, before, after):
        return (after[0] - before[0]) * (mean - 0.5 * (before[0] + after[0]))


def of_component(component: int, medium: Any) -> tuple[Array | None, tuple[Pole, ...]]:
    """The parts of a medium that act on a component of E: conductivity over permittivity, and poles.

    medium: `light_parts.Prepared` of a block, or `light_parts.Layer`.
    """
    decay = None if medium.decay is None else medium.decay[component]
    return decay, tuple(replace(pole, strength=pole.strength[component]) for pole in medium.poles)


def half_losses(dt, decay: Array | None, poles: Sequence[Pole]) -> Array | None:
    """Half of what a component of E loses in a step by conduction and by the currents of poles that follow it.

    Arguments as `of_component` returns them. None without both.
    """
    parts = [] if decay is None else [0.5 * dt * decay]
    parts += [0.5 * pole.gain(dt) * pole.strength for pole in poles]
    return sum(parts[1:], parts[0]) if parts else None
