"""The instrument that reads forces on bodies as coefficients of drag and lift."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.instrument import Instrument
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import Real, key
from simjax.schema.site import PerAxis, Refusal

DRAG, LIFT = "drag_coefficient", "lift_coefficient"


@instrument("force_coefficients")
class ForceCoefficient(Instrument):
    """C = 2 F . e / (rho U^2 S) of the force F on all bodies: along the stream drag, across it lift.

    U: `speed`. S: `size`, in a plane a length and in space an area. rho: `density`, 1 in a flow, whose forces are over
    density. e: the direction of the stream, or that of lift, to which it is turned by a right angle counterclockwise.
    """

    variable: str = eqx.field(static=True)
    direction: tuple[float, ...] = eqx.field(static=True)
    scale: float = eqx.field(static=True)

    at_given_places, of_fields = True, False

    @dataclasses.dataclass(frozen=True)
    class Keys:
        speed: float = key(Real(above=0.0, formula=True), about="speed of the stream")
        size: float = key(Real(above=0.0, formula=True), about="length of the body in a plane, area in space")
        density: float = key(Real(above=0.0, formula=True), 1.0, about="density of the stream")
        stream: tuple[float, ...] | None = key(PerAxis(Real(formula=True)), None, about="direction of the stream")
        lift: tuple[float, ...] | None = key(PerAxis(Real(formula=True)), None, about="direction of lift in space")

    def read(self, view):
        told = view.diagnostics()
        force = [told[f"force_{axis}"] for axis in AXES[: len(self.direction)]]
        return sum(f * e for f, e in zip(force, self.direction, strict=True)) * jnp.asarray(self.scale, force[0].dtype)

    # ------------------------------------------------------------------ in configurations

    @classmethod
    def unavailable(cls, site):
        if not site.schema.along_bodies:
            return f"model={site.schema.name} has no bodies; expected a flow or a gas with coefficients.solid"
        bodies = next(field.name for field in site.schema.coefficients if field.distance)
        if bodies in (site.sections["coefficients"] or {}):
            return ""
        return f"expected bodies, on which forces act; write coefficients.{bodies}, or leave this out"

    @classmethod
    def refusals(cls, of, given, site):
        for name in ("stream", "lift"):
            if name in given and not any(given[name]):
                yield Refusal(name, "a direction, of which some number is not zero", list(given[name]))
        if "lift" in given and site.ndim != 3:
            yield Refusal("lift", "none in a plane, where lift is across the stream", list(given["lift"]))

    @classmethod
    def readings(cls, source, written):
        axes = len(source.given["stream"]) if "stream" in source.given else 0
        return {name: () for name in (DRAG, *([LIFT] if "lift" in source.given or axes == 2 else []))}

    @classmethod
    def made(cls, source, run):
        given, ndim = source.given, run.domain.grid.ndim
        if "force_x" not in run.seen_shapes[1]:
            raise ConfigurationError(f"outputs, {source.name}: this run tells no force on bodies; leave it out.")
        scale = 2 / (given["density"] * given["speed"] ** 2 * given["size"])
        return {
            name: (cls(name, direction, scale), Output(name, (), "1", about))
            for name, direction, about in (
                (DRAG, _unit(given["stream"]), "drag coefficient"),
                (LIFT, _lift(given, ndim), "lift coefficient"),
            )
            if name in cls.readings(source, {})
        }

    @classmethod
    def completed(cls, given, site):
        along = (1.0,) + (0.0,) * (site.ndim - 1)
        return {"stream": along} | dict(given)


def _unit(direction) -> tuple[float, ...]:
    length = math.hypot(*direction)
    return tuple(float(e) / length for e in direction)


def _lift(given, ndim: int) -> tuple[float, ...]:
    if ndim == 2:
        x, y = _unit(given["stream"])
        return (-y, x)
    return _unit(given["lift"]) if "lift" in given else (0.0,) * ndim
