"""Plasmas of particles whose currents radiate, from a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from simjax.models.measures import of_particles
from simjax.models.particle_model import particle_model
from simjax.models.plasma.boris import boosted, lorentz_factor
from simjax.models.plasma.electromagnetic import CONSERVED, ElectromagneticPlasma, Params, light_speed, sorting_refusals
from simjax.models.plasma.electrostatic_setup import (
    ChargedFamily,
    ChargedParticlesConfig,
    ChargedPhysics,
    check_charged,
)
from simjax.schema.kinds import ListOf, Real, key
from simjax.schema.model_schema import FieldSchema


@dataclass(frozen=True)
class RadiatingParticlesConfig(ChargedParticlesConfig):
    """The section `particles` of an electromagnetic plasma: also how fast, with all three components.

    A species is warm where it is at rest, gamma v normal, and moves with its drift; so does `initial.velocity`.
    """

    drift: tuple[tuple[float, ...], ...] = key(
        ListOf(ListOf(Real(), 3, 3, noun="components"), 1, 100, noun="velocities, one per species"),
        ((0.0, 0.0, 0.0),),
        about="mean velocity of a species",
    )


@dataclass(frozen=True)
class ElectromagneticPlasmaPhysics(ChargedPhysics):
    """dx/dt = u / gamma, m du/dt = q (E + v x B); eps dE/dt = curl H - J, mu dH/dt = -curl E, eps mu = 1 / c^2."""

    speed_of_light: float = key(Real(above=0.0), 1.0, about="c")


def _check(config: Any) -> Iterator[tuple[str, str]]:
    yield from check_charged(config)
    light, ndim = config.physics.speed_of_light, config.ndim
    for number, drift in enumerate(config.particles.drift):
        speed = math.hypot(*drift)
        if speed >= light:
            path = f"particles.drift[{number}]"
            yield path, f"{path} = {list(drift)}: a speed of {speed:.3g}; expected less than that of light, {light:g}"
    yield from sorting_refusals(config.neighbor_list.rebuild_every)
    dt, cells, box = config.time.dt, config.physics.mesh_cells, config.box
    if dt is None or len(cells) != ndim:
        return
    steepest = math.hypot(*(n / (b - a) for a, b, n in zip(box.lower, box.upper, cells, strict=True)))
    if light * steepest * dt > 1:
        yield (
            "time.dt",
            f"time.dt = {dt:g}: waves at the speed {light:g} need steps of at most {1 / (light * steepest):.3g} on "
            f"these cells; write {0.9 / (light * steepest):.2g} or less, or fewer physics.mesh_cells",
        )


@particle_model(
    "electromagnetic_pic",
    fields=(FieldSchema("displacement", vector=True), FieldSchema("velocity", vector=True, whole=True)),
    least_axes=2,
    most_axes=2,
    check=_check,
    balanced=lambda ndim, counts: CONSERVED,
)
class ElectromagneticFamily(ChargedFamily):
    """Electromagnetic plasmas in a plane."""

    Keys = ElectromagneticPlasmaPhysics
    Section = RadiatingParticlesConfig

    seconds = (1e-6, 1e-9)

    @property
    def measures(self):
        fields = {f"{field}_energy": f"{field} energy" for field in ("magnetic", "electric")}
        shown = {**fields, "kinetic_energy": "kinetic energy", "energy": "energy"}
        return of_particles(shown, ("energy",))  # fields have momentum too

    @property
    def _components(self):
        return 3

    def _steps(self, cell):
        return 1

    def model(self, cells, capacities, values):
        charge, mass, permittivity, magnetic = self._charged(values)
        permeability = 1 / (permittivity * values["speed_of_light"] ** 2)
        # Its domain is a property, which the checker of types takes for a field.
        model = ElectromagneticPlasma(cells, self._finer(cells))  # pyright: ignore[reportCallIssue]
        return model, Params(charge, mass, permittivity, magnetic, permeability=permeability)

    def state(self, model, params, values, files, member):
        particles, species = self._particles, files["species"]
        assert isinstance(particles, RadiatingParticlesConfig)
        place, moving = self._disturbed(values, files["position"])
        drift = jnp.asarray(self._of_each(particles.drift), place.dtype)
        frame = drift[species].T + moving
        velocity = boosted(self._warm(files, member), frame, values["speed_of_light"])
        state, lost = model.state_from(place, velocity, species, params)
        return state, lost, jnp.zeros((), jnp.int32)

    def seen(self, model, state, params):
        return model.synchronised(state, params)

    def arrays(self, model, state, params):
        return {"velocity": state.velocity / lorentz_factor(state.velocity, light_speed(params))[None]}
