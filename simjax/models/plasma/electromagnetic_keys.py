"""Keys of plasmas of particles whose currents radiate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.models.plasma.keys import ChargedParticlesConfig, ChargedPhysics, check_charged
from simjax.schema.kinds import ListOf, Real, entry
from simjax.schema.model_schema import DIRECT, FieldSchema, ModelSchema


@dataclass(frozen=True)
class RadiatingParticlesConfig(ChargedParticlesConfig):
    """The section `particles` of an electromagnetic plasma: also how fast, with all three components.

    A species is warm where it is at rest, gamma v normal, and moves with its drift; so does `initial.velocity`.
    """

    drift: tuple[tuple[float, ...], ...] = entry(
        ListOf(ListOf(Real(), 3, 3, noun="components"), 1, 100, noun="velocities, one per species"),
        ((0.0, 0.0, 0.0),),
    )


@dataclass(frozen=True)
class ElectromagneticPlasmaPhysics(ChargedPhysics):
    """dx/dt = u / gamma, m du/dt = q (E + v x B); eps dE/dt = curl H - J, mu dH/dt = -curl E, eps mu = 1 / c^2."""

    speed_of_light: float = entry(Real(above=0.0), 1.0, about="c")


def _check(config: Any) -> Iterator[tuple[str, str]]:
    yield from check_charged(config)
    light, ndim = config.physics.speed_of_light, config.ndim
    for number, drift in enumerate(config.particles.drift):
        speed = math.hypot(*drift)
        if speed >= light:
            path = f"particles.drift[{number}]"
            yield path, f"{path} = {list(drift)}: a speed of {speed:.3g}; expected less than that of light, {light:g}"
    if config.arrangement.steps not in (None, 1):
        yield (
            "arrangement.steps",
            f"arrangement.steps = {config.arrangement.steps}: expected 1 or null, particles are arranged in every step",
        )
    dt, cells, box = config.time.dt, config.physics.field_cells, config.box
    if dt is None or len(cells) != ndim:
        return
    steepest = math.hypot(*(n / (b - a) for a, b, n in zip(box.lower, box.upper, cells, strict=True)))
    if light * steepest * dt > 1:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: waves at the speed {light:g} need steps of at most {1 / (light * steepest):.3g} on "
            f"these cells; write {0.9 / (light * steepest):.2g} or less, or fewer physics.field_cells",
        )


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "electromagnetic_plasma",
        ElectromagneticPlasmaPhysics,
        fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True, whole=True)),
        walls={},
        diagnosed=lambda ndim: ("position", "velocity", "image"),
        least_axes=2,
        most_axes=2,
        integrators=DIRECT,
        limited=False,
        forced=(),
        check=_check,
        particles=RadiatingParticlesConfig,
        steady=lambda config: ("energy",),  # fields have momentum too
    ),
)
