"""Molecules of a file: species, masses, charges, bonds and angles as the configuration has a place for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from simjax.errors import ConfigurationError
from simjax.io.particle_contents import FileParticles
from simjax.io.particle_files import read_particles
from simjax.models.capacities import bounds_of
from simjax.models.particles_of_file import (
    Difference,
    box_differences,
    listed_numbers,
    require_inside,
    require_masses,
    require_same,
    same,
)
from simjax.models.placement import Start, species_of
from simjax.particles.id_lookup import ends_of, partners_of
from simjax.schema.config import Config
from simjax.schema.particles import ParticlesConfig

MOST_SPECIES = 100


def start_from_file(config: Config) -> Start:
    """The particles of `particles.file`, with `partners` and `ends` of bonds and angles among the others.

    Raises:
        ConfigurationError: the file and the configuration differ, or it holds what cannot be used.
        InputOutputError: the file cannot be read.
    """
    particles = config.particles
    assert isinstance(particles, ParticlesConfig) and particles.file is not None
    file, found = particles.file, read_particles(particles.file, config.ndim)
    position = found.arrays["position"].T
    count, length = position.shape[1], particles.chain_length or 1
    if count % length:
        raise ConfigurationError(
            f"particles.file={file}: {count} particles, expected a multiple of particles.chain_length={length}; a "
            "chain's stand one after the other."
        )
    species = found.arrays.get("species")
    if species is None:
        species = species_of(count // length, particles.fractions, config.seed).repeat(length)
    if species.max() >= MOST_SPECIES:
        raise ConfigurationError(
            f"particles.file={file}: a species {species.max()}; expected numbers from 0 to {MOST_SPECIES - 1}, each "
            "with an entry of particles.fractions."
        )
    require_same(file, [*box_differences(config, found), *_differences(config, found, species)])
    require_inside(file, bounds_of(config), position)
    others = {"velocity": found.arrays["velocity"].T} if "velocity" in found.arrays else {}
    if "bonds" in found.arrays:
        others["partners"] = partners_of(count, found.arrays["bonds"])
    if "angles" in found.arrays:
        others["ends"] = ends_of(count, found.arrays["angles"])
    return Start(position, species.astype(np.int32), others, found.notes)


def _differences(config: Config, found: FileParticles, species: np.ndarray) -> Iterator[Difference]:
    physics, particles, said = config.physics, config.particles, found.arrays
    assert isinstance(particles, ParticlesConfig) and particles.file is not None
    counts = np.bincount(species, minlength=len(particles.fractions))
    if len(counts) > len(particles.fractions):
        # Shares are about those of the file; only their number counts.
        shares = np.round(np.maximum(counts, 1) / np.maximum(counts, 1).sum(), 6)
        shares[-1] = 1 - shares[:-1].sum()
        yield Difference.of("particles.fractions", particles.fractions, shares)
    if "mass" in said:
        require_masses(particles.file, said["mass"])
        there = _of_species(particles.file, "mass", said["mass"], species, physics.mass, len(counts))
        if not _same_numbers(physics.mass, there):
            yield Difference.of("physics.mass", physics.mass, there)
    charges = physics.charges
    if "charge" in said and (charges is not None or np.any(said["charge"])):
        given = (0.0,) if charges is None else charges.species
        there = _of_species(particles.file, "charge", said["charge"], species, given, len(counts))
        if charges is None:
            listed = listed_numbers(there)
            yield Difference("physics.charges", "null", listed, f"physics.charges={{species: {listed}}}")
        elif not _same_numbers(given, there):
            yield Difference.of("physics.charges.species", given, there)
    yield from _bond_differences(config, found)


def _same_numbers(here: Sequence[float], there: np.ndarray) -> bool:
    """Tell whether numbers, one for all species or one for each, are those of a file."""
    return len(here) in (1, len(there)) and same(np.asarray(here), there)


def _of_species(
    file: str, name: str, values: np.ndarray, species: np.ndarray, given: Sequence[float], count: int
) -> np.ndarray:
    """The number that all particles of a species have, `(count,)`; of one without particles the configured number."""
    found = np.resize(np.asarray(given, np.float64), count)
    for kind in range(count):
        own = values[species == kind]
        if own.size and not same(own, own[:1]):
            raise ConfigurationError(
                f"particles.file={file}: species {kind} has a {name} from {own.min():g} to {own.max():g}; expected one "
                "for all of a species: write particles that differ as different species."
            )
        if own.size:
            found[kind] = own[0]
    return found


def _bond_differences(config: Config, found: FileParticles) -> Iterator[Difference]:
    """Differences of what is bonded: by the file or as chains, and by a potential or not."""
    physics, particles, said = config.physics, config.particles, found.arrays
    assert isinstance(particles, ParticlesConfig)
    bonds, angles = (len(said.get(name, ())) for name in ("bonds", "angles"))
    if particles.chain_length is not None:
        if bonds or angles:
            here, there = str(particles.chain_length), f"{bonds} bonds and {angles} angles"
            yield Difference("particles.chain_length", here, there, "particles.chain_length=null")
        return
    for path, chosen, count, potential in (
        ("physics.bond", physics.bond, bonds, "harmonic"),
        ("physics.angle", physics.angle, angles, "harmonic"),
    ):
        if (chosen is None) != (count == 0):
            here = "null" if chosen is None else chosen.name
            there = f"{count or 'no'} {path.removeprefix('physics.')}s"
            yield Difference(path, here, there, f"{path}={potential}" if count else f"{path}=null")
