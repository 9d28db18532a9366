"""Physics keys of models of particles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.config.kinds import Choice, ListOf, Real, entry
from simjax.config.model_schema import DIRECT, ModelSchema
from simjax.config.particle_sections import ParticlesConfig, check_beside


@dataclass(frozen=True)
class MolecularDynamicsPhysics:
    """m_i d^2 x_i/dt^2 = -dU/dx_i, U a sum over pairs nearer than the cutoff."""

    potential: str = entry(Choice(("lennard_jones",)), "lennard_jones")
    epsilon: float = entry(Real(low=0.0), 1.0, about="depth of the potential, an energy")
    sigma: float = entry(Real(above=0.0), 1.0, about="distance at which it vanishes, a length")
    mode: str = entry(
        Choice(("truncated", "shifted", "force_shifted")), "truncated", about="what stays continuous at the cutoff"
    )
    cutoff: float = entry(Real(above=0.0), 2.5, about="a length", fixed=True)
    dynamics: str = entry(
        Choice(("nve", "langevin", "nose_hoover")), "nve", about="nve: at constant energy; else at constant temperature"
    )
    bath_temperature: float = entry(Real(above=0.0), 1.0, about="of a thermostat, in units of energy")
    friction: float = entry(Real(above=0.0), 1.0, about="of langevin, 1/time")
    period: float = entry(Real(above=0.0), 0.5, about="in which nose_hoover responds, a time")
    mass: tuple[float, ...] = entry(ListOf(Real(above=0.0), 1, 100, noun="masses, one per species"), (1.0,))


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences of any model of particles, and about lists that have one entry per species."""
    yield from check_beside(config)
    mass, species = config.physics.mass, len(config.particles.fractions)
    if len(mass) not in (1, species):
        yield "physics.mass", f"physics.mass = {list(mass)}: expected 1 or {species} number(s), one per species"


def _steady(config: Any) -> tuple[str, ...]:
    """Without a thermostat the energy, and in a periodic box the momentum."""
    if config.physics.dynamics != "nve":
        return ()
    return ("energy", "momentum") if all(config.box.periodic) else ("energy",)


SCHEMAS: tuple[ModelSchema, ...] = (
    ModelSchema(
        "molecular_dynamics",
        MolecularDynamicsPhysics,
        fields=(),
        walls={},
        diagnosed=lambda ndim: ("position", "velocity", "image"),
        least_axes=2,
        integrators=DIRECT,
        limited=False,
        forced=(),
        check=_check,
        particles=ParticlesConfig,
        steady=_steady,
    ),
)
