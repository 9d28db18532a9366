"""An inverse problem on a configured simulation: unknowns, measurements, and the least squares between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.adjoint.plan import Binomial, Budget, Checkpoint
from simjax.config import Config, validate
from simjax.config.inverse import InverseConfig, UnknownConfig
from simjax.core.domain import Domain
from simjax.core.errors import ConfigurationError, NumericalError
from simjax.core.status import OK, reasons
from simjax.inverse.least_squares import Evaluation, LeastSquares
from simjax.inverse.priors import Gaussian, Matern, Prior, TotalVariation
from simjax.inverse.transforms import Bounded, Positive, Scaled, Smooth, Symmetric, Transform, chain
from simjax.inversion.instruments import Instrument, instruments_of
from simjax.inversion.pieces import Pieces
from simjax.parallel import ENSEMBLE, distribute, prepend_axis, shardings
from simjax.rollout import Rollout
from simjax.runtime import set_up_jax

if TYPE_CHECKING:
    from simjax.simulation import Simulation

Physical = dict[str, Any]
"""Path of an unknown ("physics.viscosity", "initial.velocity") -> a number, or a tuple of components."""


class InverseProblem:
    """Unknowns of a simulation to be found from measurements of it.

    The loss is 1/2 |r|^2, where r are the differences between what instruments read in the run and what was measured,
    in standard deviations of the noise, and what the priors add; with noise and priors as they are meant, its minimum
    is the most probable answer. A snapshot's `target` counts as measured: then it is the best control, and priors are
    the price of power. Where nothing was measured, the configuration's own numbers and fields are the truth
    of a twin experiment: the instruments are read in that run, and noise is added.

    Args:
        simulation: a `Simulation`, or a configuration.
        sizes: devices per mesh axis, in place of the configuration's.
        checkpoint: in place of `inverse.checkpoint`.
        instruments: with what they measured, in place of measuring again.
        section: the keys of the section `inverse` as in a YAML file, where the simulation has none:
            `unknowns={"physics.viscosity": {"guess": 0.02, "positive": True}}, observations=[...], solver={...}`.

    Raises:
        ConfigurationError: an unknown that no measurement depends on, an instrument outside of the grid or the run,
            not a number among the measurements.
        NumericalError: the run of the truth fails.
    """

    def __init__(
        self, simulation: Simulation | Config, *, sizes: Mapping[str, int] | None = None,
        checkpoint: Checkpoint | None = None, instruments: list[Instrument] | None = None, **section: Any,
    ):  # fmt: skip
        config = simulation if isinstance(simulation, Config) else simulation.config
        if section:
            config = validate({**config.mapping, "inverse": section})
        set_up_jax(config)
        if config.inverse is None:
            raise ConfigurationError("inverse: expected a section with unknowns and observations; write one.")
        self.config, self.inverse = config, config.inverse
        _check_together(self.inverse)
        self.unknowns = {unknown.path: unknown for unknown in config.inverse.unknowns}
        self.fields = tuple(path for path, unknown in self.unknowns.items() if _is_field(unknown))
        plan = _plan(self.inverse) if checkpoint is None else checkpoint
        self.rollout = Rollout(config, sizes=sizes, given=self.fields, checkpoint=plan)
        self.domain, self.mesh, self.dtype = self.rollout.domain, self.rollout.mesh, self.rollout.dtype
        self.pieces = Pieces(self.rollout, self.inverse.shooting, self.fields)
        self.transforms = {path: _transform(unknown, config) for path, unknown in self.unknowns.items()}
        self.priors = {path: _prior(u, config) for path, u in self.unknowns.items() if u.prior is not None}
        self._base = self.rollout.start_fields()
        self.is_twin = all(o.kind != "sensors" and o.target is None for o in self.inverse.observations)
        self.instruments = self._measured(instruments or instruments_of(self.inverse.observations, self.rollout))
        self.latent_specs = {path: self._spec_of(path) for path in self.unknowns}
        self._start = self._started()

    # ------------------------------------------------------------------ truth and guess

    def truth(self) -> Physical:
        """The unknowns as the configuration has them: the truth of a twin experiment."""
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
        for path, unknown in self.unknowns.items():
            if path not in self.fields and unknown.guess is not None:
                found[path] = np.asarray(unknown.guess[0].constant, self.dtype)
        return found

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
        guess = self.pieces.spread(guess, *self._inputs(guess, self._base))
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
        given = {"measured": self._placed_measurements(), "fields": self._base}
        specs = self.latent_specs, {"measured": self._measured_specs(), "fields": self.rollout.field_specs()}
        results = Evaluation(self._residual_specs(), PartitionSpec())  # pyright: ignore[reportArgumentType]
        member_axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        one = distribute(self._evaluate, self.mesh, in_specs=specs, out_specs=results)
        many = distribute(
            jax.vmap(self._evaluate, in_axes=(0, None)), self.mesh,
            in_specs=(prepend_axis(specs[0], member_axis), specs[1]), out_specs=prepend_axis(results, member_axis),
        )  # fmt: skip
        return LeastSquares(given, one, many)

    def _evaluate(self, latent, given) -> Evaluation:
        """Residuals of this device's blocks."""
        physical = self._physical(latent)
        series, joints, status = self.pieces.run(*self._inputs(physical, given["fields"]), self._read)
        residuals: dict[str, Any] = {"measured": {}, "prior": {}, "joints": joints}
        for instrument in self.instruments:
            read = instrument.at_times(series[instrument.name])
            values, present = given["measured"][instrument.name]
            differences = instrument.noise(self.dtype).residuals(read, values)
            residuals["measured"][instrument.name] = (
                differences if present is None else jnp.where(present, differences, 0)
            )
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

    def _inputs(self, physical: Physical, given):
        """(values, fields) of the run with these unknowns and fields `given` by files."""
        values = {name: jnp.asarray(value) for name, value in self.rollout.start_values().items()}
        fields = {section: dict(known) for section, known in given.items()}
        for path, u in physical.items():
            section, name = path.split(".", 1)
            if path in self.fields:
                fields[section][name] = u
            else:
                values[name] = u
        return values, fields

    def _read(self, model, t, state, params) -> dict[str, Array]:
        """What every instrument reads in a state."""
        found = model.observe(t, state, params)
        offsets = {output.name: output.offset for output in model.outputs()}
        periodic = tuple(axis.periodic for axis in self.config.boundaries)
        return {
            i.name: i.operator.measure(self.domain, found[i.operator.variable], offsets[i.operator.variable], periodic)
            for i in self.instruments
        }

    def until(self, end: float) -> InverseProblem:
        """The same problem with the measurements up to `end` alone."""
        time = dataclasses.replace(self.config.time, end=end)
        instruments = [kept for instrument in self.instruments if (kept := instrument.until(end)) is not None]
        return InverseProblem(
            dataclasses.replace(self.config, time=time), sizes=self._sizes(),
            checkpoint=self.rollout.checkpoint, instruments=instruments,
        )  # fmt: skip

    def windows_of_residuals(self, windows: int):
        """The window of time that each residual belongs to, int32, to broadcast against the residuals.

        Priors, which belong to none, and joints are in none (-1).
        """
        ends = self.rollout.times()[-1] * (1 + 1e-12)
        measured = {}
        for i in self.instruments:
            number = np.minimum(i.times / ends * windows, windows - 1).astype(np.int32)
            measured[i.name] = jnp.asarray(number.reshape(-1, *(1,) * len(i.operator.shape(self.domain.grid))))
        none = jnp.asarray(-1, jnp.int32)
        shapes = jax.eval_shape(self.least_squares().residuals, self.start())
        outside = jax.tree.map(lambda _: none, {key: shapes[key] for key in ("prior", "joints")})
        return {"measured": measured, **outside}

    # ------------------------------------------------------------------ measurements

    def _measured(self, instruments: list[Instrument]) -> list[Instrument]:
        """The instruments with what they measured: as it came, or read in the run of the truth with noise added."""
        self.instruments = instruments
        if any(instrument.measured is None for instrument in instruments):
            series = self.series(self.truth())
        result = []
        for number, instrument in enumerate(instruments):
            if instrument.measured is None:
                exact = np.asarray(instrument.at_times(series[instrument.name]))
                made = dataclasses.replace(instrument, measured=exact)
                noise = np.random.default_rng([self.config.seed, number]).standard_normal(exact.shape)
                noisy = (exact + made.standard_deviation() * noise).astype(self.dtype)
                # The deviation stays that of the exact values, a number.
                source = dataclasses.replace(
                    instrument.source, deviation=float(made.standard_deviation()), fraction=None
                )
                instrument = dataclasses.replace(instrument, measured=noisy, source=source)
            _check_finite(instrument)
            result.append(instrument)
        return result

    def readings(self, latent) -> dict[str, np.ndarray]:
        """What each instrument reads at its times in the run of a latent, in pieces where that is in pieces."""

        def read(latent, given):
            return self.pieces.run(*self._inputs(self._physical(latent), given), self._read)[0]

        specs = self.latent_specs, self.rollout.field_specs()
        series = distribute(read, self.mesh, in_specs=specs, out_specs=self._series_specs())(latent, self._base)
        return {i.name: np.asarray(i.at_times(series[i.name])) for i in self.instruments}

    def series(self, physical: Physical) -> dict[str, Array]:
        """`(frames + 1, ...)` per instrument: what it reads in a run in one piece with these unknowns.

        Raises NumericalError where the run fails.
        """

        def read(physical, given):
            trajectory, start = self.rollout.run(*self._inputs(physical, given), self._read)
            together = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
            return together, trajectory.clock.status

        specs = {path: self._spec_of(path, whole=True) for path in self.unknowns}, self.rollout.field_specs()
        results = self._series_specs(), PartitionSpec()
        series, status = distribute(read, self.mesh, in_specs=specs, out_specs=results)(physical, self._base)
        if int(status) != OK:
            raise NumericalError(
                f"inverse: the run to be measured fails: {reasons(int(status))}; check it with "
                f"python -m simjax.run and without the section inverse."
            )
        return series

    def _placed_measurements(self):
        placed = {}
        for instrument in self.instruments:
            assert instrument.measured is not None
            placed[instrument.name] = (instrument.measured.astype(self.dtype), instrument.present)
        return jax.tree.map(jax.device_put, placed, shardings(self.mesh, self._measured_specs()))

    # ------------------------------------------------------------------ partition

    def _series_specs(self):
        return {i.name: PartitionSpec(None, *i.operator.spec(self.domain)) for i in self.instruments}

    def _measured_specs(self):
        specs = self._series_specs()
        return {i.name: (specs[i.name], None if i.present is None else specs[i.name]) for i in self.instruments}

    def _residual_specs(self):
        measured = self._series_specs()
        # The residuals of a field's prior are a field.
        prior = {path: self._spec_of(path, whole=True) for path in self.priors}
        return {"measured": measured, "prior": prior, "joints": self.pieces.joint_specs()}

    def _spec_of(self, path: str, whole: bool = False):
        """The partition of an unknown; `whole`: without the axis of pieces."""
        if path not in self.fields:
            return PartitionSpec()
        section, name = path.split(".", 1)
        specs = self.rollout.field_specs()[section][name]
        return specs if whole or not self.pieces.cuts(path) else prepend_axis(specs, None)

    def _sizes(self) -> dict[str, int]:
        return {} if self.mesh is None else dict(self.mesh.shape)

    def _chosen(self, values, fields) -> Physical:
        result: Physical = {}
        for path in self.unknowns:
            section, name = path.split(".", 1)
            result[path] = fields[section][name] if path in self.fields else values[name]
        return result


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


def _is_field(unknown: UnknownConfig) -> bool:
    return unknown.section in ("initial", "coefficients")


def _plan(inverse: InverseConfig) -> Checkpoint:
    match inverse.checkpoint:
        case "binomial", states:
            return Binomial(states)
        case "budget", count:
            return Budget(count)
        case policy, _:
            return policy  # pyright: ignore[reportReturnType]


def _periodic(config: Config) -> tuple[bool, ...]:
    return tuple(axis.periodic for axis in config.boundaries)


def _transform(unknown: UnknownConfig, config: Config) -> Transform:
    made = []
    for kind, numbers in unknown.transforms:
        match kind:
            case "scaled":
                made.append(Scaled(*numbers))
            case "smooth":
                made.append(Smooth(*numbers, periodic=_periodic(config)))
            case "symmetric":
                made.append(Symmetric(int(numbers[0]), int(numbers[1])))
            case "positive":
                made.append(Positive())
            case "bounded":
                made.append(Bounded(*numbers))
    return chain(made)


def _prior(unknown: UnknownConfig, config: Config) -> Prior:
    assert unknown.prior is not None
    kind, numbers = unknown.prior
    match kind:
        case "gaussian":
            return Gaussian(*numbers)
        case "matern":
            deviation, length, mean = numbers
            return Matern(deviation, length, periodic=_periodic(config), mean=mean)
    weight, rounding = numbers
    return TotalVariation(weight, rounding, periodic=_periodic(config))


def _check_finite(instrument: Instrument) -> None:
    assert instrument.measured is not None
    present = True if instrument.present is None else instrument.present
    bad = np.argwhere(~np.isfinite(instrument.measured) & present)
    if len(bad):
        raise ConfigurationError(
            f"inverse.observations: {instrument.name} holds {instrument.measured[tuple(bad[0])]} at "
            f"t={instrument.times[bad[0][0]]:g}, index {tuple(int(i) for i in bad[0][1:])}; leave out what was not "
            "measured."
        )
