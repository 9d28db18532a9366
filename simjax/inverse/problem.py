"""An inverse problem on configured simulations: unknowns, measurements, and the least squares between them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import require_kind, taken_over
from simjax.config import validate
from simjax.config.experiments import combined
from simjax.driver.start.mesh_choice import with_devices
from simjax.errors import ConfigurationError, NumericalError
from simjax.inverse.experiment_run import Experiment, Physical
from simjax.inverse.measured import with_files
from simjax.inverse.methods.least_squares import LeastSquares
from simjax.inverse.modules import Modules
from simjax.inverse.problem_instruments import Observation
from simjax.inverse.problem_programs import CompiledProblem, compiled
from simjax.inverse.unknowns_from_config import FIELD_SECTIONS, prior_of, transform_of
from simjax.models.closure import Closure
from simjax.notebook import line
from simjax.parallel import place, shardings, whole
from simjax.schema.config import Config
from simjax.schema.inverse import InverseConfig, value_name
from simjax.status import OK, reasons
from simjax.stepping.checkpointing.plan import Binomial, Budget, Checkpoint

if TYPE_CHECKING:
    from simjax.driver.simulation import Simulation


class InverseProblem:
    """Unknowns of a simulation to be found from measurements of it, or of several that share them.

    The loss is 1/2 |r|^2, where r are the differences between what instruments read in the run and what was measured,
    in standard deviations of the noise, and what the priors add; with noise and priors as they are meant, its minimum
    is the most probable answer. Of several experiments all residuals are in r, those of priors once. A snapshot's
    `target` counts as measured: then it is the best control, and priors are the price of power. Where nothing was
    measured, the configuration's own numbers and fields are the truth of a twin experiment: the instruments are read
    in that run, and noise is added.

    Args:
        simulation: a `Simulation`, or a configuration; several are the experiments of one problem.
        sizes: devices per mesh axis, in place of the configuration's.
        checkpoint: in place of `inverse.checkpoint`.
        instruments: with what they measured, in place of measuring again.
        modules: closures inside the model by name: those that are sought ("modules.closure" among the unknowns) as they
            are at the start, others as they are.
        true_modules: those of the truth of a twin experiment, where it is not the section `closure`.
        start: numbers and fields where the search begins, by path, in place of their `guess`: a number, an array of the
            grid's shape, a tuple of them for a vector.
        section: the keys of the section `inverse` as in a YAML file, where the simulation has none:
            `unknowns={"physics.viscosity": {"guess": 0.02, "positive": True}}, observations=[...], solver={...}`. An
            observation may have `data` in the place of `file`: an array, times first, or a dataset of xarray. `outputs`
            are entries beside those of the simulation.

    Problems that differ in what was measured, in noise, start or numbers alone share their compiled programs.

    Raises:
        ConfigurationError: an unknown that no measurement depends on, an instrument outside of the grid or the run,
            not a number among the measurements.

    Examples:
        >>> dye = sj.load("dye", ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.1"])
        >>> problem = sj.InverseProblem(
        ...     dye, unknowns={"physics.diffusivity": {"guess": 0.02, "positive": True}},
        ...     outputs=[{"probe": {"points": [[0.5, 0.5]]}, "of": "concentration"}],
        ...     observations=[{"output": "probe", "deviation": 0.01}],
        ... )
        >>> problem.instruments[0].measured.shape  # times, points
        (1, 1)
    """

    def __init__(
        self,
        simulation: Simulation | Config | Sequence[Simulation | Config],
        *,
        sizes: Mapping[str, int] | None = None,
        checkpoint: Checkpoint | None = None,
        instruments: list[Observation] | None = None,
        modules: Mapping[str, Closure] | None = None,
        true_modules: Mapping[str, Closure] | None = None,
        start: Mapping[str, Any] | None = None,
        **section: Any,
    ):
        config = _posed(simulation, section)
        config = with_devices(config)
        if config.inverse is None:
            raise ConfigurationError("inverse: expected a section with unknowns and observations; write one.")
        self.config, self.inverse = config, config.inverse
        _check_together(self.inverse)
        self.unknowns = {unknown.path: unknown for unknown in config.inverse.unknowns}
        self.fields = tuple(path for path, unknown in self.unknowns.items() if unknown.section in FIELD_SECTIONS)
        self.transforms = {path: transform_of(unknown, config) for path, unknown in self.unknowns.items()}
        self.priors = {path: prior_of(u, config) for path, u in self.unknowns.items() if u.prior is not None}
        self.checkpoint: Checkpoint = _plan(self.inverse) if checkpoint is None else checkpoint
        self.experiments = [
            Experiment(config, self.fields, described, sizes=sizes, checkpoint=self.checkpoint, instruments=instruments)
            for described in self.inverse.experiments or (None,)
        ]
        # The unknowns, the mesh and the model are the same in all of them.
        first = self.experiments[0]
        self.rollout, self.pieces, self._base = first.rollout, first.pieces, first.base
        self.domain, self.mesh, self.dtype = self.rollout.domain, self.rollout.mesh, self.rollout.dtype
        described = [instrument for experiment in self.experiments for instrument in experiment.instruments]
        self.is_twin = not any(i.source.target or i.given for i in described)
        self._measured = False
        self._to_measure = any(instrument.measured is None for instrument in described)
        self.modules = Modules(config, modules or {}, true_modules or {})
        self._chosen_start = self._as_unknowns(start or {})

    def __repr__(self) -> str:
        return line("InverseProblem", rows_of(self.config))

    @property
    def instruments(self) -> list[Observation]:
        """Instruments of all experiments.

        Raises NumericalError where the run of the truth fails.
        """
        if not self._measured:
            series = self.series(self.truth()) if self._to_measure else {}
            first = 0
            for experiment in self.experiments:
                experiment.measure(series, first)
                first += len(experiment.instruments)
            self._measured = True
        return [instrument for experiment in self.experiments for instrument in experiment.instruments]

    @functools.cached_property
    def _programs(self) -> CompiledProblem:
        """The compiled functions; particles have as much room as the runs of truth and guess need."""
        programs = self._compiled()
        runs = [self.truth()] * self._to_measure + [self._first()] if self.rollout.programs.regrows else []
        for physical in runs:
            while self._enlarged(programs.series(physical, self._known())[1]):
                programs = self._compiled()
        return programs

    def _compiled(self) -> CompiledProblem:
        return compiled(self.experiments, self.modules, self.fields, self.transforms, self.priors)

    def _enlarged(self, statuses: Mapping[str, Array]) -> bool:
        """Enlarge capacities of cells and lists where a run lacked room; return whether one did."""
        return any([e.rollout.make_room(int(statuses[e.name])) for e in self.experiments])

    @property
    def numbers(self) -> tuple[str, ...]:
        """Paths of the unknowns that are numbers."""
        return tuple(path for path in self.unknowns if path not in self.fields and path not in self.modules.weights)

    @property
    def notes(self) -> list[str]:
        """Sentences about files that were converted or regridded on reading, without repetition."""
        of_runs = [note for experiment in self.experiments for note in experiment.rollout.notes]
        of_data = [note for experiment in self.experiments for i in experiment.instruments for note in i.notes]
        return list(dict.fromkeys([*of_runs, *of_data]))

    @property
    def end(self) -> float:
        """When the longest of the runs ends."""
        return max(experiment.config.time.end for experiment in self.experiments)

    # ------------------------------------------------------------------ truth and guess

    def truth(self) -> Physical:
        """The unknowns as the configuration has them, without weights of modules: the truth of a twin experiment."""
        return self._chosen(self.rollout.start_values(), self._base)

    def guess(self) -> Physical:
        """The unknowns at the start of the search."""
        formulas = {path: u.guess for path, u in self.unknowns.items() if path in self.fields and u.guess is not None}
        found = self._chosen(self.rollout.start_values(), self.rollout.start_fields(formulas))
        for path in self.numbers:
            if (guess := self.unknowns[path].guess) is not None:
                found[path] = np.asarray(guess[0].constant, self.dtype)
        return {**found, **self.modules.weights}

    def start(self) -> dict[str, Any]:
        """The latent of the guess, on the mesh; fields of a run in pieces have a leading axis of pieces."""
        return self._begun[0]

    def placed(self, tree):
        """A solver's state on the mesh; arrays that are on one device yet become the same on all.

        So the first step meets what later ones meet, and is not compiled by itself.
        """
        everywhere = shardings(self.mesh, PartitionSpec())

        def on_all(leaf):
            on_mesh = self.mesh is not None and len(leaf.sharding.device_set) == self.mesh.size
            return place(leaf, leaf.sharding if on_mesh else everywhere)

        return jax.tree.map(on_all, tree)

    def _first(self) -> Physical:
        """The unknowns where the search begins: the guess, or what was chosen in its place."""
        return {**self.guess(), **self._chosen_start}

    @functools.cached_property
    def _begun(self) -> tuple[dict[str, Any], Any]:
        """The latent where the search begins, and the scales of joints."""
        guess = self._first()
        first, programs = self.experiments[0], self._programs
        guess, scales = self.pieces.spread(guess, *first.inputs(self.modules.whole(guess), first.known()))
        latent = self.latent(guess)
        # Of one dtype and no weaker type than a step gives, or the second step is compiled again.
        latent = jax.tree.map(lambda u: jnp.asarray(u, self.dtype), latent)
        return jax.tree.map(place, latent, shardings(self.mesh, programs.latent_specs)), scales

    def _as_unknowns(self, chosen: Mapping[str, Any]) -> Physical:
        """Bring the argument `start` to the shapes of the unknowns."""
        found = {}
        for path, value in chosen.items():
            if path not in self.unknowns or path in self.modules.weights:
                known = ", ".join(path for path in self.unknowns if path not in self.modules.weights)
                raise ConfigurationError(f"start[{path!r}]: expected a number or field that is sought: {known}.")
            section, name = path.split(".", 1)
            shape = np.shape(self._base[section][name][0]) if path in self.fields else ()
            parts = value if isinstance(value, tuple) else (value,)
            arrays = tuple(np.asarray(taken_over(part), self.dtype) for part in parts)
            if any(array.shape != shape for array in arrays):
                raise ConfigurationError(
                    f"start[{path!r}]: expected {'arrays' if shape else 'a number'} of shape {shape}, got "
                    f"{[array.shape for array in arrays]}; a vector field is a tuple of its components."
                )
            found[path] = arrays if path in self.fields else arrays[0]
        return found

    def physical(self, latent) -> Physical:
        """The unknowns of a latent, whole arrays in units of the simulation; of a run in pieces, those of the first."""
        return self._programs.physical(latent)

    def taken(self, physical: Physical) -> Physical:
        """The unknowns as runs begin with them: an initial field that the model projects, cut or raised."""
        return {**physical, **self._programs.taken(physical, self._known())}

    def latent(self, physical: Physical) -> dict[str, Any]:
        """The latent of unknowns, the inverse of `physical`; of a run in pieces fields have an axis of pieces."""
        domain = self.domain.unsplit()
        return {p: self._programs.transformed(p, physical[p], domain, back=True) for p in self.unknowns}

    # ------------------------------------------------------------------ the least squares

    def least_squares(self) -> LeastSquares:
        """The problem as solvers take it."""
        known, scales = self._known(), self._begun[1]
        assert self.instruments
        runs = {
            e.name: {**known["runs"][e.name], "measured": e.placed_measurements(), "scales": scales}
            for e in self.experiments
        }
        return LeastSquares({**known, "runs": runs}, self._programs.evaluate, self._programs.of_members)

    def _known(self) -> dict[str, Any]:
        """The arguments of programs besides unknowns and measurements."""
        return {"modules": self.modules.arrays, "runs": {e.name: e.known() for e in self.experiments}}

    def changed(
        self,
        *,
        config: Config | None = None,
        sizes: Mapping[str, int] | None = None,
        checkpoint: Checkpoint | None = None,
        instruments: list[Observation] | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> InverseProblem:
        """The same problem, with the same measurements, on another mesh or with another plan, configuration or less of
        what was measured."""
        return InverseProblem(
            self.config if config is None else config,
            sizes=self._sizes() if sizes is None else sizes,
            checkpoint=self.checkpoint if checkpoint is None else checkpoint,
            instruments=self.instruments if instruments is None else instruments,
            modules=self.modules.given,
            true_modules=self.modules.true,
            start=self._chosen_start if start is None else start,
        )

    def with_measurements(
        self,
        measured: Mapping[str, Any],
        *,
        deviation: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
    ) -> InverseProblem:
        """The same problem with other measurements, which compiles nothing anew.

        Args:
            measured: by name of an instrument (`problem.instruments`), an array like its `measured`: times first. The
                others keep what they measured.
            deviation: of the noise, by name: a number, or an array like `measured`.
            start: as of the constructor.

        Raises ConfigurationError for a name that is no instrument, and for an array of another shape.
        """
        known = {instrument.name: instrument for instrument in self.instruments}
        for name in (*measured, *(deviation or {})):
            if name not in known:
                raise ConfigurationError(f"measured[{name!r}]: expected the name of an instrument: {', '.join(known)}.")
        instruments = [i.remeasured(measured.get(i.name), (deviation or {}).get(i.name)) for i in self.instruments]
        return self.changed(instruments=instruments, start=start)

    def until(self, end: float) -> InverseProblem:
        """The same problem with its measurements up to the time `end`."""

        def cut(time):
            return dataclasses.replace(time, end=min(end, time.end))

        experiments = tuple(
            dataclasses.replace(e, sections={**e.sections, "time": cut(e.sections.get("time", self.config.time))})
            for e in self.inverse.experiments
        )
        inverse = dataclasses.replace(self.inverse, experiments=experiments)
        config = dataclasses.replace(self.config, time=cut(self.config.time), inverse=inverse)
        instruments = [kept for instrument in self.instruments if (kept := instrument.until(end)) is not None]
        return self.changed(config=config, instruments=instruments)

    def windows_of_residuals(self, windows: int):
        """The window of time that each residual belongs to, int32, to broadcast against the residuals.

        Priors, which belong to none, and joints are in none (-1).
        """
        ends = self.end * (1 + 1e-12)
        measured = {}
        for i in self.instruments:
            number = np.minimum(i.times / ends * windows, windows - 1).astype(np.int32)
            measured[i.name] = jnp.asarray(number.reshape(-1, *(1,) * len(i.operator.shape(self.domain.grid))))
        none = jnp.asarray(-1, jnp.int32)
        shapes = jax.eval_shape(self.least_squares().residuals, self.start())
        outside = jax.tree.map(lambda _: none, {key: shapes[key] for key in ("prior", "joints")})
        return {"measured": measured, **outside}

    # ------------------------------------------------------------------ measurements

    def readings(self, latent) -> dict[str, np.ndarray]:
        """Readings of each instrument at its times in the run of a latent, in pieces where that is in pieces."""
        series = self._programs.readings(latent, self._known())
        return {i.name: whole(i.at_times(series[i.name])) for i in self.instruments}

    def series(self, physical: Physical) -> dict[str, Array]:
        """`(frames + 1, ...)` per instrument: what it reads in a run in one piece with these unknowns.

        Raises NumericalError where a run fails.
        """
        series, statuses = self._programs.series(physical, self._known())
        for name, status in statuses.items():
            if int(status) != OK:
                raise NumericalError(
                    f"inverse: the run to be measured{f' of {name}' if name else ''} fails: {reasons(int(status))}; "
                    "check it with python -m simjax.run and without the section inverse."
                )
        return series

    def _sizes(self) -> dict[str, int]:
        return {} if self.mesh is None else dict(self.mesh.shape)

    def _chosen(self, values, fields) -> Physical:
        result: Physical = {}
        for path in (*self.fields, *self.numbers):
            section, name = path.split(".", 1)
            result[path] = fields[section][name] if path in self.fields else values[value_name(path)]
        return result


def _posed(simulation: Any, section: Mapping[str, Any]) -> Config:
    """The configuration of the problem: a simulation's own, or with `section`; of several, as experiments of one."""
    several = isinstance(simulation, Sequence)
    configs = [getattr(one, "config", one) for one in (simulation if several else (simulation,))]
    for one in configs:
        require_kind("InverseProblem: simulation", one, Config, "a Simulation, or a list of them; write sj.load(NAME)")
    outputs = section.get("outputs", ())
    section = with_files({key: given for key, given in section.items() if key != "outputs"}, configs[0])
    if not (several or section or outputs):
        return configs[0]
    posed = combined(configs, section) if several else configs[0].write() | ({"inverse": section} if section else {})
    return validate({**posed, "outputs": [*(posed["outputs"] or ()), *outputs]})


def _check_together(inverse: InverseConfig) -> None:
    """Refuse keys of an inverse problem that exclude each other, such as horizons and shooting."""
    if inverse.horizons and inverse.shooting.windows > 1:
        raise ConfigurationError(
            f"inverse.horizons={list(inverse.horizons)} with inverse.shooting.windows={inverse.shooting.windows}: "
            "expected one of the two, as pieces of equal length do not grow; leave one out."
        )
    given = next((unknown.path for unknown in inverse.unknowns if unknown.prior is not None), None)
    if inverse.solver.name == "ensemble_kalman" and given:
        raise ConfigurationError(
            f"inverse.unknowns.{given}.prior: expected none with ensemble_kalman, whose prior are its first members, "
            f"inverse.solver.spread={inverse.solver.spread:g} around the guess in latent numbers; leave it out."
        )


def _plan(inverse: InverseConfig) -> Checkpoint:
    match inverse.checkpoint:
        case "binomial", states:
            return Binomial(states)
        case "budget", count:
            return Budget(count)
        case policy, _:
            return policy  # pyright: ignore[reportReturnType]


def rows_of(config: Config) -> list[tuple[str, object]]:
    """Names and values of the problem of a configuration, as a line of text tells them."""
    if config.inverse is None:
        return []
    seen = [one.instrument.name for one in config.inverse.observations]
    several = len(config.inverse.experiments)
    return [
        ("unknowns", ", ".join(unknown.path for unknown in config.inverse.unknowns)),
        ("observations", ", ".join(dict.fromkeys(seen))),
        ("experiments", several or None),
        ("solver", config.inverse.solver.name),
    ]
