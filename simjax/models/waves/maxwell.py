"""Electromagnetic waves in a medium of variable permittivity, permeability and conductivity."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import FieldLayout, Side
from simjax.core.domain import Domain
from simjax.core.face_planes import WaveProduct
from simjax.core.model import Measure, Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, FACE
from simjax.models.axisymmetric_grid import dimensions, directions
from simjax.models.declaration import model
from simjax.models.measures import times_volume
from simjax.models.sides import require_domain
from simjax.models.waves import axisymmetric_waves
from simjax.models.waves.energy import ENERGY
from simjax.models.waves.incident import IncidentBox
from simjax.models.waves.incident_light import WithIncidentWave
from simjax.models.waves.incident_setup import IncidentKeys, IncidentWave, box_of, check_incident, incident_of
from simjax.models.waves.light_energy import LightEnergy
from simjax.models.waves.light_parts import Layer, Params, Prepared, State
from simjax.models.waves.medium import LightMedium, least
from simjax.models.waves.mode_setup import (
    ModeKeys,
    ModeSource,
    check_modes,
    mode_signals_of,
    modes_on_faces,
    planes_of,
)
from simjax.models.waves.mode_sources import ModePlane, WithModeSources, joined
from simjax.models.waves.pml import LIGHT, AbsorbingLayer, mirrored_layout
from simjax.models.waves.point_sources import PointSources, gather, spread
from simjax.models.waves.pole_setup import PoleKeys, check_poles, poles_of
from simjax.models.waves.poles import Parts, half_losses, of_component
from simjax.models.waves.scales import AxisScales, check_scales, scales_of
from simjax.models.waves.scales import per_volume as per_volume_at
from simjax.models.waves.staggered_waves import StaggeredWaves, Terms, of_memories
from simjax.models.waves.wave_setup import WaveKeys, along_refusals, check_light, checks, medium_function, points_of
from simjax.models.waves.yee import (
    ELECTRIC,
    MAGNETIC,
    POLARISATION_OF,
    POLARISATIONS,
    layout_of,
    layouts_of,
    terms_of_curl,
)
from simjax.ops import staggered_wave
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Text, key
from simjax.schema.model_schema import SPLITTING, FieldSchema


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
        check=checks(check_light(electric), check_poles, check_incident(name), check_modes(name)),
        balanced=lambda ndim, counts: (ENERGY,),
        passing=lambda ndim, counts: (ENERGY,),
    )


@_maxwell("maxwell_tm", 2, ("z",), AXES[:2])
@_maxwell("maxwell_te", 2, AXES[:2], ("z",))
@_maxwell("maxwell", 3, AXES, AXES)
class Maxwell(LightMedium, LightEnergy, WithIncidentWave, WithModeSources, StaggeredWaves):
    """Maxwell's equations: eps dE/dt = curl H - sigma E - J, mu dH/dt = -curl E, J = sum of q_k(t) delta(x - x_k).

    E electric and H magnetic field, eps permittivity, mu permeability, sigma conductivity, J currents along `along` (x,
    y or z), and those of poles of a dispersive medium, which follow E. Yee's grid (1966, IEEE Trans. Antennas Propag.
    14, 302): E on edges, H on faces; leapfrog in time, conduction by the trapezoidal rule. In 2-D either "tm" (Ez, Hx,
    Hy) or "te" (Ex, Ey, Hz). The medium's means are arithmetic around an edge for eps and sigma, harmonic across a face
    for mu, as if each cell were of one material; of functions of place (formulas) means are taken within cells, see
    `averaged`. Sides: periodic, a perfect conductor (SlipWall), or AbsorbingSide behind a CPML of `layer_cells`. Takes
    stretched grids, and in 2-D axisymmetric ones of second order with conductors across r: x is r, y is z, and the
    component called z goes around the axis, "tm" (E_phi, Hr, Hz) with currents in rings, "te" (Er, Ez, H_phi) with
    currents on the axis.

    Examples:
        >>> sides = [(sj.PeriodicSide(), sj.PeriodicSide())] * 2
        >>> sj.Maxwell(sj.Domain(sj.Grid((16, 16))), sides, polarisation="tm").component_layouts().keys()
        dict_keys(['electric', 'magnetic'])
    """

    @dataclass(frozen=True)
    class Keys(ModeKeys, IncidentKeys, PoleKeys, WaveKeys):
        along: str | None = key(
            Text(optional=True, pattern="[xyz]", described="x, y or z"), None, about="component of E fed and recorded"
        )

    medium = ("permittivity", "permeability", "conductivity")

    domain: Domain
    electric_layouts: tuple[FieldLayout, ...]
    magnetic_layouts: tuple[FieldLayout, ...]
    medium_layout: FieldLayout
    layer: AbsorbingLayer
    polarisation: str = eqx.field(static=True)
    incident: IncidentBox | None = eqx.field(static=True)
    mode_sources: tuple[ModePlane, ...] = eqx.field(static=True)
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
        incident: IncidentWave | None = None,
        mode_sources: Sequence[ModeSource] = (),
    ):
        require_domain("Maxwell", domain)
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
        self.check_grid("Maxwell", domain, sides, order, LIGHT, "conductor")
        self.domain, self.polarisation, self.order, self.parts = domain, polarisation, order, None
        self.along = electric.index(AXES.index(along))
        self.electric_layouts, self.magnetic_layouts = layouts_of(domain.grid, sides, electric, magnetic)
        self.medium_layout = mirrored_layout(layout_of([CENTER] * ndim, sides))
        check_scales(domain, self.medium_layout, order)
        self.layer = AbsorbingLayer(domain, layer_cells, sides)
        self.incident = (
            None if incident is None else box_of(incident, domain.grid, sides, layer_cells, order, polarisation)
        )
        self.mode_sources = planes_of(mode_sources, domain.grid, sides, layer_cells, order, polarisation)

    @classmethod
    def configured(cls, setup):
        keys = setup.keys
        model = cls(
            setup.domain,
            setup.sides,
            polarisation=POLARISATION_OF.get(setup.config.model),
            along=keys.along,
            order=keys.order,
            layer_cells=keys.layer_cells,
            incident=None if keys.incident is None else keys.incident.wave,
            mode_sources=[one.source for one in keys.mode_sources],
        )
        medium = {name: medium_function(setup, name) for name in cls.medium}
        waves = {"incident": incident_of(setup), "mode_signals": mode_signals_of(setup)}
        return model, Params(**medium, **points_of(setup), poles=poles_of(setup), **waves)

    @property
    def curls_of_magnetic(self) -> tuple[Terms, ...]:
        return terms_of_curl(self.domain.grid, *POLARISATIONS[self.polarisation])

    @property
    def curls_of_electric(self) -> tuple[Terms, ...]:
        electric, magnetic = POLARISATIONS[self.polarisation]
        return terms_of_curl(self.domain.grid, magnetic, electric)

    # ------------------------------------------------------------------ steps

    def prepare(self, params) -> Prepared:
        params = self.averaged(params)
        permittivity, permeability = map(least, (params.permittivity, params.permeability))
        speed = self.mean_speed(1 / jnp.sqrt(permittivity * permeability))
        impermittivity = tuple(1 / e for e in self.at_edges(params.permittivity))
        decay = None
        if params.conductivity is not None:
            conductivity = self.at_edges(params.conductivity)
            decay = tuple(s * e for s, e in zip(conductivity, impermittivity, strict=True))
        scales = scales_of(self.domain, self.medium_layout, self.order, permittivity.dtype)
        sources = None
        if params.sources is not None:
            layout, value = self.fed_layout, impermittivity[self.along]
            if self.domain.grid.axisymmetric and layout.offset[RADIAL] != FACE:
                raise_first(axisymmetric_waves.EXCLUSIONS.refusals(axisymmetric_waves.ALONG_AXIS))
            volumes = self._volumes(scales, layout, value.dtype, rings=self.polarisation == "tm")
            sources = self.located_sources(params, value, volumes)
        impermeability = self.inverse_at_faces(params.permeability)
        poles = tuple(self.over_permittivity(pole, impermittivity) for pole in params.poles)
        medium = impermittivity, decay, impermeability, poles
        layers = tuple(self.layer_along(axis, speed, Layer, *medium) for axis in range(self.domain.grid.ndim))
        waves = (
            self.speed_of_incident(params, impermittivity, impermeability),
            self.formed_modes(params) if self.parts is None else self.parts.modes,
        )
        return Prepared(impermittivity, decay, impermeability, layers, sources, scales, poles, *waves)

    @property
    def fed_layout(self):
        return self.electric_layouts[self.along]

    def fed(self, state):
        return state.electric[self.along]

    def slopes(self, terms, fields, layouts, offset, t, scales):
        if not self.domain.grid.axisymmetric or len(fields) > 1:
            return super().slopes(terms, fields, layouts, offset, t, scales)
        # An only component goes around the axis: along r its moment has the slope.
        domain, (field,), (layout,) = self.domain, fields, layouts
        moments = tuple(tuple((axis, int(axis == RADIAL), sign) for axis, _, sign in own) for own in terms)
        both = field, axisymmetric_waves.with_radii(domain, field, layout)
        found = super().slopes(moments, both, (layout, layout), offset, t, scales)
        return tuple(
            tuple(
                axisymmetric_waves.per_radius(domain, slope, layout) if axis == RADIAL else slope
                for slope, (axis, _, _) in zip(slopes, own, strict=True)
            )
            for slopes, own in zip(found, terms, strict=True)
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
        after, lines = self.accelerated_with_lines(t, dt, state, params, prepared)
        magnetic, memory = [], []
        for k, (u, curl) in enumerate(zip(after.magnetic, self.curls_of_electric, strict=True)):

            def factor_of(layer: Layer, k=k):
                return layer.center, -dt * layer.impermeability[k]

            u, kept = self.absorbed(u, curl, lines[k], state.magnetic_memory[k], prepared.layers, factor_of, dt)
            magnetic.append(u)
            memory.append(kept)
        incident = self.line_kicked(dt, state, prepared)
        memories = state.electric_memory, tuple(memory)
        return State(state.electric, tuple(magnetic), *memories, state.lag, state.poles, incident)

    def accelerated_with_lines(self, t, dt, state, params, prepared):
        curls = self.curls_of_electric
        slopes = self.slopes(curls, state.electric, self.electric_layouts, CENTER, t, prepared.scales)
        slopes, lines = self.read_layers(curls, slopes)
        magnetic = [
            u - dt * (prepared.impermeability[k] * sum(terms[1:], terms[0]))
            for k, (u, terms) in enumerate(zip(state.magnetic, slopes, strict=True))
        ]
        lacking = joined(self.lacking_of_electric(state), self.modes_lack_electric(t, params, prepared))
        for k, parts in enumerate(lacking):
            for part in parts:
                magnetic[k] = magnetic[k] - dt * (prepared.impermeability[k] * part)
        return eqx.tree_at(lambda s: s.magnetic, state, tuple(magnetic)), lines

    def drift(self, t, dt, state, params, prepared):
        curls = self.curls_of_magnetic
        slopes = self.slopes(curls, state.magnetic, self.magnetic_layouts, FACE, t, prepared.scales)
        slopes, lines = self.read_layers(curls, slopes)
        electric, memory = [], []
        lacking = joined(self.lacking_of_magnetic(state, prepared), self.modes_lack_magnetic(t, params, prepared))
        for k, (u, curl, terms) in enumerate(zip(state.electric, curls, slopes, strict=True)):

            def factor_of(layer: Layer, k=k):
                return layer.face, _factor_of_curl(dt, k, layer)

            kept, lost = 1.0, half_losses(dt, *of_component(k, prepared))
            if lost is not None:
                kept = (1 - lost) / (1 + lost)
            factor = _factor_of_curl(dt, k, prepared)
            u = kept * u + factor * sum(terms[1:], terms[0])
            for part in lacking[k]:
                u = u + factor * part
            for pole, held in zip(prepared.poles, state.poles, strict=True):
                u = u - pole.strength[k] / (1 + jnp.asarray(lost)) * pole.drive(dt, held[k])
            u, memories = self.absorbed(u, curl, lines[k], state.electric_memory[k], prepared.layers, factor_of, dt)
            electric.append(u)
            memory.append(memories)
        if prepared.sources is not None:
            electric[self.along] = self.feed(t, dt, electric[self.along], params, prepared)
        poles = tuple(
            tuple(
                pole.advanced(dt, 0.5 * (before + after), parts)
                for before, after, parts in zip(state.electric, electric, held, strict=True)
            )
            for pole, held in zip(prepared.poles, state.poles, strict=True)
        )
        incident = self.line_drifted(t, dt, state, params, prepared)
        memories = tuple(memory), state.magnetic_memory
        return State(tuple(electric), state.magnetic, *memories, state.lag, poles, incident)

    def with_memories(self, form, state, *others):
        states = state, *others
        electric = of_memories(form, self.curls_of_magnetic, *(one.electric_memory for one in states))
        magnetic = of_memories(form, self.curls_of_electric, *(one.magnetic_memory for one in states))
        return State(state.electric, state.magnetic, electric, magnetic, state.lag, state.poles, state.incident)

    def irreversible(self, params):
        conduction = "conduction" if params.conductivity is not None else ""
        damping = "damping of a pole" if any(pole.lossy for pole in params.poles) else ""
        wave = "an incident wave" if self.incident is not None else ""
        return super().irreversible(params) or conduction or damping or wave

    def feed(self, t, dt, u: Array, params, prepared) -> Array:
        """E after the currents: dE = -dt J / (eps + sigma dt / 2), and what poles add below."""
        currents, sources = self.strengths(t, params, u.dtype), prepared.sources
        own = of_component(self.along, prepared)
        lost = half_losses(dt, *jax.tree.map(lambda v: gather(sources, v) if v.ndim else v, own))
        if lost is not None:
            sources = PointSources(sources.cells, sources.weights / (1 + lost))
        return spread(sources, -dt * currents, u)

    def partition_specs(self, state, params):
        specs, rest = super().partition_specs(state, params)
        cut = tuple(self.pole_specs(pole, own) for pole, own in zip(params.poles, rest.poles, strict=True))
        return specs, eqx.tree_at(lambda p: p.poles, rest, cut)

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

    def diagnostics(self, t, state, params):
        """energy: see `energy`. maximum_electric: of any component's size. receiver_0, ...: E there."""
        largest = [self.domain.max(jnp.abs(u)) for u in state.electric]
        maximum = jnp.max(jnp.stack(largest))
        return {"energy": self.energy(t, state, params), "maximum_electric": maximum, **self.records(t, state, params)}

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
        def memories(curls: tuple[Terms, ...]):
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
            tuple(tuple((jnp.zeros_like(u),) * pole.parts for u in fields["electric"]) for pole in params.poles),
            None if self.incident is None else self.incident.start(like.dtype),
        )

    def constrain(self, t, dt, state, params):
        """Tangential E and normal H vanish on conductors."""
        electric = self.domain.impose(state.electric, self.electric_layouts, t)
        magnetic = self.domain.impose(state.magnetic, self.magnetic_layouts, t)
        poles = tuple(self._imposed(held, t) for held in state.poles)
        return eqx.tree_at(lambda s: (s.electric, s.magnetic, s.poles), state, (electric, magnetic, poles))

    def _imposed(self, held: tuple[Parts, ...], t) -> tuple[Parts, ...]:
        """The parts of a pole, per component of E, zero where that vanishes on conductors."""
        by_part = [self.domain.impose(parts, self.electric_layouts, t) for parts in zip(*held, strict=True)]
        return tuple(zip(*by_part, strict=True))

    def unphysical(self, state, params):
        averaged = self.averaged(params)
        permittivity, permeability = map(least, (averaged.permittivity, averaged.permeability))
        found = {"permittivity or permeability <= 0": ~((permittivity > 0) & (permeability > 0))}
        for number, pole in enumerate(averaged.poles):
            found[f"strength of pole {number} < 0"] = ~(least(pole.strength) >= 0)
            found[f"{pole.wrong} of pole {number}"] = pole.is_unphysical()
        found |= self.on_sides_of_incident(averaged) | self.at_mode_sources(averaged)
        return self.with_misplaced_sources(found, params, rings=self.polarisation == "tm")

    def outputs(self):
        result = []
        for field, components, layouts in self.named_fields():
            for i, (name, layout) in enumerate(zip(components, layouts, strict=True)):
                vector = {"vector": field, "component": i} if len(components) > 1 else {}
                lonely = "azimuthal " if self.domain.grid.axisymmetric else ""
                direction = directions(self.domain.grid)[i] if vector else lonely
                result.append(Output(name, layout.offset, layout.units, f"{direction}{field} field", **vector))
        return tuple(result)

    def named_fields(self):
        """Both fields with the names of their components: `electric_x`, ...; an only component has the field's."""
        for field, components, layouts in zip(
            ("electric", "magnetic"),
            POLARISATIONS[self.polarisation],
            (self.electric_layouts, self.magnetic_layouts),
            strict=True,
        ):
            names = [f"{field}_{AXES[c]}" for c in components] if len(components) > 1 else [field]
            yield field, names, layouts

    def energy_flux_along(self, axis):
        """The component of E x H along an axis."""
        names = [
            dict(zip(POLARISATIONS[self.polarisation][n], own, strict=True))
            for n, (_, own, _) in enumerate(self.named_fields())
        ]
        (electric, magnetic), j, k = names, (axis + 1) % 3, (axis + 2) % 3
        products = ((j, k, 1), (k, j, -1))
        found = [(electric[a], magnetic[b], sign) for a, b, sign in products if a in electric and b in magnetic]
        if len(magnetic) == 1:
            found = [(one, other, sign) for other, one, sign in found]
        return tuple(WaveProduct(*product) for product in found)

    def guided_modes(self, params, axis, place, frequency, dt, count, ends):
        return modes_on_faces(self, params, axis, place, frequency, dt, count, ends)

    def observe(self, t, state, params) -> dict[str, Array]:
        now = self.kick(t, state.lag, state, params, self.prepare(params))
        return {
            name: u
            for field, names, _ in self.named_fields()
            for name, u in zip(names, getattr(now, field), strict=True)
        }


Maxwell.Params, Maxwell.State = Params, State


def _factor_of_curl(dt, component: int, medium: Any) -> Array:
    """Factor of a component of the curl of H in a drift; medium: of the whole block (`Prepared`) or a layer."""
    factor, lost = dt * medium.impermittivity[component], half_losses(dt, *of_component(component, medium))
    return factor if lost is None else factor / (1 + lost)
