"""The projection of a velocity on those free of divergence, on the staggered grid."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Periodic, center_layout
from simjax.core.domain import Domain
from simjax.grid import LOWER, UPPER
from simjax.jaxpr.jaxpr_parts import part
from simjax.models.axisymmetric_grid import tapers_of
from simjax.models.flow.sides.openings import Opening, balanced, velocity_through, with_first_line
from simjax.ops import staggered, staggered_wave
from simjax.solvers.modes import Modes, modes_along
from simjax.solvers.poisson import solve_poisson

Outlets = tuple[Array | None, ...]
WRAPPED = (Periodic(), Periodic())


class Projection(eqx.Module):
    """u - grad(phi) with lap(phi) = div(u), exact for the discrete divergence (Chorin 1968, Math. Comp. 22, 745).

    layouts: of the velocity. layout: of the pressure. method: how phi is solved for. openings: sides through which the
    flow changes its volume. order: of divergence and gradient, 2 or, in uniform boxes without openings, 4.
    """

    domain: Domain
    layouts: tuple[FieldLayout, ...]
    layout: FieldLayout
    openings: tuple[Opening, ...]
    modes: tuple[Modes | None, ...] | None
    """Eigenvectors for the pressure where `Domain.lines` are given, which may be traced: all steps share them."""
    method: str = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(
        self, domain: Domain, layouts: Sequence[FieldLayout], openings: Sequence[Opening], method: str, order: int = 2
    ):
        given = {(one.axis, one.side) for one in openings if one.pressure is not None}
        self.domain, self.layouts, self.openings, self.method = domain, tuple(layouts), tuple(openings), method
        self.order = order
        self.layout = center_layout(
            [
                WRAPPED
                if layouts[0].is_periodic(axis)
                else [Dirichlet(0.0) if (axis, end) in given else Neumann() for end in (LOWER, UPPER)]
                for axis in range(domain.grid.ndim)
            ],
            "m2 s-2",
        )
        traced = [faces for faces, _ in filter(None, domain.lines)]
        self.modes = modes_along(domain, self.layout, jnp.result_type(*traced)) if traced else None

    def divergence(self, velocity: Sequence[Array], t, layouts: Sequence[FieldLayout]) -> Array:
        """div(u) at cell centres; `layouts` know what flows through open upper sides."""

        def divergence(components, rings, h):
            if self.order > 2:
                terms = [staggered_wave.diff_to_center(u, axis, h, self.order) for axis, u in enumerate(components)]
                return sum(terms[1:], terms[0])
            return staggered.divergence(components, h, *rings)

        rings = tapers_of(self.domain, self.layout, velocity[0])
        kinds = (tuple(layouts), (self.layout,) * len(rings))
        return self.domain.apply_spaced(divergence, (tuple(velocity), rings), kinds, staggered_wave.halo(self.order), t)

    @part("pressure solve")
    def potential(self, source: Array) -> Array:
        """phi with lap(phi) = source, of zero mean unless pressure is given at a side."""
        return solve_poisson(self.domain, self.layout, source, self.method, self.modes, self.order)

    def gradient(self, phi: Array) -> tuple[Array, ...]:
        """grad(phi) on the faces of each component."""

        def gradient(p, h):
            if self.order > 2:
                return tuple(staggered_wave.diff_to_face(p, axis, h, self.order) for axis in range(len(h)))
            return tuple(staggered.diff_to_face(p, axis, h) for axis in range(len(h)))

        return self.domain.apply_spaced(gradient, phi, self.layout, staggered_wave.halo(self.order))

    def let_out(self, t, velocity: Sequence[Array], outlets: Outlets) -> tuple[tuple[Array, ...], Outlets]:
        """Velocity and outlets where all outflows gain one speed, so that what leaves is what comes in.

        Nothing changes where the pressure is given at a side: it lets the flow change its volume.
        """
        if not self.openings or any(one.pressure is not None for one in self.openings):
            return tuple(velocity), outlets
        changed, lines = list(velocity), list(outlets)

        def through(one: Opening) -> Array:
            return velocity_through(self.domain, one, velocity, outlets)

        gained = balanced(self.domain, self.layouts, self.openings, t, through, velocity[0].dtype)
        for one in self.openings:
            line = through(one) + one.outward * gained
            if one.side == UPPER:
                lines[one.axis] = line
            else:
                changed[one.axis] = with_first_line(self.domain, changed[one.axis], one.axis, line)
        return tuple(changed), tuple(lines)

    def outlets_after(self, outlets: Outlets, phi: Array) -> Outlets:
        """Velocity through open upper sides, less the gradient of `phi` there."""
        lines = list(outlets)
        for one in self.openings:
            line = outlets[one.axis] if one.side == UPPER else None
            if line is not None and one.pressure is not None:
                # Down to zero on the side, half a cell away.
                width = self.domain.wall_spacing(one.axis, phi.dtype)[UPPER]
                lines[one.axis] = line + self.domain.last_line(phi, one.axis) * (2 / width)
        return tuple(lines)

    def still_walls(self) -> tuple[FieldLayout, ...]:
        """Layouts for d(velocity)/dt, whose normal component is taken to vanish at walls and where it is prescribed."""
        free = {(one.axis, one.side) for one in self.openings}

        def still(axis: int, pair: tuple[Boundary, Boundary]) -> tuple[Boundary, Boundary]:
            if isinstance(pair[0], Periodic):
                return pair
            lower, upper = (one if (axis, end) in free else Dirichlet(0.0) for end, one in enumerate(pair))
            return lower, upper

        return tuple(
            FieldLayout(layout.offset, tuple(still(*pair) for pair in enumerate(layout.boundaries)), layout.units)
            for layout in self.layouts
        )
