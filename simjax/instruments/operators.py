"""Instruments that see a field: values at points, averages over boxes, integrals along rays, spectra.

Every operator is linear in the field but `Spectrum`, works on this device's block and returns what all blocks
together see. Where the instruments stand is static: an operator has no leaves and may be a static argument.
"""

import math
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax

from simjax.arguments import shown
from simjax.errors import ConfigurationError
from simjax.grid import AXES, Grid
from simjax.instruments.instrument import Coordinate, FieldInstrument, Layout, Places
from simjax.instruments.places import around, require_cartesian
from simjax.instruments.rays import pieces
from simjax.instruments.sampling import interpolate, require_axes, shares, waves
from simjax.schema.instrument_declarations import instrument
from simjax.schema.site import Points, Refusal
from simjax.schema.units import product_of_units

RAY = "ray"


class PointSensors(FieldInstrument):
    """The field at `positions` (points, axes), in units of the domain, by multilinear interpolation: (points,).

    Between the outermost values and a wall the interpolation goes on linearly. Second order.
    """

    variable: str = eqx.field(static=True)
    positions: Places = eqx.field(static=True)

    def __init__(self, variable: str, positions):
        self.variable = variable
        self.positions = as_places("Points.positions", positions)

    def measure(self, domain, field, offset, periodic):
        require_axes("periodic", periodic, domain.grid.ndim)
        at = around(domain, np.asarray(self.positions).T, offset, periodic, field.dtype)
        return interpolate(domain, field, *at, periodic)

    def check(self, grid):
        require_inside("Points.positions", self.variable, self.positions, grid)

    def shape(self, grid):
        return (len(self.positions),)


@instrument("line_of_sight")
class LineOfSight(FieldInstrument):
    """Integrals of the field along straight segments from `starts` to `ends`, both (segments, axes): (segments,).

    The midpoint rule on multilinear interpolation, with samples at most half a cell apart along every axis, on a
    stretched grid with two in each piece of a segment that lies between the same values. Second order; linear fields
    are integrated exactly where they do not wrap.
    """

    variable: str = eqx.field(static=True)
    starts: Places = eqx.field(static=True)
    ends: Places = eqx.field(static=True)

    at_given_places = True

    def __init__(self, variable: str, starts, ends):
        self.variable = variable
        self.starts, self.ends = as_places("LineOfSight.starts", starts), as_places("LineOfSight.ends", ends)
        _require_pairs("LineOfSight.starts", self.starts, "LineOfSight.ends", self.ends)
        for number, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            if start == end:
                raise ConfigurationError(
                    f"LineOfSight.ends[{number}]={_show(end)} is where the segment starts; write another point."
                )

    def measure(self, domain, field, offset, periodic):
        if domain.grid.stretched:
            middles, lengths = pieces(domain, np.asarray(self.starts), np.asarray(self.ends), offset)
            at = around(domain, middles, offset, periodic, field.dtype)
            values = interpolate(domain, field, *at, periodic)
            return jnp.sum(values * jnp.asarray(lengths, field.dtype), axis=1)
        starts, ends = (_in_spacings(domain.grid, p) - np.asarray(offset) for p in (self.starts, self.ends))
        samples = math.ceil(2 * np.abs(ends - starts).max())
        lengths = np.linalg.norm(np.subtract(self.ends, self.starts), axis=1)
        along = (jnp.arange(samples, dtype=field.dtype)[None, None, :] + 0.5) / samples
        first, reach = (jnp.asarray(p.T, field.dtype)[:, :, None] for p in (starts, ends - starts))
        places = first + reach * along
        below = jnp.floor(places)
        values = interpolate(domain, field, [*below.astype(jnp.int32)], [*(places - below)], periodic)
        return jnp.mean(values, axis=1) * jnp.asarray(lengths, field.dtype)

    def check(self, grid):
        require_inside("LineOfSight.starts", self.variable, self.starts, grid)
        require_inside("LineOfSight.ends", self.variable, self.ends, grid)

    def shape(self, grid):
        return (len(self.starts),)

    def layout(self, source, output, grid, units):
        lines, coordinates = np.asarray([self.starts, self.ends]), []
        about = {"long_name": "number of the line of sight", "units": "1"}
        coordinates.append(Coordinate(RAY, (RAY,), np.arange(lines.shape[1], dtype="i4"), about))
        for end, points in zip(("start", "end"), lines, strict=True):
            for k in range(grid.ndim):
                place = {"units": units, "long_name": f"{AXES[k]} of the {end} of the line"}
                coordinates.append(Coordinate(f"{AXES[k]}_{end}", (RAY,), points[:, k], place))
        return Layout((RAY,), tuple(coordinates))

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def keys_for(cls, given, site):
        return {"from": Points(site), "to": Points(site)}

    @classmethod
    def refusals(cls, of, given, site):
        starts, ends = given["from"], given["to"]
        if len(starts) != len(ends):
            yield Refusal("to", f"as many points as from has, {len(starts)}; got {len(ends)}")
        for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
            if start == end:
                yield Refusal(f"to[{number}]", f"another point than from[{number}]", list(end))

    @classmethod
    def made(cls, source, run):
        lines, length, found = (source.given["from"], source.given["to"]), run.config.schema.length_units, {}
        for one in cls.seen(source, run):
            about = f"integral of {one.long_name or one.name} along the line"
            units = product_of_units(one.units, length)
            found[one.name] = cls(one.name, *lines), replace(one, units=units, long_name=about, standard_name="")
        return found


class BoxAverage(FieldInstrument):
    """Averages of the field over boxes from `lowers` to `uppers`, both (boxes, axes): (boxes,).

    Every value stands for one spacing around it along each axis (on a stretched axis one in a centre for its cell, one
    on a face for what lies between the centres beside it), and counts with the part of that volume that lies in the
    box; the outermost stored face stands also for what is left up to the upper wall. Second order.
    """

    variable: str = eqx.field(static=True)
    lowers: Places = eqx.field(static=True)
    uppers: Places = eqx.field(static=True)

    def __init__(self, variable: str, lowers, uppers):
        self.variable = variable
        self.lowers, self.uppers = as_places("BoxAverage.lowers", lowers), as_places("BoxAverage.uppers", uppers)
        _require_pairs("BoxAverage.lowers", self.lowers, "BoxAverage.uppers", self.uppers)
        for number, (lower, upper) in enumerate(zip(self.lowers, self.uppers, strict=True)):
            if not all(a < b for a, b in zip(lower, upper, strict=True)):
                raise ConfigurationError(
                    f"BoxAverage.uppers[{number}]={_show(upper)} must lie above BoxAverage.lowers[{number}]="
                    f"{_show(lower)} along every axis; exchange what is the other way round."
                )

    def measure(self, domain, field, offset, periodic):
        lowers, uppers = np.asarray(self.lowers), np.asarray(self.uppers)
        weights = [
            shares(domain, axis, lowers[:, axis], uppers[:, axis], offset[axis], periodic[axis], field.dtype)
            for axis in range(domain.grid.ndim)
        ]
        letters = "xyz"[: domain.grid.ndim]
        terms = ",".join(f"b{letter}" for letter in letters)
        return domain.total(jnp.einsum(f"{letters},{terms}->b", field, *weights, precision=lax.Precision.HIGHEST))

    def check(self, grid):
        require_cartesian(f"BoxAverage of '{self.variable}'", grid)
        require_inside("BoxAverage.lowers", self.variable, self.lowers, grid)
        require_inside("BoxAverage.uppers", self.variable, self.uppers, grid)

    def shape(self, grid):
        return (len(self.lowers),)


class Spectrum(FieldInstrument):
    """The energy |u_k|^2 / 2 of a periodic field in the shells j - 1/2 <= |k| < j + 1/2, j = 1..`shells`: (shells,).

    u_k are the coefficients of u = sum over k of u_k exp(i k . x), and |k| is counted in units of 2 pi over the
    longest side of the domain; all shells and the mean, |k| < 1/2, add up to the mean of u^2 / 2 over the domain.
    """

    variable: str = eqx.field(static=True)
    shells: int = eqx.field(static=True)

    def __check_init__(self):
        if self.shells < 1:
            raise ConfigurationError(f"Spectrum.shells={self.shells}: expected at least one; write shells=1 or more.")

    def measure(self, domain, field, offset, periodic):
        require_axes("periodic", periodic, domain.grid.ndim)
        self._check_widths(domain.grid)
        if not all(periodic):
            axis = AXES[[*periodic].index(False)]
            raise ConfigurationError(
                f"Spectrum of '{self.variable}' needs a domain that is periodic along every axis, which {axis} is not; "
                "make its sides periodic or observe with BoxAverage."
            )
        # Direct sums over the few waves that count: they fit any decomposition and end in one small sum over devices.
        letters = "xyz"[: domain.grid.ndim]
        lines = [waves(domain, axis, count, field.dtype) for axis, count in enumerate(self._largest(domain.grid))]
        terms = ",".join(f"{letter.upper()}{letter}" for letter in letters)
        amplitudes = domain.total(
            jnp.einsum(f"{letters},{terms}->{letters.upper()}", field, *lines, precision=lax.Precision.HIGHEST)
        )
        shells = jnp.minimum(self._shells(domain.grid), self.shells + 1)
        return jnp.zeros(self.shells + 2, field.dtype).at[shells].add(0.5 * amplitudes**2)[1:-1]

    def _largest(self, grid: Grid) -> tuple[int, ...]:
        """The largest wavenumber in the shells along each axis, in units of 2 pi / L of that axis."""
        return tuple(math.ceil((self.shells + 0.5) * length / max(grid.lengths)) - 1 for length in grid.lengths)

    def _shells(self, grid: Grid) -> np.ndarray:
        """The shell of every product of the rows of `waves`."""
        square = np.zeros(())
        for count, length in zip(self._largest(grid), grid.lengths, strict=True):
            k = np.concatenate([np.arange(count + 1), np.arange(1, count + 1)]) * (max(grid.lengths) / length)
            square = square[..., None] + k**2
        return np.floor(np.sqrt(square) + 0.5).astype(np.int32)

    def _check_widths(self, grid: Grid) -> None:
        require_cartesian(f"Spectrum of '{self.variable}'", grid)
        if grid.stretched:
            raise ConfigurationError(
                f"Spectrum of '{self.variable}' needs cells of one width along every axis, and the grid is stretched "
                f"along {', '.join(AXES[axis] for axis in grid.stretched)}; observe with BoxAverage or PointSensors."
            )

    def check(self, grid):
        self._check_widths(grid)
        complete = complete_shells(grid)
        if self.shells > complete:
            raise ConfigurationError(
                f"Spectrum.shells={self.shells}: Grid.shape={grid.shape} resolves {complete} complete shells; write "
                "at most as many or refine the grid."
            )

    def shape(self, grid):
        return (self.shells,)


def complete_shells(grid: Grid) -> int:
    """The number of shells of `Spectrum` that a grid resolves."""
    longest = max(grid.lengths)
    return min(int(((n - 1) // 2) * longest / length) for n, length in zip(grid.shape, grid.lengths, strict=True))


def as_places(name: str, positions) -> Places:
    """Positions of shape (points, axes) as tuples of finite numbers."""
    try:
        array = np.asarray(positions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{name}={shown(positions)}: expected one row of coordinates per point, such as [[0.1, 0.2]]."
        ) from None
    if array.ndim != 2 or not array.size:
        raise ConfigurationError(
            f"{name} has shape {array.shape}; write one row of coordinates per point, such as [[0.1, 0.2]]."
        )
    if not np.isfinite(array).all():
        number = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise ConfigurationError(f"{name}[{number}]={_show(array[number])} is not finite; write numbers.")
    return tuple(tuple(row) for row in array.tolist())


def _require_pairs(first: str, these: Places, second: str, those: Places) -> None:
    shapes = [(len(places), len(places[0])) for places in (these, those)]
    if shapes[0] != shapes[1]:
        raise ConfigurationError(
            f"{first} has shape {shapes[0]} and {second} {shapes[1]}; write equally many points in both."
        )


def require_inside(name: str, variable: str, positions: Places, grid: Grid) -> None:
    """Refuse positions of another rank than the grid's or outside of its box."""
    if len(positions[0]) != grid.ndim:
        raise ConfigurationError(
            f"{name} of '{variable}' has {len(positions[0])} coordinates per point for a grid of {grid.ndim} axes; "
            f"write {', '.join(AXES[: grid.ndim])} of each point."
        )
    inside = (np.asarray(positions) >= grid.lower) & (np.asarray(positions) <= grid.upper)
    if not inside.all():
        number = int(np.argmin(inside.all(axis=1)))
        ranges = ", ".join(
            f"{a:g} <= {axis} <= {b:g}" for a, axis, b in zip(grid.lower, AXES, grid.upper, strict=False)
        )
        raise ConfigurationError(
            f"{name}[{number}]={_show(positions[number])} of '{variable}' lies outside of the domain; write positions "
            f"with {ranges}."
        )


def _show(point) -> str:
    return "(" + ", ".join(f"{value:g}" for value in point) + ")"


def _in_spacings(grid: Grid, positions: Places) -> np.ndarray:
    """Positions (points, axes) in float64, counted in spacings from the lower corner of the box."""
    return (np.asarray(positions) - grid.lower) / grid.mean_spacing
