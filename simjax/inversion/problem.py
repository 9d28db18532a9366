"""An inverse problem on configured simulations: unknowns, measurements, and the least squares between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.adjoint.plan import Binomial, Budget, Checkpoint
from simjax.config import Config, validate
from simjax.config.experiments import combined
from simjax.config.inverse import InverseConfig
from simjax.core.domain import Domain
from simjax.core.errors import ConfigurationError, NumericalError
from simjax.core.status import OK, reasons
from simjax.inverse.least_squares import Evaluation, LeastSquares
from simjax.inversion.experiment import Experiment, Physical
from simjax.inversion.instruments import Instrument
from simjax.inversion.modules import Modules
from simjax.inversion.unknowns import FIELD_SECTIONS, prior_of, transform_of
from simjax.models.closure import Closure
from simjax.parallel import ENSEMBLE, distribute, prepend_axis, shardings
from simjax.rollout import Rollout
from simjax.runtime import set_up_jax

if TYPE_CHECKING:
    from simjax.simulation import Simulation


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
        section: the keys of the section `inverse` as in a YAML file, where the simulation has none:
            `unknowns={"physics.viscosity": {"guess": 0.02, "positive": True}}, observations=[...], solver={...}`.

    Raises:
        ConfigurationError: an unknown that no measurement depends on, an instrument outside of the grid or the run,
            not a number among the measurements.
        NumericalError: the run of the truth fails.
    """

    def __init__(
        self, simulation: Simulation | Config | Sequence[Simulation | Config], *,
        sizes: Mapping[str, int] | None = None, checkpoint: Checkpoint | None = None,
        instruments: list[Instrument] | None = None, modules: Mapping[str, Closure] | None = None,
        true_modules: Mapping[str, Closure] | None = None, **section: Any,
    ):  # fmt: skip
        config = _posed(simulation, section)
        set_up_jax(config)
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
        self.is_twin = all(i.source.kind != "sensors" and i.source.target is None for i in self.instruments)
        self.modules = Modules(config, modules or {}, true_modules or {})
        self._measure()
        self.latent_specs = {path: self._spec_of(path) for path in self.unknowns}
        self._start = self._started()

    @property
    def instruments(self) -> list[Instrument]:
        """Those of all experiments."""
        return [instrument for experiment in self.experiments for instrument in experiment.instruments]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Paths of the unknowns that are numbers."""
        return tuple(path for path in self.unknowns if path not in self.fields and path not in self.modules.weights)

    @property
    def notes(self) -> list[str]:
        """Sentences about what was done to files, each once."""
        return list(dict.fromkeys(note for experiment in self.experiments for note in experiment.rollout.notes))

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
        changed = {"initial": dict(self.config.initial), "coefficients": dict(self.config.coefficients)}
        for path in self.fields:
            formulas = self.unknowns[path].guess
            if formulas is not None:
                section, name = path.split(".", 1)
                changed[section][name] = formulas
        initial, coefficients = changed["initial"], changed["coefficients"]
        config = dataclasses.replace(self.config, initial=initial, coefficients=coefficients)
        fields = Rollout(config, sizes=self._sizes(), given=self.fields).start_fields()
        found = self._chosen(self.rollout.start_values(), fields)
        for path in self.numbers:
            if (guess := self.unknowns[path].guess) is not None:
                found[path] = np.asarray(guess[0].constant, self.dtype)
        return {**found, **self.modules.weights}

    def start(self) -> dict[str, Any]:
        """The latent of the guess, on the mesh; fields of a run in pieces have a leading axis of pieces."""
        return self._start

    def placed(self, tree):
        """A solver's state on the mesh; arrays that are on one device yet become the same on all.

        So the first step meets what later ones meet, and is not compiled by itself.
        """
        everywhere = shardings(self.mesh, PartitionSpec())

        def place(leaf):
            on_mesh = self.mesh is not None and len(leaf.sharding.device_set) == self.mesh.size
            return jax.device_put(leaf, leaf.sharding if on_mesh else everywhere)

        return jax.tree.map(place, tree)

    def _started(self) -> dict[str, Any]:
        guess, domain = self.guess(), self.domain.unsplit()
        guess = self.pieces.spread(guess, *self.experiments[0].inputs(self.modules.whole(guess), self._base))
        latent = {path: self._transformed(path, guess[path], domain, back=True) for path in self.unknowns}
        # Of one dtype and no weaker type than a step gives, or the second step is compiled again.
        latent = jax.tree.map(lambda u: jnp.asarray(u, self.dtype), latent)
        return jax.tree.map(jax.device_put, latent, shardings(self.mesh, self.latent_specs))

    def physical(self, latent) -> Physical:
        """The unknowns of a latent, whole arrays in units of the simulation; of a run in pieces, those of the first."""
        program = distribute(
            lambda latent: self.pieces.first(self._physical(latent)), self.mesh,
            in_specs=(self.latent_specs,), out_specs={path: self._spec_of(path, whole=True) for path in self.unknowns},
        )  # fmt: skip
        return program(latent)

    # ------------------------------------------------------------------ the least squares

    def least_squares(self) -> LeastSquares:
        """The problem as solvers take it."""
        given = {e.name: {"measured": e.placed_measurements(), "fields": e.base} for e in self.experiments}
        given_specs = {
            e.name: {"measured": e.measured_specs(), "fields": e.rollout.field_specs()} for e in self.experiments
        }
        specs = self.latent_specs, given_specs
        results = Evaluation(self._residual_specs(), PartitionSpec())  # pyright: ignore[reportArgumentType]
        member_axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        one = distribute(self._evaluate, self.mesh, in_specs=specs, out_specs=results)
        many = distribute(
            jax.vmap(self._evaluate, in_axes=(0, None)), self.mesh,
            in_specs=(prepend_axis(specs[0], member_axis), specs[1]), out_specs=prepend_axis(results, member_axis),
        )  # fmt: skip
        return LeastSquares(given, one, many)

    def _evaluate(self, latent, given) -> Evaluation:
        """Residuals of this device's blocks: one run after the other, so that one is in memory at a time."""
        physical = self._physical(latent)
        inside = self.modules.whole(physical)
        residuals: dict[str, Any] = {"measured": {}, "prior": {}, "joints": {}}
        status = jnp.asarray(OK, jnp.int32)
        for experiment in self.experiments:
            own = given[experiment.name]
            measured, joints, fault = experiment.residuals(inside, own["fields"], own["measured"])
            residuals["measured"] |= measured
            residuals["joints"] = joints  # pieces are those of a single experiment
            status = status | fault
        first = self.pieces.first(physical)
        for path, prior in self.priors.items():
            residuals["prior"][path] = jax.tree.map(lambda u, p=prior: p.residuals(u, self.domain), first[path])
        return Evaluation(residuals, status)

    def _physical(self, latent) -> Physical:
        return {path: self._transformed(path, latent[path], self.domain) for path in self.unknowns}

    def _transformed(self, path: str, latent, domain: Domain, back: bool = False):
        """The unknown of a latent, or `back` the latent of an unknown: component by component, piece by piece."""
        transform = self.transforms[path]

        def one(u):
            return transform.latent(u, domain) if back else transform.physical(u, domain)

        return jax.tree.map(jax.vmap(one) if self.pieces.cuts(path) else one, latent)

    def changed(
        self, *, config: Config | None = None, sizes: Mapping[str, int] | None = None,
        checkpoint: Checkpoint | None = None, instruments: list[Instrument] | None = None,
    ) -> InverseProblem:  # fmt: skip
        """The same problem, with the same measurements, on another mesh or with another plan, configuration or less of
        what was measured."""
        return InverseProblem(
            self.config if config is None else config,
            sizes=self._sizes() if sizes is None else sizes,
            checkpoint=self.checkpoint if checkpoint is None else checkpoint,
            instruments=self.instruments if instruments is None else instruments,
            modules=self.modules.given,
            true_modules=self.modules.true,
        )

    def until(self, end: float) -> InverseProblem:
        """The same problem with the measurements up to `end` alone."""

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

    def _measure(self) -> None:
        """Every instrument has what it measured: as it came, or read in the run of the truth with noise added."""
        series = self.series(self.truth()) if any(i.measured is None for i in self.instruments) else {}
        first = 0
        for experiment in self.experiments:
            experiment.measure(series, first)
            first += len(experiment.instruments)

    def readings(self, latent) -> dict[str, np.ndarray]:
        """What each instrument reads at its times in the run of a latent, in pieces where that is in pieces."""

        def read(latent, given):
            physical = self.modules.whole(self._physical(latent))
            return _joined(e.series_in_pieces(physical, given[e.name]) for e in self.experiments)

        series = self._of_all(read, self.latent_specs, self._series_specs())(latent)
        return {i.name: np.asarray(i.at_times(series[i.name])) for i in self.instruments}

    def series(self, physical: Physical) -> dict[str, Array]:
        """`(frames + 1, ...)` per instrument: what it reads in a run in one piece with these unknowns.

        Raises NumericalError where a run fails.
        """

        def read(physical, given):
            physical = self.modules.whole(physical)
            found = {e.name: e.series(physical, given[e.name]) for e in self.experiments}
            return _joined(series for series, _ in found.values()), {
                name: status for name, (_, status) in found.items()
            }

        specs = {path: self._spec_of(path, whole=True) for path in physical}
        series, statuses = self._of_all(read, specs, (self._series_specs(), PartitionSpec()))(physical)
        for name, status in statuses.items():
            if int(status) != OK:
                raise NumericalError(
                    f"inverse: the run to be measured{f' of {name}' if name else ''} fails: {reasons(int(status))}; "
                    "check it with python -m simjax.run and without the section inverse."
                )
        return series

    def _of_all(self, function, specs, results):
        """`function(argument, fields by experiment)` on the mesh, as a function of its argument."""
        given = {e.name: e.base for e in self.experiments}
        given_specs = {e.name: e.rollout.field_specs() for e in self.experiments}
        program = distribute(function, self.mesh, in_specs=(specs, given_specs), out_specs=results)
        return lambda argument: program(argument, given)

    # ------------------------------------------------------------------ partition

    def _series_specs(self) -> dict[str, PartitionSpec]:
        return _joined(experiment.series_specs() for experiment in self.experiments)

    def _residual_specs(self):
        # The residuals of a field's prior are a field.
        prior = {path: self._spec_of(path, whole=True) for path in self.priors}
        return {"measured": self._series_specs(), "prior": prior, "joints": self.pieces.joint_specs()}

    def _spec_of(self, path: str, whole: bool = False):
        """The partition of an unknown; `whole`: without the axis of pieces."""
        if path not in self.fields:
            return jax.tree.map(lambda _: PartitionSpec(), self.modules.weights.get(path, 0))
        section, name = path.split(".", 1)
        specs = self.rollout.field_specs()[section][name]
        return specs if whole or not self.pieces.cuts(path) else prepend_axis(specs, None)

    def _sizes(self) -> dict[str, int]:
        return {} if self.mesh is None else dict(self.mesh.shape)

    def _chosen(self, values, fields) -> Physical:
        result: Physical = {}
        for path in (*self.fields, *self.numbers):
            section, name = path.split(".", 1)
            result[path] = fields[section][name] if path in self.fields else values[name]
        return result


def _posed(simulation: Any, section: Mapping[str, Any]) -> Config:
    """The configuration of the problem: a simulation's own, or with `section`; of several, as experiments of one."""
    several = isinstance(simulation, Sequence)
    configs = [getattr(one, "config", one) for one in (simulation if several else (simulation,))]
    if several:
        return validate(combined(configs, section))
    return validate({**configs[0].mapping, "inverse": section}) if section else configs[0]


def _joined(series) -> dict[str, Any]:
    """What belongs to the instruments of all experiments."""
    return {name: values for own in series for name, values in own.items()}


def _check_together(inverse: InverseConfig) -> None:
    """Refuse parts that do not go together."""
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
