"""One run of an inverse problem: its fields, its instruments, and the residuals between these."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.config.read_stretched_grid import parameters_of_grid
from simjax.driver.differentiable_run import DifferentiableRun, Guess
from simjax.errors import ConfigurationError
from simjax.inverse.problem_instruments import Measured, Observation, instruments_of
from simjax.inverse.shooting import MultipleShooting
from simjax.parallel import place, shardings
from simjax.schema.config import Config
from simjax.schema.inverse import ExperimentConfig, InverseConfig, value_name
from simjax.stepping.checkpointing.plan import Checkpoint

Physical = dict[str, Any]
"""Path of an unknown ("physics.viscosity", "initial.velocity", "modules.closure") -> a number, a tuple of components,
or a module: its weights outside of the run, all of it inside."""


class Experiment:
    """A run with unknowns in it, on this device's blocks, and the instruments that are read in it.

    Args:
        config: of this run. fields: paths of the unknowns that are fields.
        described: of this run among several; None: it is the only one, and has no name.
        instruments: those of this run, with what they measured; None: as the configuration has them.
    """

    def __init__(
        self,
        config: Config,
        fields: tuple[str, ...],
        described: ExperimentConfig | None = None,
        *,
        sizes: Mapping[str, int] | None,
        checkpoint: Checkpoint,
        instruments: list[Observation] | None = None,
    ):
        assert config.inverse is not None
        self.name = "" if described is None else described.name
        self.config = config if described is None else described.of(config)
        guess = _guess(config.inverse, fields)
        made_of = {f"parameters.{name}" for name in parameters_of_grid(self.config.grid)}
        self.rollout = DifferentiableRun(
            self.config,
            sizes=sizes,
            given=fields,
            checkpoint=checkpoint,
            guess=guess,
            moving=any(unknown.path in made_of for unknown in config.inverse.unknowns),
        )
        self.pieces = MultipleShooting(self.rollout, config.inverse.shooting, fields)
        self.base = self.rollout.start_fields()
        self._fields = fields
        if instruments is None:
            instruments = self._described_instruments(config.inverse, described)
        own = (i for i in instruments if i.experiment == self.name)
        self.instruments = [i if i.measured is None else _checked(i) for i in own]

    def _described_instruments(self, inverse: InverseConfig, described: ExperimentConfig | None) -> list[Observation]:
        if described is None:
            return instruments_of(inverse.observations, self.rollout)
        section = f"inverse.experiments.{self.name}.observations" if described.observes else "inverse.observations"
        return instruments_of(described.observations, self.rollout, section=section, experiment=self.name)

    # ------------------------------------------------------------------ the run

    @property
    def structure(self) -> Hashable:
        """The key of the programs of the run and its residuals: all that they do not take as arguments."""
        return self.name, self.rollout.structure, self.pieces.structure, tuple(i.structure for i in self.instruments)

    def bare(self) -> Experiment:
        """A copy without arrays and measurements, to be kept with a compiled program."""
        bare = copy.copy(self)
        bare.rollout, bare.base = self.rollout.bare(), None
        bare.pieces = self.pieces.bare(bare.rollout)
        bare.instruments = [instrument.bare() for instrument in self.instruments]
        return bare

    def known(self) -> dict[str, Any]:
        """Numbers and fields of the run as the configuration has them: arguments of every program."""
        return {"values": self.rollout.start_values(), "fields": self.base}

    def known_specs(self) -> dict[str, Any]:
        """The partition of `known`."""
        return {"values": PartitionSpec(), "fields": self.rollout.field_specs()}

    def inputs(self, physical: Physical, known) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        """(values, fields) of the run with these unknowns in the place of what is `known`."""
        values = {name: jnp.asarray(value) for name, value in known["values"].items()}
        fields = {section: dict(own) for section, own in known["fields"].items()}
        for path, u in physical.items():
            section, name = path.split(".", 1)
            if path in self._fields or section == "modules":
                fields.setdefault(section, {})[name] = u
            else:
                values[value_name(path)] = u
        return values, fields

    def taken(self, physical: Physical, known) -> Physical:
        """Fields among the unknowns as the run begins with them, those that its model may change."""
        values, fields = self.inputs(physical, known)
        found = self.rollout.taken(values, fields)
        return {path: u for path, u in found.items() if path in self._fields}

    def series(self, physical: Physical, known) -> tuple[dict[str, Array], Array]:
        """`(frames + 1, ...)` per instrument, what it reads in a run in one piece; and the run's status."""
        trajectory, start = self.rollout.run(*self.inputs(physical, known), self._read)
        together = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
        return together, trajectory.clock.status

    def series_in_pieces(self, physical: Physical, known) -> dict[str, Array]:
        """Read every instrument in a run that was cut into pieces: what `series` gives, without the status."""
        return self.pieces.run(*self.inputs(physical, known), self._read)[0]

    def residuals(self, physical: Physical, given) -> tuple[dict[str, Array], Any, Array]:
        """Residuals by instrument and at joints, in standard deviations, and the status.

        given: `known`, and what was "measured" by instrument, and the "scales" of joints.
        """
        series, joints, status = self.pieces.run(*self.inputs(physical, given), self._read, given["scales"])
        measured = given["measured"]
        return {i.name: i.residuals(series[i.name], measured[i.name]) for i in self.instruments}, joints, status

    def _read(self, model, t, state, params, values) -> dict[str, Array]:
        """Reading of every instrument in a state."""
        seen = {output.name: output for i in self.instruments for output in i.seen}
        view = self.rollout.programs.view(model, t, state, params, values, [*seen.values()])
        return {i.name: i.operator.read(view) for i in self.instruments}

    # ------------------------------------------------------------------ measurements

    def measure(self, series: Mapping[str, Array], first: int) -> None:
        """Give every instrument that has measured nothing what it reads in `series`, with noise.

        first: the number of the first of them among those of all experiments, so that each has noise of its own.
        """
        dtype = self.rollout.dtype
        self.instruments = [
            i if i.measured is not None else _checked(_measured(i, series[i.name], [self.config.seed, k], dtype))
            for k, i in enumerate(self.instruments, start=first)
        ]

    def placed_measurements(self) -> dict[str, Measured]:
        """The measurements of every instrument, placed on the mesh."""
        placed = {i.name: i.measurements(self.rollout.dtype) for i in self.instruments}
        return jax.tree.map(place, placed, shardings(self.rollout.mesh, self.measured_specs()))

    def series_specs(self) -> dict[str, PartitionSpec]:
        """The partition of `series`."""
        return {i.name: PartitionSpec(None, *i.operator.spec(self.rollout.domain)) for i in self.instruments}

    def measured_specs(self) -> dict[str, Measured]:
        """The partition of `placed_measurements`."""
        return {i.name: i.measured_spec(self.rollout.domain) for i in self.instruments}


def _measured(instrument: Observation, series: Array, seed: list[int], dtype) -> Observation:
    """Readings in the run of the truth, with noise."""
    exact = np.asarray(instrument.at_times(series))
    made = dataclasses.replace(instrument, measured=exact)
    noise = np.random.default_rng(seed).standard_normal(exact.shape)
    noisy = (exact + made.standard_deviation() * noise).astype(dtype)
    # The deviation stays that of the exact values, a number.
    source = dataclasses.replace(instrument.source, deviation=float(made.standard_deviation()), fraction=None)
    return dataclasses.replace(instrument, measured=noisy, source=source)


def _checked(instrument: Observation) -> Observation:
    assert instrument.measured is not None
    present = True if instrument.present is None else instrument.present
    bad = np.argwhere(~np.isfinite(instrument.measured) & present)
    if len(bad):
        raise ConfigurationError(
            f"inverse.observations: {instrument.name} holds {instrument.measured[tuple(bad[0])]} at "
            f"t={instrument.times[bad[0][0]]:g}, index {tuple(int(i) for i in bad[0][1:])}; leave out what was not "
            "measured."
        )
    return instrument


def _guess(inverse: InverseConfig, fields: tuple[str, ...]) -> Guess:
    """Numbers and formulas of fields where the search begins, of the unknowns that have a guess of their own."""
    given = [unknown for unknown in inverse.unknowns if unknown.guess is not None]
    numbers = {
        unknown.value_name: constant
        for unknown in given
        if unknown.path not in fields and unknown.guess and (constant := unknown.guess[0].constant) is not None
    }
    return numbers, {unknown.path: unknown.guess for unknown in given if unknown.path in fields}
