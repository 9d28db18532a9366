"""Direct solution of the discrete Poisson equation with constant coefficients on a decomposed domain."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from simjax.core.boundary import Boundary, Dirichlet, FieldLayout, Neumann, Periodic
from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER
from simjax.jaxpr.platform import platform
from simjax.jaxpr.varying import cast_varying, vary_like, varying_axes
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.scaling import scale_by
from simjax.ops.spacing import scaled
from simjax.ops.staggered_wave import halo, laplacian
from simjax.solvers.elliptic import Elliptic, elliptic
from simjax.solvers.implicit_derivative import symmetric_solve
from simjax.solvers.lines import EVEN, ODD, PERIODIC, solve_lines
from simjax.solvers.modes import Modes, mixed_axes, modes_along
from simjax.solvers.multigrid import GATHERED_CELLS, multigrid, solve_elliptic
from simjax.solvers.predicted_time import multigrid_time, transform_time
from simjax.solvers.spectral import SpectralBasis
from simjax.solvers.transforms import COSINE, FOURIER, SINE, Transform
from simjax.stencil.formulation import transforms_in_part_by_products

MOST_ITERATIONS = 50
METHODS = ("auto", "spectral", "tridiagonal", "multigrid")


def solve_poisson(
    domain: Domain,
    layout: FieldLayout,
    source: Float[Array, "*block"],
    method: str = "auto",
    modes: Sequence[Modes | None] | None = None,
    order: int = 2,
) -> Float[Array, "*block"]:
    """phi with lap(phi) = source, for the second-order Laplacian and homogeneous boundaries of `layout`.

    Args:
        domain: the grid and its decomposition.
        layout: cell-centred; per axis both sides periodic, or each Neumann or Dirichlet.
        source: this block's right-hand side, `(..., *block_shape)`.
        method: `spectral`: transforms along every axis; `tridiagonal`: along all but one that is cut, which is solved
            in its blocks; `multigrid`: conjugate gradients with V-cycles; `auto`: see `choose`.
        modes: of stretched and mixed axes and of r, where they were found before: see `modes_along`.
        order: 2, or 4 by transforms along every axis: the divergence of the gradient, both of this order.

    Returns:
        phi, like `source`. Where the operator is singular (no Dirichlet side) the mean of `source` is ignored
        and phi has zero mean, both weighted by volumes.

    The derivative is implicit: one more solve, since the operator is symmetric.
    """
    mixed = mixed_axes(layout)
    kinds = [_kind(*layout.boundaries[axis], axis) for axis in range(domain.grid.ndim)]
    if layout.offset != (CENTER,) * domain.grid.ndim:
        raise ConfigurationError(f"The Poisson solve is for cell-centred fields; got offset {layout.offset}.")
    transforms = [transform for transform, _ in kinds]
    dense = bool(domain.grid.stretched or mixed or domain.grid.axisymmetric)
    if method == "auto":
        method = "spectral" if dense or order > 2 else choose(domain, transforms, source.dtype.itemsize)
    check_method(domain, mixed, method)
    if method == "multigrid":
        return _by_multigrid(domain, layout, source)
    if dense:
        return _by_modes(domain, layout, source, transforms, modes)
    left = _last_cut(domain) if method == "tridiagonal" else None
    basis = SpectralBasis(domain, transforms, left)
    singular = left is not None and all(ends != ODD for _, ends in kinds)

    def matvec(phi):
        width = 2 * halo(order) - 1
        return domain.apply(lambda p: laplacian(p, domain.grid.spacing, order, width), phi, layout, width)

    # Cast here: what `custom_linear_solve` captures must already vary as its right-hand side does.
    axes = sorted(varying_axes(source))
    found = zip(basis.eigenvalues(source.dtype), domain.grid.mean_spacing, strict=False)
    eigenvalues = tuple(cast_varying(_of_order(values, h, order), axes) for values, h in found)

    def solve(_, right):
        if left is None:
            return basis.inverse(_divide(basis.forward(right), eigenvalues))
        right = _without_mean(domain, right) if singular else right
        spectrum = basis.forward(right)
        shape = [1 if axis == left else n for axis, n in enumerate(spectrum.shape[-domain.grid.ndim :])]
        solved = solve_lines(
            spectrum,
            jnp.broadcast_to(sum(eigenvalues[1:], eigenvalues[0]), shape),
            basis.placement[left],
            axis=left - domain.grid.ndim,
            spacing=domain.grid.spacing[left],
            ends=kinds[left][1],
        )
        phi = basis.inverse(solved)
        return _without_mean(domain, phi) if singular else phi

    return symmetric_solve(matvec, source, solve)


def spectral_inverse(domain: Domain, layout: FieldLayout, right: Array) -> Array:
    """`solve_poisson` by transforms on a uniform grid, for use within other solves: without a derivative of its own."""
    basis, spectrum = _solved(domain, layout, right)
    return basis.inverse(spectrum)


def spectral_inverse_within(
    domain: Domain, layout: FieldLayout, right: Array, start: Sequence[int], stop: Sequence[int]
) -> Array:
    """`spectral_inverse` in the cells of a block from `start` to before `stop`."""
    basis, spectrum = _solved(domain, layout, right)
    if transforms_in_part_by_products() and not domain.names:
        return basis.inverse_within(spectrum, start, stop)
    return lax.slice(basis.inverse(spectrum), start, stop)


def _solved(domain: Domain, layout: FieldLayout, right: Array) -> tuple[SpectralBasis, Array]:
    """The basis of transforms, and the spectrum of the solution in it."""
    kinds = _transforms(domain, layout)
    modes = modes_along(domain, layout, right.dtype)
    basis = SpectralBasis(domain, [kind if one is None else one for kind, one in zip(kinds, modes, strict=True)])
    eigenvalues = vary_like(basis.eigenvalues(right.dtype), right)
    return basis, _divide(basis.forward(right), eigenvalues)


def has_transforms(domain: Domain, layout: FieldLayout) -> bool:
    """Tell whether every axis can be made whole on this mesh, one after the other, for its transform."""
    try:
        SpectralBasis(domain, _transforms(domain, layout))
    except ConfigurationError:
        return False
    return True


def _transforms(domain: Domain, layout: FieldLayout) -> list[Transform]:
    return [_kind(*layout.boundaries[axis], axis)[0] for axis in range(domain.grid.ndim)]


def check_method(domain: Domain, mixed: Sequence[int], method: str) -> None:
    """Refuse a method that does not solve on such a grid, or with pressure given at one end of an axis.

    mixed: axes with one open side.

    Raises:
        ConfigurationError: `method` is `tridiagonal`, and the grid is stretched or axisymmetric, or an axis mixed.
    """
    around = (RADIAL,) if domain.grid.axisymmetric else ()
    axes = {
        "the grid is stretched": domain.grid.stretched,
        "the grid is axisymmetric": around,
        "pressure is given at a side": mixed,
    }
    for why, found in axes.items():
        if found and method == "tridiagonal":
            raise ConfigurationError(
                f"pressure_solver 'tridiagonal' takes uniform grids between walls or periodic sides only, and here "
                f"{why} along {', '.join(AXES[axis] for axis in found)}; write spectral, multigrid or auto."
            )


def _by_modes(
    domain: Domain,
    layout: FieldLayout,
    source: Array,
    transforms: Sequence[Transform],
    modes: Sequence[Modes | None] | None,
) -> Array:
    """By eigenvectors along r, stretched and mixed axes: the Laplacian times the cells' volumes, which is symmetric."""
    operator = _operator(domain, layout, source.dtype)
    found = tuple(modes_along(domain, layout, source.dtype) if modes is None else modes)
    found = jax.tree.map(lambda x: x.astype(source.dtype), found)
    # The constant part depends on the volumes as well, where these have derivatives.
    measured = operator.closed and any(line is not None for line in domain.lines)
    right = operator.mass * (_without_mean(domain, source, operator.mass) if measured else source)
    # Cast as those of uniform grids.
    operator, right, found = vary_like((operator, right, found), (operator, right, found))
    basis = SpectralBasis(domain, [kind if one is None else one for kind, one in zip(transforms, found, strict=True)])
    eigenvalues = vary_like(basis.eigenvalues(source.dtype), right)

    def solve(_, right):
        return basis.inverse(_divide(basis.forward(right), eigenvalues))

    phi = symmetric_solve(lambda phi: -operator(phi, 0.0), right, solve)
    return _without_mean(domain, phi, operator.mass) if measured else phi


def choose(domain: Domain, transforms: Sequence[Transform], itemsize: int) -> str:
    """The way of `METHODS` with the least predicted time on TPUs; transforms elsewhere."""
    left = _last_cut(domain)
    if left is None or platform() != "tpu":
        return "spectral"
    seconds = {"multigrid": multigrid_time(domain, itemsize, GATHERED_CELLS)}
    for method, kept in (("spectral", None), ("tridiagonal", left)):
        try:
            basis = SpectralBasis(domain, transforms, kept)
        except ConfigurationError:  # no axis takes over the blocks of another one
            continue
        sizes = dict(entry for entry in domain.split if entry is not None)
        ghosts = () if kept is None else (tuple(sizes[name] for name in basis.placement[kept]),)
        seconds[method] = transform_time(domain, itemsize, basis.exchanges + ghosts, kept)
    return min(seconds, key=lambda method: seconds[method])


def _last_cut(domain: Domain) -> int | None:
    return max((axis for axis, entry in enumerate(domain.split) if entry is not None), default=None)


def _of_order(values: Array, spacing: float, order: int) -> Array:
    """Eigenvalues of the second difference as those of the staggered derivative of this order, twice.

    With s = sin(k h / 2) the former are -(2 s / h)^2. The derivative of fourth order has s + s^3 / 6 in the place of s:
    it is (9/8) s - (1/24) sin(3 k h / 2).
    """
    return values if order == 2 else values * (1 - spacing**2 / 24 * values) ** 2


def _without_mean(domain: Domain, u: Array, volumes: float | Array = 1.0) -> Array:
    """Each field less its mean over the whole grid; volumes of the cells are in mean ones."""
    sums = domain.total(jnp.sum(scaled(u, volumes), axis=tuple(range(-domain.grid.ndim, 0)), keepdims=True))
    return u - sums / domain.grid.cells


def _operator(domain: Domain, layout: FieldLayout, dtype) -> Elliptic:
    """-div grad, on a stretched or axisymmetric grid times the volumes of the cells."""
    faces = [tuple(n + (k == axis) for k, n in enumerate(domain.block_shape)) for axis in range(domain.grid.ndim)]
    return elliptic(domain, layout, [jnp.ones(shape, dtype) for shape in faces])


def _by_multigrid(domain: Domain, layout: FieldLayout, source: Array) -> Array:
    """By conjugate gradients with one V-cycle each, to a hundred roundings of the residual."""
    operator = _operator(domain, layout, source.dtype)
    hierarchy = multigrid(operator)
    tolerance = 100 * float(jnp.finfo(source.dtype).eps)
    weighed, singular = bool(domain.grid.stretched or domain.grid.axisymmetric), operator.closed

    def solve(right: Array) -> Array:
        if weighed:
            right = operator.mass * (_without_mean(domain, right, operator.mass) if singular else right)
        found = solve_elliptic(operator, hierarchy, -right, 0.0, tolerance=tolerance, limit=MOST_ITERATIONS).solution
        return _without_mean(domain, found, operator.mass) if weighed and singular else found

    if source.ndim == domain.grid.ndim:
        return solve(source)
    return jax.vmap(solve)(source.reshape(-1, *domain.block_shape)).reshape(source.shape)


def _divide(spectrum: Array, eigenvalues: tuple[Array, ...]) -> Array:
    """The spectrum over the Laplacian's eigenvalues, zero where those vanish."""
    total = sum(eigenvalues[1:], eigenvalues[0])
    total = total.reshape((1,) * (spectrum.ndim - total.ndim) + total.shape)
    inverse = jnp.where(total == 0, 0.0, 1 / jnp.where(total == 0, 1.0, total))
    return scale_by(inverse, spectrum)


def _kind(lower: Boundary, upper: Boundary, axis: int) -> tuple[Transform, str]:
    """The transform along an axis, and how its lines go on beyond their ends."""
    for kind, transform, ends in (
        (Periodic, FOURIER, PERIODIC),
        (Neumann, COSINE, EVEN),
        (Dirichlet, SINE, ODD),
    ):
        if isinstance(lower, kind) and isinstance(upper, kind):
            return transform, ends
    if isinstance(lower, Neumann | Dirichlet) and isinstance(upper, Neumann | Dirichlet):
        return COSINE, EVEN  # in whose place modes stand
    raise ConfigurationError(
        f"The direct Poisson solve takes periodic, Neumann and Dirichlet sides; got {type(lower).__name__} and "
        f"{type(upper).__name__} along {AXES[axis]}."
    )
