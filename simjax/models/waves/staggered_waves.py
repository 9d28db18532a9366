"""Common part of waves on a staggered grid: differences, absorbing layers, point sources, receivers, the medium."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import require_one_of
from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane
from simjax.core.model import Measure, SplitModel
from simjax.grid import CENTER, FACE
from simjax.models.axisymmetric_grid import across_of
from simjax.models.sides import check_sides
from simjax.models.waves import axisymmetric_waves
from simjax.models.waves.energy import WaveEnergy
from simjax.models.waves.pml import AbsorbingLayer, Layered, Term
from simjax.models.waves.point_sources import (
    PointSources,
    SampledSignal,
    gather,
    heard,
    locate,
    marks_of,
    per_volume,
    receive,
)
from simjax.models.waves.scales import AxisScales, along
from simjax.ops import staggered_wave
from simjax.ops.spacing import scaled
from simjax.schema.config_errors import raise_first

Signal = Callable[[Array], Array]
"""`signal(t)` -> strength of a source, or those of several; an `eqx.Module`, whose arrays are parameters."""

Terms = tuple[tuple[int, int, int], ...]
"""Terms of what advances one component of a field: (axis of the difference, number of the other field's component,
sign). A gradient has one in each component, a divergence one for each axis, a curl two."""


class StaggeredWaves(Layered, SplitModel, WaveEnergy):
    """Two fields on a staggered grid that advance each other by differences, in a leapfrog.

    The field that is kicked lags behind the other, the drifted one, of which sources feed one component and receivers
    record it. A subclass has the fields and their layouts, the `Terms` by which each component is advanced, and what
    the medium multiplies these by. medium: names of the properties of the medium among the parameters.
    """

    medium: ClassVar[tuple[str, ...]]

    domain: Domain
    layer: AbsorbingLayer
    order: eqx.AbstractVar[int]

    @staticmethod
    def check_grid(
        name: str, domain: Domain, sides: Sequence[tuple[Side, Side]], order: int, kinds: Sequence[str], wall: str
    ) -> None:
        """Refuse an order, sides, or sides of an axisymmetric grid that waves of this `name` do not take.

        kinds: of sides. wall: the kind of side that reflects.
        """
        require_one_of(f"{name}.order", order, staggered_wave.WEIGHTS)
        check_sides(domain, sides, kinds, name, axisymmetric=True)
        raise_first(axisymmetric_waves.refusals(across_of(domain, sides, kinds), order, wall))

    # ------------------------------------------------------------------ differences and layers

    def slopes(
        self,
        terms: Sequence[Terms],
        fields: Sequence[Array],
        layouts: Sequence[FieldLayout],
        offset: float,
        t,
        scales: AxisScales,
    ) -> tuple[tuple[Array, ...], ...]:
        """The terms of every component with their signs.

        fields, layouts: of the components that they are made of. offset: where the differences lie along their axes,
        FACE or CENTER.
        """
        h = self.domain.grid.mean_spacing
        difference = staggered_wave.diff_to_face if offset == FACE else staggered_wave.diff_to_center

        def differences(*padded):
            return tuple(
                tuple(_signed(sign, difference(padded[f], axis, h, self.order)) for axis, f, sign in own)
                for own in terms
            )

        found = self.domain.apply(differences, tuple(fields), tuple(layouts), staggered_wave.halo(self.order), t)
        return tuple(
            tuple(scaled(slope, along(scales, axis, offset)) for slope, (axis, _, _) in zip(slopes, own, strict=True))
            for slopes, own in zip(found, terms, strict=True)
        )

    def read_layers(self, terms: Sequence[Terms], slopes) -> tuple[tuple, tuple]:
        """The `slopes` of these terms, and those on the lines of layers, None where there are none."""

        def read(u: Array, axis: int):
            return self.layer.read(u, axis) if self.layer.absorbs(axis) else (u, None)

        pairs = tuple(
            tuple(read(u, axis) for u, (axis, _, _) in zip(own, of, strict=True))
            for own, of in zip(slopes, terms, strict=True)
        )
        whole, lines = (tuple(tuple(pair[k] for pair in own) for own in pairs) for k in range(2))
        return whole, lines

    def absorbed(
        self, u: Array, terms: Terms, lines, memories, layers: Sequence[Any], factor_of: Callable[[Any], Any], dt
    ) -> tuple[Array, tuple]:
        """A component and its memories after the layers' part of an update by its terms.

        lines: the terms on the lines of layers. memories: one for each term, None where there is no layer. layers: of
        every axis, as `layer_along` makes them. factor_of: of one of these, its profile and what the update multiplies
        the terms by on its lines.
        """
        own = [k for k, memory in enumerate(memories) if memory is not None]
        absorbing = [Term(terms[k][0], lines[k], memories[k], *factor_of(layers[terms[k][0]])) for k in own]
        u, changed = self.layer.correct(u, absorbing, dt)
        result = list(memories)
        for k, memory in zip(own, changed, strict=True):
            result[k] = memory
        return u, tuple(result)

    def layer_along(self, axis: int, speed: Array, kind: Callable[..., Any], *medium: Any) -> Any:
        """`kind(face, center, *medium)` of the layers along an axis; None where there are none.

        face, center: `pml.Profile` on faces and at centres. medium: trees of fields, of which it gets the lines in the
        layers.
        """
        face, center = (self.layer.profile(axis, offset, speed) for offset in (FACE, CENTER))
        if face is None or center is None:
            return None
        return kind(face, center, *jax.tree.map(lambda u: self.layer.lines(u, axis), medium))

    def mean_speed(self, speed: Array) -> Array:
        """The speed that layers are made for: of a variable one the mean."""
        return self.domain.mean(speed) if speed.ndim else speed

    def irreversible(self, params):
        return self.layer.irreversible()

    @abc.abstractmethod
    def accelerated_with_lines(self, t, dt, state, params, prepared) -> tuple[Any, Any]:
        """The state whose kicked field the drifted one changed for `dt`, without layers, and the terms in these."""

    def accelerated(self, t, dt, state, params, prepared):
        return self.accelerated_with_lines(t, dt, state, params, prepared)[0]

    # ------------------------------------------------------------------ sources and receivers

    @property
    @abc.abstractmethod
    def fed_layout(self) -> FieldLayout:
        """Layout of the component that sources feed and receivers record."""

    @abc.abstractmethod
    def fed(self, state) -> Array:
        """The component of a state that sources feed and receivers record."""

    def located_sources(self, params, medium: Array, volumes: Array | float) -> PointSources:
        """Sources as densities in the cells around them, times the medium there.

        medium: where the component is that they feed, or a number. volumes: around its values over the mean of a cell.
        """
        points = locate(self.domain, self.fed_layout, params.sources)
        around = gather(points, medium) if medium.ndim else medium
        return per_volume(self.domain, PointSources(points.cells, points.weights * around), 1 / volumes)

    def strengths(self, t, params, dtype) -> Array:
        """Strengths of the sources at time t, (sources,)."""
        return jnp.concatenate([jnp.asarray(signal(t), dtype).reshape(-1) for signal in params.signals])

    def with_shot(self, params, shot):
        signals = (SampledSignal(shot.times, shot.signals),)
        own = dataclasses.replace(params, sources=shot.sources, signals=signals, receivers=None)
        points = locate(self.domain, self.fed_layout, shot.receivers)
        return own, lambda state: heard(points, self.fed(state))

    def receive(self, t, state, params) -> Array:
        """The fed component at the receivers, (receivers,)."""
        return receive(self.domain, locate(self.domain, self.fed_layout, params.receivers), self.fed(state))

    def records(self, t, state, params) -> dict[str, Array]:
        """Diagnostics of the receivers: receiver_0, ..."""
        if params.receivers is None:
            return {}
        traces = self.receive(t, state, params)
        return {f"receiver_{k}": traces[k] for k in range(traces.shape[0])}

    def marks(self, params):
        return marks_of(params)

    def with_misplaced_sources(self, found: dict[str, Array], params, rings: bool) -> dict[str, Array]:
        """Cells where something is wrong, by what it is: those `found`, and sources that miss their axis.

        rings: whether sources are rings around that axis.
        """
        if self.domain.grid.axisymmetric and params.sources is not None:
            found = found | axisymmetric_waves.misplaced(params.sources, rings=rings)
        return {what: jnp.broadcast_to(where, self.domain.block_shape) for what, where in found.items()}

    # ------------------------------------------------------------------ energy that passes planes

    def flux_measures(self) -> dict[str, Measure]:
        """The energy, which has a flux by `energy_flux_along`."""
        return self.balanced()

    def unknown_fluxes(self, names: tuple[str, ...], plane: FacePlane) -> str:
        """Tell, as an error does, why the flux through a plane is not known; "" if it is."""
        if self.domain.grid.axisymmetric:
            return "expected a Cartesian grid, as the energy flux in (r, z) is not known; read the balance of energy"
        ends = 0, self.domain.grid.shape[plane.axis]
        if plane.number in ends and not self.fed_layout.is_periodic(plane.axis):
            return (
                "expected a plane inside the grid, as no side lets waves pass; write one in front of the absorbing "
                "layer, or the balance of energy, which tells what a layer took"
            )
        return ""

    # ------------------------------------------------------------------ decomposition

    def partition_specs(self, state, params):
        specs, rest = super().partition_specs(state, params)
        for name in self.medium:
            value = getattr(params, name)
            if value is not None and not callable(value):
                cut = jax.tree.map(lambda u: self.domain.spec() if u.ndim else PartitionSpec(), value)
                rest = eqx.tree_at(lambda p, name=name: getattr(p, name), rest, cut, is_leaf=_is_spec)
        return specs, rest


def of_memories(form: Callable, terms: Sequence[Terms], *memories):
    """Memories `form(axis, memory, ...)` of those of several states; None where there is no layer."""
    return tuple(
        tuple(
            None if parts[0] is None else form(axis, *parts)
            for parts, (axis, _, _) in zip(zip(*kept, strict=True), own, strict=True)
        )
        for kept, own in zip(zip(*memories, strict=True), terms, strict=True)
    )


def _signed(sign: int, u: Array) -> Array:
    return u if sign == 1 else sign * u


def _is_spec(node) -> bool:
    return isinstance(node, PartitionSpec)
