"""The compiled functions of an inverse problem, shared by all problems of one structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from simjax.config.structure import frozen
from simjax.core.domain import Domain
from simjax.driver.shared_programs import share
from simjax.inverse.experiment_run import Experiment, Physical
from simjax.inverse.methods.latent_transforms import Transform
from simjax.inverse.methods.least_squares import Evaluation
from simjax.inverse.methods.priors import Prior
from simjax.inverse.modules import Modules
from simjax.parallel import ENSEMBLE, distribute, prepend_axis
from simjax.status import OK


def compiled(
    experiments: Sequence[Experiment],
    modules: Modules,
    fields: tuple[str, ...],
    transforms: Mapping[str, Transform],
    priors: Mapping[str, Prior],
) -> CompiledProblem:
    """The functions of a problem, of an earlier one where that has the same structure.

    Numbers and fields of the runs, weights, what was measured, when and with what noise, and where the search starts
    are arguments. The model, grid, mesh, time steps, unknowns with their transforms and priors, and the kinds and
    places of instruments are the structure.
    """
    structure = (
        tuple(experiment.structure for experiment in experiments),
        modules.structure,
        fields,
        frozen(transforms),
        frozen(priors),
    )
    return share(
        ("inverse problem", structure), lambda: CompiledProblem(experiments, modules, fields, transforms, priors)
    )


class CompiledProblem:
    """Functions of latents and unknowns on the mesh; `given` is what belongs to one problem of the structure.

    evaluate: `(latent, given) -> Evaluation`. of_members: the same of latents with a leading axis. physical: latent ->
    the unknowns, of a run in pieces those of the first. readings: `(latent, given) -> series`, in the run's pieces.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        modules: Modules,
        fields: tuple[str, ...],
        transforms: Mapping[str, Transform],
        priors: Mapping[str, Prior],
    ):
        # Programs outlive the problem: what they hold on to has no arrays.
        self.experiments = [experiment.bare() for experiment in experiments]
        self.modules, self.fields, self.transforms, self.priors = modules.bare(), fields, transforms, priors
        self.rollout, self.pieces = self.experiments[0].rollout, self.experiments[0].pieces
        self.domain, self.mesh = self.rollout.domain, self.rollout.mesh
        self.latent_specs = {path: self._spec_of(path) for path in transforms}
        self._whole_specs = {path: self._spec_of(path, whole=True) for path in transforms}
        known, given = {}, {}
        for own in experiments:
            known[own.name] = own.known_specs()
            given[own.name] = {**known[own.name], "measured": own.measured_specs(), "scales": PartitionSpec()}
        self._known_specs = {"modules": PartitionSpec(), "runs": known}
        specs = self.latent_specs, {"modules": PartitionSpec(), "runs": given}
        results = Evaluation(self._residual_specs(), PartitionSpec())  # pyright: ignore[reportArgumentType]
        member_axis = ENSEMBLE if self.mesh is not None and ENSEMBLE in self.mesh.shape else None
        self.evaluate = distribute(self._evaluate, self.mesh, in_specs=specs, out_specs=results)
        self.of_members = distribute(
            jax.vmap(self._evaluate, in_axes=(0, None)),
            self.mesh,
            in_specs=(prepend_axis(specs[0], member_axis), specs[1]),
            out_specs=prepend_axis(results, member_axis),
        )
        self.physical = distribute(
            lambda latent: self.pieces.first(self._physical(latent)),
            self.mesh,
            in_specs=(self.latent_specs,),
            out_specs=self._whole_specs,
        )
        self.readings = distribute(
            self._readings, self.mesh, in_specs=(self.latent_specs, self._known_specs), out_specs=self._series_specs()
        )
        self._series: dict[tuple[str, ...], Callable] = {}
        self._starts: dict[tuple[str, ...], Callable] = {}

    def series(self, physical: Physical, known):
        """Run all experiments in one piece; return the instruments' readings, and the status by experiment."""
        paths = tuple(physical)
        if paths not in self._series:
            specs = {path: self._whole_specs[path] for path in paths}
            self._series[paths] = distribute(
                self._read,
                self.mesh,
                in_specs=(specs, self._known_specs),
                out_specs=(self._series_specs(), PartitionSpec()),
            )
        return self._series[paths](physical, known)

    def taken(self, physical: Physical, known) -> Physical:
        """Fields among the unknowns as the first of the runs begins with them."""
        paths = tuple(physical)
        if paths not in self._starts:
            specs = {path: self._whole_specs[path] for path in paths}
            fields = {path: spec for path, spec in specs.items() if path in self.fields}
            self._starts[paths] = distribute(
                self._begins, self.mesh, in_specs=(specs, self._known_specs), out_specs=fields
            )
        return self._starts[paths](physical, known)

    # ------------------------------------------------------------------ on this device's blocks

    def _evaluate(self, latent, given) -> Evaluation:
        """Residuals of this device's blocks: one run after the other, so that one is in memory at a time."""
        physical = self._physical(latent)
        inside = self.modules.whole(physical, given["modules"])
        residuals: dict[str, Any] = {"measured": {}, "prior": {}, "joints": {}}
        status = jnp.asarray(OK, jnp.int32)
        for experiment in self.experiments:
            measured, joints, fault = experiment.residuals(inside, given["runs"][experiment.name])
            residuals["measured"] |= measured
            residuals["joints"] = joints  # pieces are those of a single experiment
            status = status | fault
        first = self.pieces.first(physical)
        for path, prior in self.priors.items():
            residuals["prior"][path] = jax.tree.map(lambda u, p=prior: p.residuals(u, self.domain), first[path])
        return Evaluation(residuals, status)

    def _readings(self, latent, known) -> dict[str, Any]:
        physical = self.modules.whole(self._physical(latent), known["modules"])
        return joined(e.series_in_pieces(physical, known["runs"][e.name]) for e in self.experiments)

    def _read(self, physical, known):
        physical = self.modules.whole(physical, known["modules"])
        found = {e.name: e.series(physical, known["runs"][e.name]) for e in self.experiments}
        return joined(series for series, _ in found.values()), {name: status for name, (_, status) in found.items()}

    def _begins(self, physical, known) -> Physical:
        fields = {path: u for path, u in physical.items() if path in self.fields}
        first = self.experiments[0]
        return fields | first.taken(self.modules.whole(physical, known["modules"]), known["runs"][first.name])

    def _physical(self, latent) -> Physical:
        return {path: self.transformed(path, latent[path], self.domain) for path in self.transforms}

    def transformed(self, path: str, latent, domain: Domain, back: bool = False):
        """The unknown of a latent, or `back` the latent of an unknown: component by component, piece by piece."""
        transform = self.transforms[path]

        def one(u):
            return transform.latent(u, domain) if back else transform.physical(u, domain)

        return jax.tree.map(jax.vmap(one) if self.pieces.cuts(path) else one, latent)

    # ------------------------------------------------------------------ partition

    def _series_specs(self) -> dict[str, PartitionSpec]:
        return joined(experiment.series_specs() for experiment in self.experiments)

    def _residual_specs(self):
        # The residuals of a field's prior are a field.
        prior = {path: self._whole_specs[path] for path in self.priors}
        return {"measured": self._series_specs(), "prior": prior, "joints": self.pieces.joint_specs()}

    def _spec_of(self, path: str, whole: bool = False):
        """The partition of an unknown; `whole`: without the axis of pieces."""
        if path not in self.fields:
            return jax.tree.map(lambda _: PartitionSpec(), self.modules.weights.get(path, 0))
        section, name = path.split(".", 1)
        specs = self.rollout.field_specs()[section][name]
        return specs if whole or not self.pieces.cuts(path) else prepend_axis(specs, None)


def joined(series) -> dict[str, Any]:
    """Merge the values of the instruments of all experiments."""
    return {name: values for own in series for name, values in own.items()}
