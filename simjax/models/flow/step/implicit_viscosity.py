"""Incompressible flow with the viscosity taken implicitly, for cells so narrow that it would limit the step."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann
from simjax.core.model import SemiImplicitModel
from simjax.jaxpr.varying import vary_like
from simjax.models.flow.axisymmetric_flow import volumes_around
from simjax.ops import staggered
from simjax.ops.scaling import scale_by
from simjax.ops.spacing import scaled
from simjax.solvers.implicit_derivative import symmetric_solve
from simjax.solvers.krylov import conjugate_gradient
from simjax.solvers.line_modes import component_modes
from simjax.solvers.modes import modes_along
from simjax.solvers.poisson import solve_poisson
from simjax.solvers.spectral import SpectralBasis
from simjax.solvers.transforms import FOURIER

MOST_ITERATIONS = 100
"""Beside walls it takes some ten."""


class StokesStages(SemiImplicitModel):
    """Stages of `models.flow.incompressible` with viscosity implicit: u - a nu lap(u) + grad(phi) = r, div(u) = 0.

    Each stage solves this Stokes problem: H = 1 - a nu lap by waves along uniform periodic axes and eigenvectors along
    others, and phi by conjugate gradients on -div(H^-1 grad(phi)) = -div(H^-1 r), preconditioned by -lap^-1 + a nu,
    which is its inverse but for walls (Cahouet and Chabard 1988, Int. J. Numer. Methods Fluids 8, 869). So
    no step is too long for viscosity, and the scheme keeps its order. What an eddy viscosity does is explicit.
    """

    def explicit_rhs(self: Any, t, state, params):
        whole, viscous = self.accelerated(t, state, params), self.implicit_rhs(t, state, params)
        velocity = tuple(k - v for k, v in zip(whole.velocity, viscous.velocity, strict=True))
        return dataclasses.replace(whole, velocity=velocity)

    def implicit_rhs(self: Any, t, state, params):
        """nu lap(u); the pressure is what makes a state of it."""
        spread = self._spread(t, state.velocity, self.layouts)
        return dataclasses.replace(state, velocity=tuple(params.viscosity * k for k in spread))

    def _spread(self: Any, t, velocity: Sequence[Array], layouts: Sequence[FieldLayout]) -> tuple[Array, ...]:
        """lap(u) of each component, zero on faces in walls."""

        def spread(*blocks):
            *components, h = blocks
            return tuple(staggered.laplacian(u, h, i) for i, u in enumerate(components))

        found = self.domain.apply_spaced(spread, tuple(velocity), tuple(layouts), 1, t)
        return self.domain.impose(found, self.projection.still_walls(), t)

    def implicit_solve(self: Any, t, dt, right, params, prepared):
        domain, projection, reach = self.domain, self.projection, dt * params.viscosity
        walls = domain.impose(jax.tree.map(jnp.zeros_like, right.velocity), self.layouts, t)
        given = self._spread(t, walls, self.layouts)
        moved = (r + reach * k for r, k in zip(right.velocity, given, strict=True))
        velocity = domain.impose(self._slowed(moved, reach), self.layouts, t)
        still, volume = projection.still_walls(), self._volume((), velocity[0])
        source = -volume * projection.divergence(velocity, t, self.layouts)
        modes = modes_along(domain, projection.layout, source.dtype)
        reach, volume, source, modes = vary_like((reach, volume, source, modes), source)

        def pushed(phi):
            return self._slowed(projection.gradient(phi), reach)

        def matvec(phi):
            return -volume * projection.divergence(pushed(phi), t, still)

        def precondition(residual):
            source = residual / volume
            return reach * source - solve_poisson(domain, projection.layout, source, projection.method, modes)

        def solve(matvec, source):
            return conjugate_gradient(
                matvec,
                source,
                domain=domain,
                precondition=precondition,
                tolerance=100 * float(jnp.finfo(source.dtype).eps),
                limit=MOST_ITERATIONS,
            ).solution

        phi = symmetric_solve(matvec, source, solve)
        found = [u - k for u, k in zip(velocity, pushed(phi), strict=True)]
        for axis, wanted in enumerate(params.bulk_velocity or ()):
            if wanted is not None:
                # The flow that a uniform force drives, which has no divergence.
                driven = self._slowed_component(axis, jnp.ones_like(found[axis]), reach)
                strength = (wanted - self.drive.mean(found[axis], axis)) / self.drive.mean(driven, axis)
                found[axis] = found[axis] + strength * driven
        return dataclasses.replace(right, velocity=tuple(found))

    def _slowed(self: Any, right: Iterable[Array], reach) -> tuple[Array, ...]:
        """H^-1 of each component, beside sides that hold their values or slopes at zero."""
        return tuple(self._slowed_component(component, u, reach) for component, u in enumerate(right))

    def _slowed_component(self: Any, component: int, u: Array, reach) -> Array:
        still, volume = tuple(map(_homogeneous, self.layouts)), self._volume((component,), u)
        weighed = volume * u
        # Cast here, as all that solves within a solve capture.
        modes = vary_like(component_modes(self.domain, self.layouts[component], u.dtype), weighed)
        basis = SpectralBasis(self.domain, [FOURIER if one is None else one for one in modes])
        values = basis.eigenvalues(u.dtype)
        reach, volume, rates = vary_like((reach, volume, sum(values[1:], values[0])), weighed)

        def matvec(x):
            fields = tuple(x if k == component else jnp.zeros_like(x) for k in range(self.domain.grid.ndim))
            return volume * (x - reach * self._spread(0.0, fields, still)[component])

        def solve(_, right):
            return basis.inverse(scale_by(1 / (1 - reach * rates), basis.forward(right)))

        return symmetric_solve(matvec, weighed, solve)

    def _volume(self: Any, on_faces: Sequence[int], like: Array) -> Array:
        """Volumes around cell centres, or around lower faces of an axis, in mean ones."""
        return scaled(jnp.ones_like(like), *volumes_around(self.domain, self.momentum.layout, on_faces, like.dtype))

    def explicit_stable_dt(self: Any, state, params):
        """The step that advection allows, however slow it is."""
        nothing = jnp.zeros_like(params.viscosity)
        least = float(jnp.finfo(nothing.dtype).tiny) ** 0.5
        return self.longest_step(state, dataclasses.replace(params, viscosity=nothing, drag=params.drag + least))


def _homogeneous(layout: FieldLayout) -> FieldLayout:
    """The layout with sides that hold their values or slopes at zero."""

    def still(one: Boundary) -> Boundary:
        return Dirichlet(0.0) if isinstance(one, Dirichlet) else Neumann() if isinstance(one, Neumann) else one

    pairs = tuple((still(lower), still(upper)) for lower, upper in layout.boundaries)
    return FieldLayout(layout.offset, pairs, layout.units)
