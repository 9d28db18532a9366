"""The operators of the instruments of a run of particles, and descriptions of what they read."""

from __future__ import annotations

from typing import Any

from simjax.core.model import Output
from simjax.driver.output.instrument import Instrument, balance_instrument
from simjax.driver.programs.programs_of_particles import CompiledParticles
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.instruments.operators import Instrumental
from simjax.instruments.particle_operators import (
    MeanSquareDisplacement,
    MeshTemperature,
    MeshVelocity,
    NumberDensity,
    RadialDistribution,
    Tracks,
)
from simjax.schema.instruments import InstrumentConfig


def instrument_of_particles(source: InstrumentConfig, programs: CompiledParticles) -> Instrument:
    """The operators of an instrument that looks at particles, and what each reads."""
    name, given = source.kind, source.given
    if name == "balance":
        return balance_instrument(source, programs.model)
    if name == "tracks":
        return Instrument(source, *_tracks(source, programs))
    if name == "density":
        return Instrument(source, *_on_mesh(source, programs))
    if name == "radial_distribution":
        operator: Instrumental = RadialDistribution(radii=given["radii"], width=given["width"])
        about = "pairs at a distance, over those of independent particles"
    else:
        operator = MeanSquareDisplacement(lengths=programs.domain.grid.lengths)
        about = "mean over particles of the squared distance from where each started"
    return Instrument(source, {name: operator}, {name: Output(name, (), "1", about)})


def _tracks(source: InstrumentConfig, programs: CompiledParticles) -> tuple[dict[str, Any], dict[str, Output]]:
    """The places and velocities of tagged particles."""
    ids = source.given["ids"]
    if max(ids) >= programs.size:
        raise ConfigurationError(
            f"outputs: {source.name} has ids with {max(ids)}: expected numbers from 0 to {programs.size - 1}, as there "
            f"are {programs.size} particles."
        )
    about = {"position": "place, beyond the box where it went on", "velocity": "velocity"}
    known = {name: text for name, text in about.items() if name in programs.variable_names}
    operators = {name: Tracks(name, ids, programs.domain.grid.lengths) for name in known}
    return operators, {name: Output(name, (), "1", text) for name, text in known.items()}


def _on_mesh(source: InstrumentConfig, programs: CompiledParticles) -> tuple[dict[str, Any], dict[str, Output]]:
    """The number, the mean velocity and the temperature of the particles in the cells of a mesh."""
    cells, family = source.given["shape"], programs.family
    varied = [one.path for one in programs.config.ensemble.vary if one.path in family.mass_keys]
    if varied and "temperature" in source.of:
        raise ConfigurationError(
            f"outputs: {source.name} of temperature expects masses that are the same in all members, and {varied[0]} "
            "varies; leave temperature out."
        )
    operators, mass = {}, family.mass(programs.start_of)
    if "number_density" in source.of:
        operators["number_density"] = NumberDensity(cells=cells)
    if "velocity" in source.of:
        for axis in range(len(cells)):
            name = f"mean_velocity_{AXES[axis]}"
            operators[name] = MeshVelocity(cells=cells, axis=axis, mass=mass, variable=name)
    if "temperature" in source.of:
        operators["temperature"] = MeshTemperature(cells=cells, mass=mass)
    about = {"number_density": "particles per volume", "temperature": "temperature of velocities about their mean"}
    texts = {name: about.get(name, name.replace("_", " ")) for name in operators}
    return operators, {name: Output(name, (), "1", f"{text}, by clouds in cells") for name, text in texts.items()}
