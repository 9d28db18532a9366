"""The tendency of momentum in an incompressible flow: advection, viscous stress with eddies, and a turning frame."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from simjax.core.boundary import FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.jaxpr.jaxpr_parts import part
from simjax.jaxpr.varying import vary_like
from simjax.models.axisymmetric_grid import tapers_of
from simjax.models.declaration import Setup
from simjax.models.face_fluxes import FacePlane, at_faces, inner
from simjax.models.flow.axisymmetric_flow import volumes_around
from simjax.models.flow.bodies.free_body_setup import body_params_of
from simjax.models.flow.features import DYNAMIC
from simjax.ops import germano, staggered
from simjax.ops.difference import shift
from simjax.ops.eddy_viscosity import VISCOSITIES, squared_width, strain_rate
from simjax.ops.momentum_advection import SCHEMES, MomentumScheme, advection
from simjax.ops.scalar_fluxes import conducted, diffusion_tendency, face_diffusivity
from simjax.ops.spacing import Spacing, along, scaled, width_of, without_ends
from simjax.ops.staggered_wave import laplacian
from simjax.ops.stress import shear_on_edges, stress_divergence
from simjax.schema.model_schema import FieldSchema

TURBULENCE = ("none", *VISCOSITIES, DYNAMIC)
EDDY_VISCOSITY = FieldSchema("eddy_viscosity", units="m2 s-1", default=None, optional=True)
WRAPPED = (Periodic(), Periodic())

LayoutsFor = Callable[[int], Sequence[FieldLayout]]
"""Layouts of the velocity for stencils of so many ghost cells."""


class Momentum(eqx.Module):
    """-div(u u) + div(2 (nu + nu_t) S) - 2 W x u, on the faces of each component.

    nu viscosity, S the symmetric part of grad u, W the angular velocity of the frame. nu_t: what is given as a field,
    and c^q times one of `ops.eddy_viscosity.VISCOSITIES` of the resolved velocity, with the constant c, or that of
    Smagorinsky's with the coefficient of `ops.germano` by means over the homogeneous axes. It is formed in the one
    stencil, in the cells beyond sides from the ghost cells of the velocity. advection: one of
    `ops.momentum_advection.SCHEMES`; stresses with eddies and the turning frame are of second order beside any.
    """

    domain: Domain
    layout: FieldLayout
    """The layout of a viscosity at cell centres, which goes on unchanged beyond sides."""
    homogeneous: tuple[int, ...] = eqx.field(static=True)
    """Uniform periodic axes: a dynamic coefficient is filtered and averaged along them."""
    turbulence: str = eqx.field(static=True)
    advection: str = eqx.field(static=True)

    def __init__(
        self, domain: Domain, layouts: Sequence[FieldLayout], turbulence: str = "none", advection: str = "central2"
    ):
        self.domain, self.turbulence, self.advection = domain, turbulence, advection
        self.layout = center_layout(
            [WRAPPED if layouts[0].is_periodic(axis) else (Neumann(), Neumann()) for axis in range(domain.grid.ndim)]
        )
        periodic = [axis for axis in range(domain.grid.ndim) if layouts[0].is_periodic(axis)]
        self.homogeneous = tuple(axis for axis in periodic if axis not in domain.grid.stretched)

    @property
    def width(self) -> int:
        """Ghost cells of the velocity that the tendency needs."""
        return max(self.scheme.width, 1 if self.turbulence == "none" else 2)

    @property
    def scheme(self) -> MomentumScheme:
        """The way in which the flow carries its momentum."""
        return SCHEMES[self.advection]

    def has_eddies(self, params) -> bool:
        """Tell whether there is an eddy viscosity."""
        return self.turbulence != "none" or params.eddy_viscosity is not None

    @part("advection and viscosity")
    def tendency(self, t, velocity: Sequence[Array], layouts: LayoutsFor, params) -> tuple[Array, ...]:
        """The tendency of every component."""
        ndim, eddies, factor = self.domain.grid.ndim, self.has_eddies(params), self._factor(params)
        scheme, width, around = self.scheme, self.width, 1 if self.turbulence == "none" else 2
        rotations = [] if params.rotation is None else self._rotations(2 * params.rotation)

        def tendency(blocks, rings, h):
            near, narrow = (cropped(part, ndim, width - 1) for part in (blocks, h))
            velocity, carried = near[:ndim], cropped(blocks[:ndim], ndim, width - scheme.width)
            if eddies:
                wide, spacing = (cropped(part, ndim, width - around) for part in (blocks, h))
                viscosity = params.viscosity + self._eddy_viscosity(wide, spacing, factor, around - 1)
                slopes = stress_divergence(velocity, viscosity, narrow)
            elif scheme.order > 2:
                slopes = [params.viscosity * laplacian(u, narrow, scheme.order, scheme.width) for u in carried]
            else:
                slopes = [params.viscosity * staggered.laplacian(u, narrow, i, *rings) for i, u in enumerate(velocity)]
            slopes = [k - advection(carried, i, narrow, scheme, *rings) for i, k in enumerate(slopes)]
            for (x, y), rate in rotations:
                along_x, along_y = staggered.turned(velocity, (x, y), narrow)
                slopes[x] = slopes[x] + rate * along_x
                slopes[y] = slopes[y] + rate * along_y
            return tuple(slopes)

        lengths = self._squared_lengths(t, velocity, layouts)
        fields, kinds = self._with_given(velocity, layouts(width), params, lengths)
        rings = tapers_of(self.domain, self.layout, velocity[0])
        kinds = (kinds, (self.layout,) * len(rings))
        return self.domain.apply_spaced(tendency, (fields, rings), kinds, width, t)

    def eddy_viscosity(self, t, velocity: Sequence[Array], layouts: LayoutsFor, params) -> Array:
        """nu_t at cell centres."""
        factor = self._factor(params)

        def viscosity(*blocks):
            *blocks, h = blocks
            return self._eddy_viscosity(blocks, h, factor, 1)

        lengths = self._squared_lengths(t, velocity, layouts)
        fields, kinds = self._with_given(velocity, layouts(1), params, lengths)
        return self.domain.apply_spaced(viscosity, fields, kinds, 1, t)

    def diagnosed(self, t, velocity: Sequence[Array], layouts: LayoutsFor, params) -> dict[str, Array]:
        """Means over the volume of nu_t and of a dynamic coefficient, by the names of their diagnostics."""

        def mean(u: Array) -> Array:
            return self.domain.mean(scaled(u, *volumes_around(self.domain, self.layout, (), u.dtype)))

        found = {"mean_eddy_viscosity": mean(self.eddy_viscosity(t, velocity, layouts, params))}
        for length in self._squared_lengths(t, velocity, layouts):
            widths = self.domain.spacing(self.layout, 0, length.dtype)
            found["mean_coefficient"] = mean(scaled(length, *(1 / w for w in squared_width(widths))))
        return found

    def _squared_lengths(self, t, velocity: Sequence[Array], layouts: LayoutsFor) -> tuple[Array, ...]:
        """l^2 of a dynamic model, the same along its homogeneous axes, at cell centres; nothing of other models."""
        if self.turbulence != DYNAMIC:
            return ()
        domain, axes = self.domain, self.homogeneous

        def contractions(*blocks):
            *velocity, h = blocks
            centered, gradient = staggered.velocity_at_center(velocity), staggered.gradient_at_center(velocity, h)
            return germano.contractions(centered, gradient, axes)

        parts = domain.apply_spaced(contractions, tuple(velocity), tuple(layouts(2)), 2, t)
        along = tuple(axis - domain.grid.ndim for axis in axes)
        sums = (domain.total(jnp.sum(part, axis=along, keepdims=True), axes) for part in parts)
        found = jnp.broadcast_to(germano.squared_length(*sums), velocity[0].shape)
        return (vary_like(found, velocity),)

    def eddy_diffusion(
        self, t, c: Array, layout: FieldLayout, velocity, layouts: LayoutsFor, params, reach: int
    ) -> Array:
        """div(nu_t grad c) at cell centres beside an advection of this `reach`.

        c: with its `layout`. nu_t on faces is the harmonic mean of the two cells beside them.
        """
        factor = self._factor(params)

        def diffusion(*blocks):
            c, faces, spacing = self._diffusing(blocks, factor, reach)
            return diffusion_tendency(c, faces, spacing, reach)

        lengths = self._squared_lengths(t, velocity, layouts)
        fields, kinds = self._with_given((c, *velocity), (layout, *layouts(reach + 2)), params, lengths)
        return self.domain.apply_spaced(diffusion, fields, kinds, reach + 2, t)

    def eddy_flux(
        self, t, c: Array, layout: FieldLayout, velocity, layouts: LayoutsFor, params, reach: int, plane: FacePlane
    ) -> Array:
        """nu_t dc/dx through the faces in a plane, as `eddy_diffusion` has it."""
        factor, ndim, axis = self._factor(params), self.domain.grid.ndim, plane.axis

        def flux(*blocks):
            c, faces, spacing = self._diffusing(blocks, factor, reach)
            return conducted(c, faces[axis], without_ends(spacing[axis], axis, reach), axis, ndim)

        lengths = self._squared_lengths(t, velocity, layouts)
        fields, kinds = self._with_given((c, *velocity), (layout, *layouts(reach + 2)), params, lengths)
        return at_faces(self.domain, flux, fields, kinds, reach + 2, plane, t)

    def shear(
        self, t, velocity: Sequence[Array], layouts: LayoutsFor, params, component: int, plane: FacePlane
    ) -> Array:
        """-(nu + nu_t) (du_i/dx_j + du_j/dx_i) of component i in a plane across axis j, where an eddy viscosity is."""
        factor, ndim, axis = self._factor(params), self.domain.grid.ndim, plane.axis

        def flux(*blocks):
            *blocks, h = blocks
            viscosity = params.viscosity + self._eddy_viscosity(blocks, h, factor, 1)
            near, spacing = (cropped(part, ndim, 1) for part in (blocks[:ndim], h))
            stress = shear_on_edges(near, viscosity, component, axis, 0, spacing)
            # Two of three cells on both sides are used up: of the two lines left the second one is above the plane.
            return -inner(lax.slice_in_dim(stress, 1, 2, axis=axis), axis, ndim)

        lengths = self._squared_lengths(t, velocity, layouts)
        fields, kinds = self._with_given(velocity, layouts(3), params, lengths)
        return at_faces(self.domain, flux, fields, kinds, 3, plane, t)

    def _diffusing(self, blocks: Sequence[Any], factor, reach: int) -> tuple[Array, list[Array], list[Spacing]]:
        """The scalar, padded by one, nu_t on faces, and widths with reach + 1 ghost cells along their axes."""
        c, *others, h = blocks
        ndim = len(h)
        viscosity = shift(self._eddy_viscosity(others, h, factor, 1), ndim, width=reach)
        spacing = [without_ends(along(part, axis, ndim, reach + 2), axis, 1) for axis, part in enumerate(h)]
        inner = [without_ends(part, axis, reach) for axis, part in enumerate(spacing)]
        faces = [face_diffusivity(viscosity, axis, ndim, part) for axis, part in enumerate(inner)]
        return shift(c, ndim, width=reach + 1), faces, spacing

    def _with_given(self, velocity, layouts, params, lengths) -> tuple[tuple[Array, ...], tuple[FieldLayout, ...]]:
        """Fields and layouts with a viscosity that is given, and the squared length of a dynamic model."""
        given = lengths if params.eddy_viscosity is None else (params.eddy_viscosity, *lengths)
        return (*velocity, *given), (*layouts, *(self.layout,) * len(given))

    def _factor(self, params) -> Array | None:
        """The power of the constant that the viscosity of the turbulence model is proportional to."""
        if self.turbulence not in VISCOSITIES:
            return None
        _, usual, power = VISCOSITIES[self.turbulence]
        given = params.turbulence_constant
        return (jnp.asarray(usual, jnp.result_type(params.viscosity)) if given is None else given) ** power

    def _eddy_viscosity(self, blocks: Sequence[Array], spacing: Sequence[Spacing], factor, cut: int) -> Array:
        """nu_t in a block without `cut` of its ghost cells: one where a turbulence model makes part of it."""
        ndim = len(spacing)
        velocity, given = blocks[:ndim], [shift(u, ndim, width=cut) for u in blocks[ndim:]]
        if self.turbulence == "none":
            return given[0]
        gradient = staggered.gradient_at_center(velocity, spacing)
        if self.turbulence == DYNAMIC:
            found = given.pop() * strain_rate(gradient)
        else:
            widths = [width_of(h, axis, ndim) for axis, h in enumerate(spacing)]
            found = factor * VISCOSITIES[self.turbulence][0](gradient, widths)
        return found + given[0] if given else found

    def _rotations(self, rates: Array) -> list[tuple[tuple[int, int], Array]]:
        """Planes in which the frame turns, from their first axis to the second, each with its rate."""
        if self.domain.grid.ndim == 2:
            return [((0, 1), rates[0])]
        return [(((axis + 1) % 3, (axis + 2) % 3), rates[axis]) for axis in range(3)]


class Drive(eqx.Module):
    """A uniform body force along periodic axes that keeps the mean velocity, formed anew in every stage."""

    domain: Domain
    layout: FieldLayout
    """Periodic along all axes, as of a velocity of which each face stands for as much as it does in a periodic box."""

    def mean(self, u: Array, axis: int) -> Array:
        """The mean of a velocity component, weighed with the volumes of its cells."""
        return self.domain.mean(scaled(u, *volumes_around(self.domain, self.layout, (axis,), u.dtype)))

    def driven(self, velocity: Sequence[Array], bulk: Sequence[Array | None]) -> tuple[Array, ...]:
        """The velocity with the means that are given, moved by the same everywhere."""
        return tuple(
            u if wanted is None else u + (wanted - self.mean(u, axis))
            for axis, (u, wanted) in enumerate(zip(velocity, bulk, strict=True))
        )


def cropped(blocks: Sequence[Any], ndim: int, cut: int) -> list[Any]:
    """Blocks without `cut` ghost cells on every side; numbers stay as they are."""
    return [shift(b, ndim, width=cut) if cut and isinstance(b, Array) else b for b in blocks]


def momentum_params(setup: Setup) -> dict[str, Any]:
    """Parameters of a configuration that `Incompressible.Params` has beside viscosity and drag, by name."""
    keys, dtype = setup.keys, jnp.result_type(setup.values["viscosity"])
    eddies, bulk = setup.coefficients.get("eddy_viscosity"), keys.bulk_velocity
    given = None if setup.config.coefficients.get("eddy_viscosity") is None or eddies is None else eddies[0]
    if given is not None and not isinstance(given, Tracer | jax.ShapeDtypeStruct):
        least = float(np.min(np.asarray(given)))
        if not least >= 0:
            raise ConfigurationError(
                f"coefficients.eddy_viscosity is {least:g} at its least: expected a finite viscosity of at least 0."
            )
    return {
        "turbulence_constant": None if keys.turbulence not in VISCOSITIES else setup.values.get("turbulence_constant"),
        "eddy_viscosity": given,
        "rotation": None if keys.rotation is None else jnp.asarray(keys.rotation, dtype),
        "bulk_velocity": None if bulk is None else tuple(None if u is None else jnp.asarray(u, dtype) for u in bulk),
        "body": body_params_of(setup),
    }


def with_field_specs(domain: Domain, specs: Any, params: Any) -> Any:
    """Specs of parameters, of which an eddy viscosity is cut like the grid."""
    if params.eddy_viscosity is None:
        return specs
    return dataclasses.replace(specs, eddy_viscosity=domain.spec(params.eddy_viscosity.ndim))
