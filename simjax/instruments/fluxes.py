"""Instruments that read what passes sides, planes and boxes by the scheme's own fluxes, and numbers made of these."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, place_attributes
from simjax.instruments.cell_places import cell_coordinates
from simjax.instruments.crossings import Crossing, Part, Through, crossings
from simjax.instruments.instrument import Coordinate, Instrument, Layout
from simjax.instruments.wave_power import WavePower
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Choice, Real, key
from simjax.schema.site import Refusal, Site
from simjax.schema.units import product_of_units, to_the_power

TOTAL, MEAN, MAP = "total", "mean", "map"
PART = "part"


class ThroughFaces(Instrument):
    """A reading of fluxes of a quantity through faces: what kinds of it have in common.

    quantity: one of those that the model has fluxes of. crossings: the faces. offset: of the flux in its cells.
    """

    variable: str = eqx.field(static=True)
    quantity: str = eqx.field(static=True)
    crossings: tuple[Crossing, ...] = eqx.field(static=True)
    offset: tuple[float, ...] = eqx.field(static=True)

    noun = "quantities"
    of_fields = False

    def total_and_area(self, view) -> tuple[Array, Array]:
        """Sum of the fluxes through all faces, and their area."""
        total: Array | float = 0.0
        area: Array | float = 0.0
        for one in self.crossings:
            flux = view.fluxes(one.plane)[self.quantity]
            share = one.share(view.domain, self.offset, view.periodic, flux.density.dtype)
            areas = flux.areas * share
            total = total + one.sign * one.plane.counted(view.domain, jnp.sum(flux.density * areas))
            whole = jnp.sum(jnp.broadcast_to(areas, flux.density.shape))
            area = area + one.plane.counted(view.domain, whole)
        return view.domain.total((total, area))

    @classmethod
    def unavailable(cls, site):
        if site.schema.passing(site.ndim, site.counts):
            return ""
        return f"model={site.schema.name} does not tell what passes its faces; look at its fields with surface_integral"

    @classmethod
    def names(cls, site):
        return site.schema.passing(site.ndim, site.counts)

    @classmethod
    def refusals(cls, of, given, site):
        yield from steps_refusals(site)
        across = next(iter(given["through"]))[0]
        if across in given.get(PART, ()):
            yield Refusal(PART, f"ends along the plane, not along {across}", given[PART])

    @classmethod
    def known_crossings(cls, source: Any, run: Any, through: Any) -> tuple[Crossing, ...]:
        """The faces of an entry of `outputs`.

        Raises:
            ConfigurationError: they lie on no faces of cells, or the model does not know fluxes through them.
        """
        part = source.given.get(PART)
        if part and run.domain.grid.axisymmetric and AXES[RADIAL] in part:
            raise ConfigurationError(
                f"outputs, {source.name}.part: expected ends along {AXES[1 - RADIAL]}, and got some along the radius "
                f"{AXES[RADIAL]}, where a part of a face is no part of its ring; write a box, or all of the plane."
            )
        found = crossings(source.name, run.domain.grid, through, part)
        for one in found:
            told = run.model.unknown_fluxes(source.of, one.plane)
            if told:
                raise ConfigurationError(f"outputs, {source.name}: {told}.")
        return found


def steps_refusals(site: Site) -> Iterator[Refusal]:
    """Refuse several steps between exchanges, where no field is whole."""
    several = site.sections["steps_per_exchange"]
    if several not in (0, None):
        yield Refusal("", f"steps_per_exchange=0, got {several}", hint="write steps_per_exchange=0")


@instrument("flux")
class FluxThrough(ThroughFaces):
    """The rate at which a quantity passes a side, a plane or the faces of a box, by the scheme's own fluxes.

    Through a side it counts into the grid, through a plane along its axis, out of a box. give: what is read of it, the
    total, the mean over the area, or the map, a value for each face.
    """

    @dataclasses.dataclass(frozen=True)
    class Keys:
        through: Any = key(Through(), about="side, plane or box that is passed")
        part: Any = key(Part(), None, about="part of the plane")
        give: str = key(Choice((TOTAL, MEAN, MAP)), TOTAL, about="total, mean over the area, or map of the faces")

    give: str = eqx.field(static=True)

    def read(self, view):
        if self.give == MAP:
            (one,) = self.crossings
            density = one.sign * view.fluxes(one.plane)[self.quantity].density
            plane = one.plane.counted(view.domain, jnp.squeeze(density, one.plane.axis))
            # Summed over the devices along the axis alone: the other axes stay cut.
            along = [entry if k == one.plane.axis else None for k, entry in enumerate(view.domain.split)]
            return Domain(view.domain.grid, along).total(plane)
        total, area = self.total_and_area(view)
        return total if self.give == TOTAL else total / area

    def shape(self, grid):
        return tuple(n for axis, n in enumerate(grid.shape) if axis != self._across) if self.give == MAP else ()

    def spec(self, domain):
        names = (name for axis, name in enumerate(domain.spec()) if axis != self._across)
        return PartitionSpec(*names) if self.give == MAP else PartitionSpec()

    @property
    def _across(self) -> int:
        return self.crossings[0].plane.axis

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def refusals(cls, of, given, site):
        yield from super().refusals(of, given, site)
        box = isinstance(given["through"], dict) and "lower" in given["through"]
        if given["give"] != TOTAL and box:
            yield Refusal("give", f"{TOTAL} of what leaves a box, or one plane", given["give"])
        if PART in given and (box or given["give"] == MAP):
            yield Refusal(PART, "none with a box or a map, which has all faces of a plane", given[PART])

    @classmethod
    def readings(cls, source, written):
        return {f"{name}_flux": () for name in source.of}

    @classmethod
    def along_cells(cls, source, ndim):
        through = source.given["through"]
        across = through[0] if isinstance(through, str) else next(iter(through))
        return tuple(k for k in range(ndim) if AXES[k] != across) if source.given["give"] == MAP else ()

    @classmethod
    def made(cls, source, run):
        grid, schema, model, give = run.domain.grid, run.config.schema, run.model, source.given["give"]
        faces, told = cls.known_crossings(source, run, source.given["through"]), model.flux_measures()
        found: dict[str, tuple[Instrument, Output]] = {}
        waves = bool(model.energy_flux_along(0))
        if waves and (give != TOTAL or source.given.get(PART)):
            raise ConfigurationError(
                f"outputs, {source.name}: expected the total energy of waves through all of a plane or out of a box; "
                "leave give and part out."
            )
        for name in source.of:
            units = product_of_units(told[name].units, to_the_power(schema.time_units, -1))
            if give != TOTAL:
                area = to_the_power(schema.length_units, 1 - grid.ndim - grid.axisymmetric)
                units = product_of_units(units, area)
            about = f"{told[name].long_name} {_where(source.given['through'])}"
            about += {TOTAL: "", MEAN: ", mean over the area", MAP: ", per area"}[give]
            variable = f"{name}_flux"
            if waves:
                periodic = tuple(side.periodic for side in run.config.boundaries)
                one = WavePower.through(variable, faces, model, periodic, _written(source.given["through"]))
                found[variable] = one, Output(variable, (), units, about)
                continue
            offset = model.flux_offset(name)
            found[variable] = cls(variable, name, faces, offset, give), Output(variable, offset, units, about)
        return found

    def layout(self, source, output, grid, units):
        attributes = {"through": _written(source.given["through"])}
        if self.give != MAP:
            return Layout(attributes=attributes)
        dims, along = cell_coordinates(grid, output, self.along_cells(source, grid.ndim), units)
        axis, number = self.crossings[0].plane
        faces = np.append(grid.coordinates(axis, 0.0), grid.upper[axis])
        about = {"units": units, **place_attributes(grid, axis, "plane")}
        return Layout(dims, (*along, Coordinate(AXES[axis], (), np.asarray(faces[number]), about)), attributes)


def _written(through: Any) -> str:
    return through if isinstance(through, str) else ", ".join(f"{key}={at}" for key, at in through.items())


def _where(through: Any) -> str:
    if isinstance(through, str):
        return f"that enters through the {through[2:]} {through[0]} side"
    if "lower" in through:
        return "that leaves a box"
    return f"that passes {_place(through)}"


def _place(plane: Any) -> str:
    ((axis, place),) = plane.items()
    return f"{axis}={place:g}"


@instrument("nusselt")
class Nusselt(ThroughFaces):
    """The Nusselt number Nu = q L / (k D): q mean flux, k coefficient of conduction, D a difference, L a length.

    q as that of `flux`. Of a concentration it is the Sherwood number.
    """

    @dataclasses.dataclass(frozen=True)
    class Keys:
        through: Any = key(Through(box=False), about="side or plane that is passed")
        difference: float = key(Real(formula=True), about="difference that conduction is formed with")
        length: float = key(Real(above=0.0, formula=True), about="length that conduction is formed with")
        part: Any = key(Part(), None, about="part of the plane")

    difference: float = eqx.field(static=True)
    length: float = eqx.field(static=True)

    def read(self, view):
        total, area = self.total_and_area(view)
        conduction = view.conductivities()[self.quantity]
        return total / area * (self.length / self.difference) / conduction

    @classmethod
    def names(cls, site):
        return [name for name in super().names(site) if not name.startswith(("momentum", "volume"))]

    @classmethod
    def default_names(cls, site):
        return cls.names(site)[:1]

    @classmethod
    def refusals(cls, of, given, site):
        yield from super().refusals(of, given, site)
        if given["difference"] == 0:
            yield Refusal("difference", "a difference that is not zero", 0.0)

    @classmethod
    def readings(cls, source, written):
        return {_named("nusselt", name, source.of): () for name in source.of}

    @classmethod
    def made(cls, source, run):
        faces, model = cls.known_crossings(source, run, source.given["through"]), run.model
        known = jax.eval_shape(model.conductivities, run.described_params)
        found: dict[str, tuple[Instrument, Output]] = {}
        for name in source.of:
            if name not in known:
                able = f"one of {', '.join(known)}" if known else "a model with a coefficient of conduction"
                raise ConfigurationError(
                    f"outputs, {source.name}: expected {able}, and got {name}, which is not conducted with one number; "
                    "read its flux."
                )
            variable = _named("nusselt", name, source.of)
            through = source.given["through"]
            place = f"at the {through[2:]} {through[0]} side" if isinstance(through, str) else f"at {_place(through)}"
            about = f"Nusselt number {place}" if len(source.of) == 1 else f"Nusselt number of {name} {place}"
            numbers = (float(source.given[key]) for key in ("difference", "length"))
            one = cls(variable, name, faces, model.flux_offset(name), *numbers)
            found[variable] = one, Output(variable, (), "1", about)
        return found


def _named(kind: str, name: str, of: tuple[str, ...]) -> str:
    return kind if len(of) == 1 else f"{kind}_{name}"


FRICTION_VELOCITY, Y_PLUS, LARGEST, COEFFICIENT = (
    "friction_velocity",
    "y_plus",
    "y_plus_largest",
    "friction_coefficient",
)
