"""Electromagnetic waves in a medium of variable permittivity, permeability and conductivity."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.arguments import require_at_least, require_one_of
from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.core.model import Measure, Output, SplitModel
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, FACE
from simjax.models.axisymmetric import across_of, dimensions, directions
from simjax.models.declaration import model
from simjax.models.measures import times_volume
from simjax.models.sides import check_sides
from simjax.models.waves import axisymmetric_waves
from simjax.models.waves.curl_layers import Layer, absorbed, factor_of_curl, of_memories, read_layers
from simjax.models.waves.energy import ENERGY
from simjax.models.waves.light_energy import LightEnergy
from simjax.models.waves.medium import LightMedium, Property, least
from simjax.models.waves.pml import LIGHT, AbsorbingLayer, Layered, mirrored_layout
from simjax.models.waves.point_sources import PointSources, gather, locate, marks_of, per_volume, receive, spread
from simjax.models.waves.scales import AxisScales, along, check_scales, scales_of
from simjax.models.waves.scales import per_volume as per_volume_at
from simjax.models.waves.wave_setup import WaveKeys, along_refusals, check_light, medium_function, points_of
from simjax.models.waves.yee import ELECTRIC, MAGNETIC, POLARISATIONS, Curl, layout_of, layouts_of, terms_of_curl
from simjax.ops import staggered_wave
from simjax.ops.axisymmetric import RADIAL
from simjax.ops.spacing import scaled
from simjax.schema.errors import raise_first
from simjax.schema.kinds import Text, key
from simjax.schema.model_schema import SPLITTING, FieldSchema

Signal = Callable[[Array], Array]
"""`signal(t)` -> strength of a current element; an `eqx.Module`, whose arrays are parameters."""

_POLARISATION_OF = {"maxwell_tm": "tm", "maxwell_te": "te", "maxwell": "full"}


class State(eqx.Module):
    """electric at time t, magnetic at t - lag: one `(*grid.shape)` array for every component there is.

    memories: per component and term of its curl, None or the memory of its absorbing layer.
    """

    electric: tuple[Array, ...]
    magnetic: tuple[Array, ...]
    electric_memory: tuple[tuple[Array | None, ...], ...]
    magnetic_memory: tuple[tuple[Array | None, ...], ...]
    lag: Array


class Params(eqx.Module):
    """permittivity, permeability, conductivity (None: an insulator): scalars, one value for each cell `(*grid.shape)`,
    functions of place `f(*coordinates)`, or what `Maxwell.averaged` makes of these, one array for each component.

    sources (count, axes): positions, with one of the `signals` each; receivers (count, axes).
    """

    permittivity: Property
    permeability: Property
    conductivity: Property | None = None
    sources: Array | None = None
    signals: tuple[Signal, ...] = ()
    receivers: Array | None = None

    def __check_init__(self):
        numbers = {"permittivity": self.permittivity, "permeability": self.permeability}
        require_at_least("Maxwell.Params", numbers, strictly=True)
        require_at_least("Maxwell.Params", {"conductivity": self.conductivity})


class Prepared(eqx.Module):
    """1/permittivity and conductivity/permittivity where E is, 1/permeability where H is, absorbing layers per
    axis, 1/permittivity-weighted surroundings of the sources, and scales of derivatives."""

    impermittivity: tuple[Array, ...]
    decay: tuple[Array, ...] | None
    impermeability: tuple[Array, ...]
    layers: tuple[Layer | None, ...]
    sources: PointSources | None
    scales: AxisScales


def _maxwell(name: str, axes: int, electric: tuple[str, ...], magnetic: tuple[str, ...]):
    """Declare Maxwell's equations with these components of E and H."""
    return model(
        name,
        fields=(
            FieldSchema("electric", vector=len(electric) > 1, units=ELECTRIC, at_corners=len(electric) == 1),
            FieldSchema("magnetic", vector=len(magnetic) > 1, units=MAGNETIC),
        ),
        sides=LIGHT,
        least_axes=axes,
        most_axes=axes,
        coefficients=(
            FieldSchema("permittivity", units="F m-1", default=1.0),
            FieldSchema("permeability", units="H m-1", default=1.0),
            FieldSchema("conductivity", units="S m-1", optional=True),
        ),
        integrators=SPLITTING,
        stretched=True,
        axisymmetric=axes == 2,
        forced=(),
        exclusions=axisymmetric_waves.EXCLUSIONS,
        check=check_light(electric),
        balanced=lambda ndim, counts: (ENERGY,),
    )


@_maxwell("maxwell_tm", 2, ("z",), AXES[:2])
@_maxwell("maxwell_te", 2, AXES[:2], ("z",))
@_maxwell("maxwell", 3, AXES, AXES)
class Maxwell(LightMedium, Layered, SplitModel, LightEnergy):
    """Maxwell's equations: eps dE/dt = curl H - sigma E - J, mu dH/dt = -curl E, J = sum of q_k(t) delta(x - x_k).

    E electric and H magnetic field, eps permittivity, mu permeability, sigma conductivity, J currents along `along`
    (x, y or z). Yee's grid (1966, IEEE Trans. Antennas Propag. 14, 302): E on edges, H on faces; leapfrog in time,
    conduction by the trapezoidal rule. In 2-D either "tm" (Ez, Hx, Hy) or "te" (Ex, Ey, Hz). The medium's means are
    arithmetic around an edge for eps and sigma, harmonic across a face for mu, as if each cell were of one material; of
    functions of place (formulas) means are taken within cells, see `averaged`. Sides: periodic, a perfect conductor
    (SlipWall), or AbsorbingSide behind a CPML of `layer_cells`. Takes stretched grids, and in 2-D axisymmetric
    ones of second order with conductors across r: x is r, y is z, and the component called z goes around the axis, "tm"
    (E_phi, Hr, Hz) with currents in rings, "te" (Er, Ez, H_phi) with currents on the axis.

    Examples:
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
        >>> sj.Maxwell(sj.Domain(sj.Grid((16, 16))), sides, polarisation="tm").component_layouts().keys()
        dict_keys(['electric', 'magnetic'])
    """

    @dataclass(frozen=True)
    class Keys(WaveKeys):
        along: str | None = key(
            Text(optional=True, pattern="[xyz]", described="x, y or z"), None, about="component of E fed and recorded"
        )

    domain: Domain
    electric_layouts: tuple[FieldLayout, ...]
    magnetic_layouts: tuple[FieldLayout, ...]
    medium_layout: FieldLayout
    layer: AbsorbingLayer
    polarisation: str = eqx.field(static=True)
    along: int = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]],
        *,
        polarisation: str | None = None,
        along: str | None = None,
        order: int = 2,
        layer_cells: int = 12,
    ):
        ndim = domain.grid.ndim
        polarisation = polarisation or ("tm" if ndim == 2 else "full")
        allowed = {2: ("tm", "te"), 3: ("full",)}.get(ndim, ())
        if polarisation not in allowed:
            raise ConfigurationError(
                f"Maxwell on a grid of {ndim} axes: expected 2 axes and polarisation tm or te, or 3 axes; "
                f"got {polarisation}."
            )
        electric, magnetic = POLARISATIONS[polarisation]
        along = along or AXES[electric[-1]]
        raise_first(along_refusals(along, [AXES[c] for c in electric]))
        require_one_of("Maxwell.order", order, staggered_wave.WEIGHTS)
        check_sides(domain, sides, LIGHT, "Maxwell", axisymmetric=True)
        raise_first(axisymmetric_waves.refusals(across_of(domain, sides, LIGHT), order, "conductor"))
        self.domain, self.polarisation, self.order, self.media = domain, polarisation, order, None
        self.along = electric.index(AXES.index(along))
        self.electric_layouts, self.magnetic_layouts = layouts_of(domain.grid, sides, electric, magnetic)
        self.medium_layout = mirrored_layout(layout_of([CENTER] * ndim, sides))
        check_scales(domain, self.medium_layout, order)
        self.layer = AbsorbingLayer(domain, layer_cells, sides)

    @classmethod
    def configured(cls, setup):
        keys = setup.keys
        model = cls(
            setup.domain,
            setup.sides,
            polarisation=_POLARISATION_OF.get(setup.config.model),
            along=keys.along,
            order=keys.order,
            layer_cells=keys.layer_cells,
        )
        names = ("permittivity", "permeability", "conductivity")
        return model, Params(**{name: medium_function(setup, name) for name in names}, **points_of(setup))

    @property
    def curls_of_magnetic(self) -> tuple[Curl, ...]:
        return terms_of_curl(self.domain.grid, *POLARISATIONS[self.polarisation])

    @property
    def curls_of_electric(self) -> tuple[Curl, ...]:
        electric, magnetic = POLARISATIONS[self.polarisation]
        return terms_of_curl(self.domain.grid, magnetic, electric)

    # ------------------------------------------------------------------ steps

    def prepare(self, params) -> Prepared:
        params = self.averaged(params)
        permittivity, permeability = map(least, (params.permittivity, params.permeability))
        speed = 1 / jnp.sqrt(permittivity * permeability)
        speed = self.domain.mean(speed) if speed.ndim else speed
        impermittivity = tuple(1 / e for e in self.at_edges(params.permittivity))
        decay = None
        if params.conductivity is not None:
            conductivity = self.at_edges(params.conductivity)
            decay = tuple(s * e for s, e in zip(conductivity, impermittivity, strict=True))
        scales = scales_of(self.domain, self.medium_layout, self.order, permittivity.dtype)
        sources = None
        if params.sources is not None:
            layout = self.electric_layouts[self.along]
            if self.domain.grid.axisymmetric and layout.offset[RADIAL] != FACE:
                raise_first(axisymmetric_waves.EXCLUSIONS.refusals(axisymmetric_waves.ALONG_AXIS))
            sources = locate(self.domain, layout, params.sources)
            value = impermittivity[self.along]
            around = gather(sources, value) if value.ndim else value
            scale = 1 / self._volumes(scales, layout, value.dtype, rings=self.polarisation == "tm")
            sources = per_volume(self.domain, PointSources(sources.cells, sources.weights * around), scale)
        impermeability = self.inverse_at_faces(params.permeability)
        medium = impermittivity, decay, impermeability
        layers = tuple(self._layer(axis, speed, medium) for axis in range(self.domain.grid.ndim))
        return Prepared(impermittivity, decay, impermeability, layers, sources, scales)

    def _layer(self, axis: int, speed: Array, medium) -> Layer | None:
        face, center = (self.layer.profile(axis, offset, speed) for offset in (FACE, CENTER))
        if face is None or center is None:
            return None
        return Layer(face, center, *jax.tree.map(lambda u: self.layer.lines(u, axis), medium))

    def _slopes(
        self, curls: Sequence[Curl], fields, layouts, difference, t, scales: Sequence[Array | float]
    ) -> tuple[tuple[Array, ...], ...]:
        """Every term of the curls with its sign; scales: of the derivatives, one per axis."""
        h, fields, layouts = self.domain.grid.mean_spacing, tuple(fields), tuple(layouts)
        # An only component goes around the axis: along r its moment has the slope.
        around = self.domain.grid.axisymmetric and len(fields) == 1
        if around:
            fields, layouts = (*fields, axisymmetric_waves.with_radii(self.domain, fields[0], layouts[0])), layouts * 2

        def terms(*padded):
            return tuple(
                tuple(
                    sign * difference(padded[1 if around and axis == RADIAL else f], axis, h, self.order)
                    for axis, f, sign in curl
                )
                for curl in curls
            )

        found = self.domain.apply(terms, fields, layouts, staggered_wave.halo(self.order), t)

        def finished(slope: Array, axis: int) -> Array:
            slope = scaled(slope, scales[axis])
            return axisymmetric_waves.per_radius(self.domain, slope, layouts[0]) if around and axis == RADIAL else slope

        return tuple(
            tuple(finished(slope, axis) for slope, (axis, _, _) in zip(slopes, curl, strict=True))
            for slopes, curl in zip(found, curls, strict=True)
        )

    def _volumes(self, scales: AxisScales, layout: FieldLayout, dtype, rings: bool = False) -> Array | float:
        """Areas or volumes around the values of a field over the mean one of a cell's area.

        rings: areas also on an axisymmetric grid, where currents around the axis are per area.
        """
        areas = 1 / per_volume_at(scales, layout.offset)
        if rings or not self.domain.grid.axisymmetric:
            return areas
        return areas * axisymmetric_waves.lengths(self.domain, layout, dtype)

    def kick(self, t, dt, state, params, prepared):
        after, lines = self._accelerated(t, dt, state, params, prepared)
        magnetic, memory = [], []
        for k, (u, curl) in enumerate(zip(after.magnetic, self.curls_of_electric, strict=True)):

            def factor_of(layer: Layer, k=k):
                return layer.center, -dt * layer.impermeability[k]

            u, kept = absorbed(self.layer, u, curl, lines[k], state.magnetic_memory[k], prepared.layers, factor_of, dt)
            magnetic.append(u)
            memory.append(kept)
        return State(state.electric, tuple(magnetic), state.electric_memory, tuple(memory), state.lag)

    def accelerated(self, t, dt, state, params, prepared) -> State:
        return self._accelerated(t, dt, state, params, prepared)[0]

    def _accelerated(self, t, dt, state, params, prepared) -> tuple[State, tuple]:
        """The state with H changed by the curl of E, without layers, and the terms of the curl in these."""
        curls = self.curls_of_electric
        scales = [along(prepared.scales, axis, CENTER) for axis in range(self.domain.grid.ndim)]
        slopes = self._slopes(curls, state.electric, self.electric_layouts, staggered_wave.diff_to_center, t, scales)
        slopes, lines = read_layers(self.layer, curls, slopes)
        magnetic = tuple(
            u - dt * (prepared.impermeability[k] * sum(terms[1:], terms[0]))
            for k, (u, terms) in enumerate(zip(state.magnetic, slopes, strict=True))
        )
        return eqx.tree_at(lambda s: s.magnetic, state, magnetic), lines

    def drift(self, t, dt, state, params, prepared):
        curls = self.curls_of_magnetic
        scales = [along(prepared.scales, axis, FACE) for axis in range(self.domain.grid.ndim)]
        slopes = self._slopes(curls, state.magnetic, self.magnetic_layouts, staggered_wave.diff_to_face, t, scales)
        slopes, lines = read_layers(self.layer, curls, slopes)
        electric, memory = [], []
        for k, (u, curl, terms) in enumerate(zip(state.electric, curls, slopes, strict=True)):

            def factor_of(layer: Layer, k=k):
                return layer.face, factor_of_curl(dt, k, layer)

            kept = 1.0
            if prepared.decay is not None:
                lost = 0.5 * dt * prepared.decay[k]
                kept = (1 - lost) / (1 + lost)
            factor = factor_of_curl(dt, k, prepared)
            u = kept * u + factor * sum(terms[1:], terms[0])
            u, memories = absorbed(
                self.layer, u, curl, lines[k], state.electric_memory[k], prepared.layers, factor_of, dt
            )
            electric.append(u)
            memory.append(memories)
        if prepared.sources is not None:
            electric[self.along] = self.feed(t, dt, electric[self.along], params, prepared)
        return State(tuple(electric), state.magnetic, tuple(memory), state.magnetic_memory, state.lag)

    def with_memories(self, form, state, *others):
        states = state, *others
        electric = of_memories(form, self.curls_of_magnetic, *(one.electric_memory for one in states))
        magnetic = of_memories(form, self.curls_of_electric, *(one.magnetic_memory for one in states))
        return State(state.electric, state.magnetic, electric, magnetic, state.lag)

    def irreversible(self, params):
        return self.layer.irreversible() or ("conduction" if params.conductivity is not None else "")

    def feed(self, t, dt, u: Array, params, prepared) -> Array:
        """E after the currents: dE = -dt J / (eps + sigma dt / 2)."""
        currents = jnp.stack([jnp.asarray(signal(t), u.dtype) for signal in params.signals])
        sources = prepared.sources
        if prepared.decay is not None:
            decay = prepared.decay[self.along]
            lost = 0.5 * dt * (gather(sources, decay) if decay.ndim else decay)
            sources = PointSources(sources.cells, sources.weights / (1 + lost))
        return spread(sources, -dt * currents, u)

    # ------------------------------------------------------------------ what is seen of it

    def stable_dt(self, state, params):
        """Courant number one is where leapfrog becomes unstable: 1 / (c sqrt(sum 1/h^2)), times 6/7 at fourth order.

        c is that of the least permittivity and the least permeability, wherever they are.
        """
        params = self.averaged(params)
        permittivity, permeability = map(least, (params.permittivity, params.permeability))
        slowness = jnp.sqrt(self.domain.min(permittivity) * self.domain.min(permeability))
        if self.domain.grid.axisymmetric:
            axial, layout = self.polarisation == "te", self.medium_layout
            return (
                2 * slowness / jnp.sqrt(axisymmetric_waves.stiffest_square(self.domain, layout, axial, slowness.dtype))
            )
        if self.domain.grid.stretched:
            return 2 * slowness / jnp.sqrt(self.domain.max(self._stiffest_square(slowness.dtype)))
        steepest = math.sqrt(sum(1 / h**2 for h in self.domain.grid.spacing))
        return slowness / (steepest * staggered_wave.largest_symbol(self.order))

    def _stiffest_square(self, dtype) -> Array:
        """Bound on the square of the largest wavenumber on a stretched grid, in every cell.

        The curl of the curl has the sums of the squares of what the derivatives along each axis have, as scalar waves.
        """
        width = staggered_wave.stiffest_halo(self.order, True)
        return self.domain.apply_spaced(
            lambda ones, spacing: staggered_wave.stiffest_square(ones, spacing, self.order, width),
            jnp.ones(self.domain.block_shape, dtype),
            self.medium_layout,
            width,
        )

    def receive(self, t, state, params) -> Array:
        """The component `along` of E at the receivers, (receivers,)."""
        points = locate(self.domain, self.electric_layouts[self.along], params.receivers)
        return receive(self.domain, points, state.electric[self.along])

    def marks(self, params):
        return marks_of(params)

    def diagnostics(self, t, state, params):
        """energy: see `energy`. maximum_electric: of any component's size. receiver_0, ...: E there."""
        largest = [self.domain.max(jnp.abs(u)) for u in state.electric]
        result = {"energy": self.energy(t, state, params), "maximum_electric": jnp.max(jnp.stack(largest))}
        if params.receivers is not None:
            traces = self.receive(t, state, params)
            result |= {f"receiver_{k}": traces[k] for k in range(traces.shape[0])}
        return result

    def measures(self):
        energy = Measure(times_volume("J", dimensions(self.domain.grid)), "electromagnetic energy")
        return {
            "energy": energy,
            "maximum_electric": Measure("V m-1", "largest electric field"),
            "receiver": Measure("V m-1"),
        }

    def component_layouts(self):
        return {"electric": self.electric_layouts, "magnetic": self.magnetic_layouts}

    def state_from(self, fields, params):
        def memories(curls: tuple[Curl, ...]):
            return tuple(
                tuple(jnp.zeros_like(like) if self.layer.absorbs(axis) else None for axis, _, _ in curl)
                for curl in curls
            )

        like = fields["electric"][0]
        return State(
            tuple(fields["electric"]),
            tuple(fields["magnetic"]),
            memories(self.curls_of_magnetic),
            memories(self.curls_of_electric),
            jnp.zeros((), like.dtype),
        )

    def constrain(self, t, dt, state, params):
        """Tangential E and normal H vanish on conductors."""
        electric = self.domain.impose(state.electric, self.electric_layouts, t)
        magnetic = self.domain.impose(state.magnetic, self.magnetic_layouts, t)
        return eqx.tree_at(lambda s: (s.electric, s.magnetic), state, (electric, magnetic))

    def partition_specs(self, state, params):
        specs, rest = super().partition_specs(state, params)
        for name in ("permittivity", "permeability", "conductivity"):
            value = getattr(params, name)
            if value is not None and not callable(value):
                cut = jax.tree.map(lambda u: self.domain.spec() if u.ndim else PartitionSpec(), value)
                rest = eqx.tree_at(lambda p, name=name: getattr(p, name), rest, cut, is_leaf=_is_spec)
        return specs, rest

    def unphysical(self, state, params):
        averaged = self.averaged(params)
        permittivity, permeability = map(least, (averaged.permittivity, averaged.permeability))
        found = {"permittivity or permeability <= 0": ~((permittivity > 0) & (permeability > 0))}
        if self.domain.grid.axisymmetric and params.sources is not None:
            found |= axisymmetric_waves.misplaced(params.sources, rings=self.polarisation == "tm")
        return {what: jnp.broadcast_to(where, self.domain.block_shape) for what, where in found.items()}

    def outputs(self):
        result = []
        for field, components, layouts in self._fields():
            for i, (name, layout) in enumerate(zip(components, layouts, strict=True)):
                vector = {"vector": field, "component": i} if len(components) > 1 else {}
                lonely = "azimuthal " if self.domain.grid.axisymmetric else ""
                direction = directions(self.domain.grid)[i] if vector else lonely
                result.append(Output(name, layout.offset, layout.units, f"{direction}{field} field", **vector))
        return tuple(result)

    def _fields(self):
        """Both fields with the names of their components: `electric_x`, ...; an only component has the field's."""
        for field, components, layouts in zip(
            ("electric", "magnetic"),
            POLARISATIONS[self.polarisation],
            (self.electric_layouts, self.magnetic_layouts),
            strict=True,
        ):
            names = [f"{field}_{AXES[c]}" for c in components] if len(components) > 1 else [field]
            yield field, names, layouts

    def observe(self, t, state, params) -> dict[str, Array]:
        now = self.kick(t, state.lag, state, params, self.prepare(params))
        return {
            name: u for field, names, _ in self._fields() for name, u in zip(names, getattr(now, field), strict=True)
        }


Maxwell.Params, Maxwell.State = Params, State


def _is_spec(node) -> bool:
    return isinstance(node, PartitionSpec)
