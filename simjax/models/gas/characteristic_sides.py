"""Ghost states of a gas at sides that waves leave through: characteristic conditions with relaxation."""

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.given_values import Value
from simjax.core.joint_sides import Beside, JointRule
from simjax.grid import LOWER
from simjax.ops.spacing import Spacing

MOST_CHANGE = 0.15
"""Part of its density or pressure by which the cell beside a side and the ghost cells, of which there are at most
three, may differ from one to the next."""


def velocity_name(component: int) -> str:
    """Name of a velocity component in joint rules of a gas."""
    return f"velocity_{component}"


class _Line(NamedTuple):
    """A line of cells along a side: outward is the velocity across it, along those in it by their components."""

    density: Array
    outward: Array
    along: dict[int, Array]
    pressure: Array


class CharacteristicRule(JointRule):
    """Ghosts on straight lines through the cell beside the side, whose slopes are those of the characteristic waves.

    With the outward normal n, velocity u along it, speed of sound c and Mach number M = u / c, the wave that comes in
    is w = p - rho c u. What leaves keeps its slope within. The slope of w is

        dw/dn = rho c k div_t(u) - sigma (1 + M) / L * mismatch,

    so that in a plane wave dw/dt = -sigma c (1 - M^2) / L * mismatch: Rudy and Strikwerda (1980), J. Comput. Phys. 36,
    55; Poinsot and Lele (1992), J. Comput. Phys. 101, 104. div_t(u) is the divergence along the side. With k = 1
    vortices leave without a sound, which is the share 1 - M of the transverse terms of Yoo and Im (2007), Combust.
    Theory Model. 11, 259, and of Giles (1990), AIAA J. 28, 2050. Sound is reflected least with k = 1/2, which is the
    second-order condition of Engquist and Majda (1977), Math. Comput. 31, 629, in a stream. k = 1 - s / 2 with
    s = 1 - (1 - r)^4, r = min(1, div(u)^2 / |grad(u)|^2), which is 1 in a plane wave of sound and 0 in a vortex; where
    gas comes in, k = 1/2. The power keeps s near 1 in sound that is not quite plane: with s = r three times as much of
    it returned in a gas at rest. Beyond the speed of sound nothing comes in.

    gamma: ratio of specific heats. relaxation: sigma. length: L.
    """

    gamma: Array
    relaxation: Value
    length: Value

    @abc.abstractmethod
    def mismatch(self, beside: Beside, cell: _Line, speed: Array) -> Array:
        """The difference by which the incoming wave is relaxed, a pressure; `speed` is that of sound."""

    def ghosts(self, beside):
        cell, inner = (_line(beside, k) for k in (0, 1))
        where = cell.pressure.ndim - len(beside.spacing) + beside.axis
        square = self.gamma * cell.pressure / cell.density
        speed = jnp.sqrt(square)
        impedance, mach = cell.density * speed, cell.outward / speed
        leaves = cell.outward > 0
        push = cell.pressure - inner.pressure
        swing = impedance * (cell.outward - inner.outward)
        spacing = _first(beside.spacing[beside.axis], where)
        pull = beside.evaluate(self.relaxation) / beside.evaluate(self.length) * (1 + mach)
        turning = self._turning(beside, cell, inner, spacing)
        incoming = spacing * (impedance * turning - pull * self.mismatch(beside, cell, speed))
        incoming = jnp.where(mach < 1, incoming, push - swing)
        outgoing = push + swing
        rise = 0.5 * (outgoing + incoming)
        entropy = jnp.where(leaves, cell.density - inner.density - push / square, 0)
        change = _Line(
            entropy + rise / square,
            0.5 * (outgoing - incoming) / impedance,
            {k: jnp.where(leaves, u - inner.along[k], 0) for k, u in cell.along.items()},
            rise,
        )
        lines = _extended(beside, cell, change, where)
        return _named(beside, *self.with_entering(beside, cell, speed, spacing, lines))

    def with_entering(
        self, beside: Beside, cell: _Line, speed: Array, spacing: Spacing, lines: list[_Line]
    ) -> list[_Line]:
        """Ghost lines with what enters with the gas: as the gas beside the side, unless a rule gives it."""
        return lines

    def _turning(self, beside: Beside, cell: _Line, inner: _Line, spacing: Spacing) -> Array:
        """The part of dw/dn that gradients along the side make, over rho c."""
        if not cell.along:
            return jnp.zeros_like(cell.pressure)
        slopes = {k: {i: s[velocity_name(i)] for i in range(len(beside.spacing))} for k, s in beside.slopes.items()}
        divergence = sum(slopes[k][k] for k in cell.along)
        normal = (cell.outward - inner.outward) / spacing
        across = [(u - inner.along[k]) / spacing for k, u in cell.along.items()]
        gradient = [normal, *across, *(u for ends in slopes.values() for u in ends.values())]
        square = sum(u * u for u in gradient)
        moves = square > 0
        share = jnp.minimum(jnp.where(moves, (normal + divergence) ** 2 / jnp.where(moves, square, 1), 0), 1)
        sound = 1 - (1 - share) ** 4
        return jnp.where(cell.outward > 0, 1 - 0.5 * sound, 0.5) * divergence + self.carried(beside, cell)

    def carried(self, beside: Beside, cell: _Line) -> Array | float:
        """The part of dw/dn that the pressure of vortices makes, over rho c."""
        return 0.0


class OutflowRule(CharacteristicRule):
    """The incoming wave is relaxed to a pressure far away; what comes back in is as the gas beside the side.

    velocity: U, one value per axis, with which vortices are carried out. The pressure p of one that does not change is
    carried with it, and has the slope dp/dn = rho ((u - U) div_t(u) - (v - V) . grad_t(u)), with v along the side. It
    is of second order in the velocity of the vortex, and of no account for sound. None: it is left out.
    """

    pressure: Value
    velocity: tuple[Value, ...] | None

    def mismatch(self, beside, cell, speed):
        return cell.pressure - beside.evaluate(self.pressure)

    def carried(self, beside, cell):
        if self.velocity is None:
            return 0.0
        speed = jnp.sqrt(self.gamma * cell.pressure / cell.density)
        mean = _of_velocity(beside, [beside.evaluate(u) for u in self.velocity])
        sign, name = _sign(beside), velocity_name(beside.axis)
        total = (cell.outward - mean.outward) * sum(beside.slopes[k][velocity_name(k)] for k in cell.along)
        total = total - sum((u - mean.along[k]) * (sign * beside.slopes[k][name]) for k, u in cell.along.items())
        return jnp.where(cell.outward > 0, total / speed, 0)


class InflowRule(CharacteristicRule):
    """Velocity and temperature are relaxed to given ones; all of a given state comes in where it is supersonic.

    Only the incoming wave is relaxed to the velocity across the side. Temperature and velocity along the side, which
    the gas carries in, are mixed of those beside the side and a part sigma c h / (sigma c h + |u| L) of the given ones.
    """

    density: Value
    velocity: tuple[Value, ...]
    pressure: Value

    def mismatch(self, beside, cell, speed):
        return cell.density * speed * (self._given(beside).outward - cell.outward)

    def with_entering(self, beside, cell, speed, spacing, lines):
        given = self._given(beside)
        rate = beside.evaluate(self.relaxation) * speed * spacing
        part = rate / (rate + jnp.abs(cell.outward) * beside.evaluate(self.length))
        part = jnp.where(cell.outward < 0, part, 0)
        thinner = given.density * cell.pressure / (given.pressure * cell.density)
        supersonic = cell.outward < -speed

        def entering(line: _Line) -> _Line:
            mixed = line._replace(
                density=line.density * (1 + part * (thinner - 1)),
                along={k: u + part * (given.along[k] - u) for k, u in line.along.items()},
            )
            return jax.tree.map(lambda state, u: jnp.where(supersonic, state, u), given, mixed)

        return list(map(entering, lines))

    def _given(self, beside: Beside) -> _Line:
        velocity = _of_velocity(beside, [beside.evaluate(u) for u in self.velocity])
        density, pressure = beside.evaluate(self.density), beside.evaluate(self.pressure)
        return _Line(density, *velocity, pressure)


class _Velocity(NamedTuple):
    outward: Array
    along: dict[int, Array]


def _sign(beside: Beside) -> int:
    """The sign of the outward normal along its axis."""
    return -1 if beside.side == LOWER else 1


def _of_velocity(beside: Beside, components: list[Array]) -> _Velocity:
    """A velocity by its component across a side, outward, and those along it."""
    along = {k: u for k, u in enumerate(components) if k != beside.axis}
    return _Velocity(_sign(beside) * components[beside.axis], along)


def _line(beside: Beside, number: int) -> _Line:
    """The line of cells `number` cells away from the side; the last one there is, if there are less."""
    ndim = len(beside.spacing)

    def cut(u: Array) -> Array:
        where = u.ndim - ndim + beside.axis
        start = min(number, u.shape[where] - 1)
        return lax.slice_in_dim(u, start, start + 1, axis=where)

    lines = {name: cut(u) for name, u in beside.lines.items()}
    velocity = _of_velocity(beside, [lines[velocity_name(k)] for k in range(ndim)])
    return _Line(lines["pressure"] / lines["heat"], *velocity, lines["pressure"])


def _first(spacing: float | Array, where: int) -> float | Array:
    return lax.slice_in_dim(spacing, 0, 1, axis=where) if isinstance(spacing, Array) else spacing


def _extended(beside: Beside, cell: _Line, change: _Line, where: int) -> list[_Line]:
    """Ghost lines that change by `change` from one to the next, as far as density and pressure allow."""
    parts = jnp.abs(change.pressure) / cell.pressure, jnp.abs(change.density) / cell.density
    share = 1 / jnp.maximum(jnp.maximum(*parts) / MOST_CHANGE, 1)

    def at(number: int) -> _Line:
        def move(u: Array, by: Array) -> Array:
            return u + number * (share * by)

        along = {k: move(u, change.along[k]) for k, u in cell.along.items()}
        return _Line(
            move(cell.density, change.density),
            move(cell.outward, change.outward),
            along,
            move(cell.pressure, change.pressure),
        )

    return [at(k + 1) for k in range(beside.width)]


def _named(beside: Beside, *lines: _Line) -> dict[str, Array]:
    """Ghost lines by the names of the fields."""
    where = beside.axis - len(beside.spacing)

    def joined(parts) -> Array:
        return jnp.concatenate(list(parts), axis=where)

    result = {
        "heat": joined(line.pressure / line.density for line in lines),
        "pressure": joined(line.pressure for line in lines),
        velocity_name(beside.axis): joined(_sign(beside) * line.outward for line in lines),
    }
    return result | {velocity_name(k): joined(line.along[k] for line in lines) for k in lines[0].along}
