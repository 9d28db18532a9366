"""Direct solution of the discrete Poisson equation with constant coefficients on a decomposed domain."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Periodic
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.jaxpr.varying import cast_varying, varying_axes
from simjax.ops.difference import laplacian
from simjax.solvers.implicit import symmetric_solve
from simjax.solvers.spectral import SpectralBasis
from simjax.solvers.transforms import COSINE, FOURIER, SINE, Transform


def solve_poisson(domain: Domain, layout: FieldLayout, source: Float[Array, "*block"]) -> Float[Array, "*block"]:
    """phi with lap(phi) = source, for the second-order Laplacian and homogeneous boundaries of `layout`.

    Args:
        domain: the grid and its decomposition.
        layout: cell-centred; per axis both sides periodic, both Neumann, or both Dirichlet.
        source: this block's right-hand side, `(..., *block_shape)`.

    Returns:
        phi, like `source`. Where the operator is singular (no Dirichlet side) the mean of `source` is ignored
        and phi has zero mean.

    The derivative is implicit: one more solve, since the operator is symmetric.
    """
    transforms = [_transform(*layout.boundaries[axis], axis) for axis in range(domain.grid.ndim)]
    if layout.offset != (CENTER,) * domain.grid.ndim:
        raise ConfigurationError(f"The Poisson solve is for cell-centred fields; got offset {layout.offset}.")
    basis = SpectralBasis(domain, transforms)

    def matvec(phi):
        return domain.apply(lambda p: laplacian(p, domain.grid.spacing), phi, layout, width=1)

    # Cast here: what `custom_linear_solve` captures must already vary as its right-hand side does.
    axes = sorted(varying_axes(source))
    eigenvalues = tuple(cast_varying(values, axes) for values in basis.eigenvalues(source.dtype))

    def solve(_, right):
        return basis.inverse(_divide(basis.forward(right), eigenvalues))

    return symmetric_solve(matvec, source, solve)


def _divide(spectrum: Array, eigenvalues: tuple[Array, ...]) -> Array:
    """The spectrum over the Laplacian's eigenvalues, zero where those vanish."""
    total = sum(eigenvalues[1:], eigenvalues[0])
    total = total.reshape((1,) * (spectrum.ndim - total.ndim) + total.shape)
    inverse = jnp.where(total == 0, 0.0, 1 / jnp.where(total == 0, 1.0, total))
    return spectrum * inverse.astype(spectrum.dtype)


def _transform(lower: Boundary, upper: Boundary, axis: int) -> Transform:
    for kind, transform in ((Periodic, FOURIER), (Neumann, COSINE), (Dirichlet, SINE)):
        if isinstance(lower, kind) and isinstance(upper, kind):
            return transform
    raise ConfigurationError(
        f"The direct Poisson solve needs the same kind of boundary at both sides of {AXES[axis]}; "
        f"got {type(lower).__name__} and {type(upper).__name__}."
    )
