"""Multiple shooting: a run cut into pieces that begin anywhere and are asked to join (Bock and Plitt 1984)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.driver.differentiable_run import DifferentiableRun
from simjax.driver.programs.compiled_run import SECTIONS
from simjax.driver.shared_programs import share
from simjax.errors import ConfigurationError
from simjax.parallel import distribute, prepend_axis
from simjax.schema.inverse import ShootingConfig


class MultipleShooting:
    """A run in `windows` pieces of equal length, each from an initial field of its own, all advanced at once.

    With one window it is the run itself. Where pieces meet, the difference of the two states is a residual: in root
    mean squares of the field at the guess, times sqrt(weight). So `weight` is how much a departure by that size in one
    cell counts against a measurement that is off by one standard deviation.
    """

    def __init__(self, rollout: DifferentiableRun, shooting: ShootingConfig, fields: tuple[str, ...]):
        self.rollout, self.windows, self.weight = rollout, shooting.windows, shooting.weight
        self.frames = rollout.frames // self.windows
        self._cut = tuple(path for path in fields if path.startswith("initial.")) if self.windows > 1 else ()
        if self.windows > 1 and not self._cut:
            raise ConfigurationError(
                f"inverse.shooting.windows={self.windows}: expected an initial field among inverse.unknowns, which is "
                "what a piece begins with; add one or write windows=1."
            )

    def cuts(self, path: str) -> bool:
        """Tell whether an unknown has one value per piece."""
        return path in self._cut

    def first(self, physical):
        """The unknowns at the beginning of the run."""
        return {p: jax.tree.map(lambda u: u[0], v) if self.cuts(p) else v for p, v in physical.items()}

    @property
    def structure(self) -> Hashable:
        """The part of a program's key that the pieces add to that of the run."""
        return self.windows, self.weight, self._cut

    def bare(self, rollout: DifferentiableRun) -> MultipleShooting:
        """A copy without arrays, to be kept with a compiled program."""
        bare = copy.copy(self)
        bare.rollout = rollout
        return bare

    def run(self, values, fields, read: Callable, scales: Any = None) -> tuple[dict[str, Array], Any, Array]:
        """Read the instruments at the start and after every frame; return readings, residuals at joints, and status.

        scales: root mean squares of the state at the guess, a tree like it, from `spread`; joints are in these.
        """
        rollout = self.rollout
        if self.windows == 1:
            trajectory, start = rollout.run(values, fields, read)
            series = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, trajectory.observed)
            return series, {}, trajectory.clock.status

        known = rollout.prepared(values, fields)

        def piece(initial, number):
            own = {**known, "initial": {**fields["initial"], **initial}}
            begin, _ = rollout.begin(values, own)
            trajectory, start = rollout.advance(
                values, own, begin, read, first_frame=number * self.frames, frames=self.frames
            )
            return begin, trajectory.state, start, trajectory.observed, trajectory.clock.status

        names = [path.split(".", 1)[1] for path in self._cut]
        initial = {name: fields["initial"][name] for name in names}
        numbers = jnp.arange(self.windows, dtype=jnp.int32)
        begins, ends, starts, observed, status = jax.vmap(piece)(initial, numbers)
        series = jax.tree.map(lambda a, b: jnp.concatenate([a[:1], b.reshape(-1, *b.shape[2:])]), starts, observed)
        joints = {} if scales is None else jax.tree.map(self._joint, begins, ends, scales)
        return series, joints, jnp.max(status)  # zero if all pieces are well

    def _joint(self, begins: Array, ends: Array, scale: Array) -> Array:
        relative = (ends[:-1] - begins[1:]) * (self.weight**0.5 / scale)
        return jnp.stack([relative.real, relative.imag]) if jnp.iscomplexobj(relative) else relative

    def joint_specs(self):
        """The partition of the residuals at joints."""
        if self.windows == 1:
            return {}
        state, specs = self.rollout.state_specs()

        def of_leaf(leaf, spec):
            spec = prepend_axis(spec, None)
            return prepend_axis(spec, None) if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else spec

        return jax.tree.map(of_leaf, state, specs)

    def spread(self, guess, values, fields):
        """The guess with a first field for every piece, where the guess's run is at that time; and the `scales`."""
        if self.windows == 1:
            return guess, None
        components = {path: self._components(path) for path in self._cut}

        modules = {section: fields[section] for section in fields if section not in SECTIONS}
        fields = {section: fields[section] for section in SECTIONS}
        rollout = self.rollout.bare()

        def read(model, t, state, params, _):
            found = model.observe(t, state, params)
            return {path: tuple(found[name] for name in names) for path, names in components.items()}, state

        def run(values, fields):
            trajectory, _ = rollout.run(values, {**fields, **modules}, read)
            passed, states = trajectory.observed
            square = jax.tree.map(lambda u: rollout.domain.mean(jnp.mean(jnp.abs(u) ** 2, 0)), states)
            return passed, jax.tree.map(jnp.sqrt, square)

        field_specs = self.rollout.field_specs()
        cut = {path: prepend_axis(field_specs["initial"][path.split(".", 1)[1]], None) for path in self._cut}
        state, _ = self.rollout.state_specs()
        results = cut, jax.tree.map(lambda _: PartitionSpec(), state)

        def make():
            return distribute(run, rollout.mesh, in_specs=(PartitionSpec(), field_specs), out_specs=results)

        # Modules are constants of the program.
        program = make() if modules else share(("spread", rollout.structure, self.structure), make)
        passed, sizes = program(values, fields)
        # A field that is zero all along has no size of its own.
        scales = jax.tree.map(lambda size: jnp.where(size > 0, size, jnp.ones_like(size)), sizes)
        every = slice(self.frames - 1, self.frames * (self.windows - 1), self.frames)
        begun = {
            path: jax.tree.map(lambda u, later: jnp.concatenate([u[None], later[every]]), guess[path], passed[path])
            for path in self._cut
        }
        return {**guess, **begun}, scales

    def _components(self, path: str) -> tuple[str, ...]:
        """The variables that hold an initial field later in the run."""
        names = self.rollout.later_variables(path.split(".", 1)[1])
        if names is None:
            raise ConfigurationError(
                f"inverse.shooting.windows={self.windows}: {path} cannot be read off a later state of "
                f"{self.rollout.config.model}; write windows=1."
            )
        return names
