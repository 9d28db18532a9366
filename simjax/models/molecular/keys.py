"""Physics keys of models of particles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simjax.models.molecular.chain_keys import check_chains
from simjax.models.molecular.charge_keys import check_charges
from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Real, entry
from simjax.schema.model_schema import DIRECT, ModelSchema
from simjax.schema.particles import ParticlesConfig, check_beside, left_over

_MIXED = {"epsilon", "sigma", "species_epsilon", "species_sigma", "cross_epsilon", "cross_sigma"}
USED: dict[str, set[str]] = {
    "lennard_jones": _MIXED,
    "weeks_chandler_andersen": _MIXED,
    "soft_sphere": _MIXED | {"power"},
    "morse": {"epsilon", "steepness", "bond_length"},
    "yukawa": {"strength", "screening"},
    "stillinger_weber": {"epsilon", "sigma", "tetrahedrality"},
}
"""Potential -> the keys that it has."""
MIXED = tuple(name for name, keys in USED.items() if keys >= _MIXED)
"""Potentials of pairs with epsilon and sigma."""
OF_POTENTIALS = set[str]().union(*USED.values())
ENDS = {"weeks_chandler_andersen": 2 ** (1 / 6), "stillinger_weber": 1.8}
"""Potential that ends smoothly by itself -> where, in units of sigma."""


@dataclass(frozen=True)
class MolecularDynamicsPhysics:
    """m_i d^2 x_i/dt^2 = -dU/dx_i, U a sum over pairs nearer than the cutoff.

    Keys that the chosen potential has not are refused.
    """

    potential: str = entry(Choice(tuple(USED)), "lennard_jones")
    epsilon: float = entry(Real(low=0.0), 1.0, about="depth or scale of the potential, an energy")
    sigma: float = entry(Real(above=0.0), 1.0, about="scale of distances, a length: where lennard_jones vanishes")
    power: int = entry(Integer(1, 100), 12, about="of soft_sphere: epsilon (sigma / r)^power")
    steepness: float = entry(
        Real(above=0.0), 6.0, about="a of morse: epsilon ((1 - exp(-a (r - r_0)))^2 - 1), 1/length"
    )
    bond_length: float = entry(Real(above=0.0), 1.0, about="r_0 of morse, a length")
    strength: float = entry(Real(), 1.0, about="of yukawa: strength exp(-screening r) / r, energy times length")
    screening: float = entry(Real(low=0.0), 1.0, about="of yukawa, 1/length")
    tetrahedrality: float = entry(Real(low=0.0), 21.0, about="of stillinger_weber: lambda, 21 for silicon")
    species_epsilon: tuple[float, ...] | None = entry(
        ListOf(Real(low=0.0), 1, 100, optional=True, noun="numbers, one per species"),
        None,
        about="of each species with itself, in units of epsilon; null: alike",
    )
    species_sigma: tuple[float, ...] | None = entry(
        ListOf(Real(above=0.0), 1, 100, optional=True, noun="numbers, one per species"),
        None,
        about="of each species with itself, in units of sigma; null: alike",
    )
    cross_epsilon: tuple[float, ...] | None = entry(
        ListOf(Real(low=0.0), 1, 4950, optional=True, noun="numbers, one per pair of species"),
        None,
        about="of unlike species 01, 02, ..., 12, ..., in units of epsilon; null: geometric means",
    )
    cross_sigma: tuple[float, ...] | None = entry(
        ListOf(Real(above=0.0), 1, 4950, optional=True, noun="numbers, one per pair of species"), None,
        about="of unlike species, in units of sigma; null: means",
    )  # fmt: skip
    mode: str = entry(
        Choice(("truncated", "shifted", "force_shifted")), "truncated", about="what stays continuous at the cutoff"
    )
    cutoff: float = entry(Real(above=0.0), 2.5, about="a length", fixed=True)
    dynamics: str = entry(
        Choice(("nve", "langevin", "nose_hoover", "brownian")), "nve",
        about="nve: at constant energy; else at constant temperature; brownian: overdamped, velocities stay",
    )  # fmt: skip
    bath_temperature: float = entry(Real(above=0.0), 1.0, about="of a thermostat, in units of energy")
    friction: float = entry(Real(above=0.0), 1.0, about="of langevin and brownian, 1/time")
    period: float = entry(Real(above=0.0), 0.5, about="in which nose_hoover responds, a time")
    mass: tuple[float, ...] = entry(ListOf(Real(above=0.0), 1, 100, noun="masses, one per species"), (1.0,))
    walls: str = entry(
        Choice(("open", "reflecting")), "open",
        about="of axes that are not periodic; open: a particle that leaves is an error",
    )  # fmt: skip
    bond: str = entry(
        Choice(("none", "fene", "harmonic")), "none",
        about="between neighbours in chains of particles.chain_length, which leave each other out of the potential",
    )  # fmt: skip
    bond_stiffness: float = entry(
        Real(above=0.0), 30.0, about="k of fene, -k R_0^2 ln(1 - (r / R_0)^2) / 2 with WCA, or of k (r - r_0)^2 / 2"
    )
    bond_extension: float = entry(Real(above=0.0), 1.5, about="R_0 of fene, a length that no bond reaches")
    bond_rest_length: float = entry(Real(above=0.0), 1.0, about="r_0 of harmonic bonds, a length")
    angle: str = entry(
        Choice(("none", "bending", "harmonic")), "none",
        about="of two bonds; bending: k (1 + cos theta); harmonic: k (theta - theta_0)^2 / 2",
    )  # fmt: skip
    angle_stiffness: float = entry(Real(low=0.0), 1.0, about="k of angles, an energy")
    rest_angle: float = entry(
        Real(low=0.0, high=math.pi, formula=True), math.pi, about="theta_0 of harmonic, in radians"
    )  # fmt: skip
    charge: tuple[float, ...] | None = entry(
        ListOf(Real(), 1, 100, optional=True, noun="charges, one per species"), None, about="null: none"
    )
    coulomb_constant: float = entry(
        Real(above=0.0), 1.0, about="1 / (4 pi eps): charges attract as coulomb_constant q_i q_j / r, with all images"
    )
    electrostatics: str = entry(
        Choice(("mesh", "ewald")), "mesh", about="of charges beyond the cutoff; ewald: wave by wave, for small boxes"
    )
    ewald_tolerance: float = entry(
        Real(1e-12, 0.1), 1e-3, about="erfc(alpha cutoff); waves and mesh are as fine as that asks for", fixed=True
    )
    background: bool = entry(Flag(), False, about="whether a uniform one may neutralise a net charge")


def _check(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences of any model of particles, and about lists that have one entry per species."""
    yield from check_beside(config)
    mass, species = config.physics.mass, len(config.particles.fractions)
    if len(mass) not in (1, species):
        yield "physics.mass", f"physics.mass = {list(mass)}: expected 1 or {species} number(s), one per species"
    if config.physics.walls == "reflecting" and all(config.box.periodic):
        yield (
            "physics.walls",
            "physics.walls = reflecting: expected an axis that is not periodic; write box.periodic with false for it",
        )
    yield from _check_potential(config.physics)
    yield from _check_mixture(config.physics, species)
    yield from check_charges(config)
    yield from check_chains(config, config.physics.potential in MIXED)


def _check_potential(physics: MolecularDynamicsPhysics) -> Iterator[tuple[str, str]]:
    """Keys of other potentials than the chosen one, and a cutoff that does not suit it."""
    used = USED[physics.potential]
    own = f"a potential {physics.potential} has no such number, but {', '.join(sorted(used))}; write one of these"
    yield from left_over(physics, sorted(OF_POTENTIALS - used), own)
    ends = ENDS.get(physics.potential)
    if ends is None:
        return
    if physics.mode != "truncated":
        yield (
            "physics.mode",
            f"physics.mode = {physics.mode}: expected truncated for a potential {physics.potential}, which is smooth "
            "where it ends",
        )
    reach = ends * physics.sigma * max(*(physics.species_sigma or (1.0,)), *(physics.cross_sigma or (0.0,)))
    if physics.cutoff < reach * (1 - 1e-9):
        yield (
            "physics.cutoff",
            f"physics.cutoff = {physics.cutoff:g}: a potential {physics.potential} reaches {reach:g}; write that or "
            "more",
        )


def _check_mixture(physics: MolecularDynamicsPhysics, species: int) -> Iterator[tuple[str, str]]:
    """Lists of as many entries as there are species, or pairs of them."""
    pairs = species * (species - 1) // 2
    mixed = physics.species_epsilon is not None or physics.species_sigma is not None
    for name, count in (("species", species), ("cross", pairs)):
        for of in ("epsilon", "sigma"):
            value = getattr(physics, f"{name}_{of}")
            if value is None:
                continue
            if len(value) != count:
                what = "species" if name == "species" else "pair of species"
                yield (
                    f"physics.{name}_{of}",
                    f"physics.{name}_{of} = {list(value)}: expected {count} number(s), one per {what} of "
                    "particles.fractions",
                )
            elif name == "cross" and not mixed:
                yield (
                    f"physics.{name}_{of}",
                    f"physics.{name}_{of} = {list(value)}: expected with physics.species_{of}; write "
                    f"species_{of}={[1.0] * species} for species that are alike",
                )


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
