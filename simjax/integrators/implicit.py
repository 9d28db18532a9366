"""Implicit Runge-Kutta methods for stiff tendencies: Newton's method finds their stages, without a matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.model import SemiImplicitModel
from simjax.core.tendency import tendency
from simjax.integrators.integrator import Allowed, ErrorControlled
from simjax.integrators.runge_kutta import through_stages, weighted
from simjax.jaxpr.stages import stage as kept_stage
from simjax.jaxpr.varying import steady_carry, vary_like
from simjax.ops.scaling import scaled
from simjax.solvers.krylov import biconjugate_gradient

Row = tuple[float, ...]
CONVERGED = 0.03
"""The last correction of a stage, over the errors that are allowed; what is left is about its square."""
SOLVED = 1e-3
"""The residual of a linear system, over the errors that are allowed."""
MOST_CORRECTIONS, MOST_ITERATIONS = 8, 100
MOST_COMPONENTS = 12
"""The most fields of a cell whose own matrix is inverted."""


class DiagonallyImplicit(ErrorControlled):
    """u_i = u + dt sum_{j<=i} a_ij k_j, k_j = rhs(t + c_j dt, u_j): the first stage is u, the last one the result.

    a: rows of the stages after the first, with one number on the diagonal. predictor: weights of slopes that guess the
    slope of each of these stages. error: weights of slopes that tell how far the result is from that of a method of
    lower order.

    A stage is found by Newton's method, its linear systems by BiCGSTAB, without a matrix. They are preconditioned by
    what the model solves for itself, if it is a `SemiImplicitModel`; else by the inverse in each cell of what its own
    fields do to each other, which is exact for reactions and leaves differences between neighbours to the iteration.
    A stage that is not found is not a number, so that the step is taken again, shorter.
    """

    order: int = eqx.field(static=True)
    a: tuple[Row, ...] = eqx.field(static=True)
    predictor: tuple[Row, ...] = eqx.field(static=True)
    error: Row = eqx.field(static=True)

    @property
    def stages(self) -> int:
        return len(self.error)

    def prepare(self, model, params, dt):
        return model.prepare(params) if isinstance(model, SemiImplicitModel) else None

    def step(self, model, t, dt, state, params, prepared=None):
        tolerance = float(jnp.finfo(jax.tree.leaves(state)[0].dtype).eps) ** (2 / 3)
        before = jax.tree.map(lax.stop_gradient, state)
        return self.attempt(
            model, t, dt, state, params, prepared, Allowed.by(model, tolerance, tolerance, before, before)
        )[0]

    def attempt(self, model, t, dt, state, params, prepared, allowed):
        diagonal, count = self.a[0][-1], self.stages
        # jax casts all that a linear solve reads to vary as one, which has to be so when its parts are traced.
        t, dt, errors = vary_like((t, dt, allowed.errors), state)
        allowed = allowed._replace(errors=errors)
        precondition = preconditioner(model, t, diagonal * dt, state, params, prepared)

        def stage(carry, row, number):
            _, slopes = carry
            known = [jax.tree.map(lambda every, k=k: every[k], slopes) for k in range(count)]
            *weights, c = row[: count + 1]
            right = _added(state, dt, weights, known)
            guess, time = _added(right, diagonal * dt, row[count + 1 :], known), t + c * dt

            def residual(z):
                slope = tendency(model, "rhs", z, time, z, params)
                return jax.tree.map(lambda u, k, r: u - scaled(diagonal * dt, k) - r, z, slope, right)

            found = kept_stage(solved_stage(residual, guess, Linear(precondition, allowed)))
            # What was solved for costs nothing, and does not magnify what is left of the iteration.
            slope = jax.tree.map(lambda u, r: scaled(1 / (diagonal * dt), u - r), found, right)
            return found, _with_slope(slopes, number + 1, slope)

        first = tendency(model, "rhs", state, t, state, params)
        none = jax.tree.map(lambda u: jnp.zeros((count, *u.shape), u.dtype), state)
        rows = []
        for a, guess in zip(self.a, self.predictor, strict=True):
            rest = [0.0] * (count - len(a) + 1)
            rows.append([*a[:-1], *rest, sum(a), *guess, *rest])
        after, slopes = through_stages(stage, (state, _with_slope(none, 0, first)), rows, dt, True)
        known = [jax.tree.map(lambda every, k=k: every[k], slopes) for k in range(count)]
        return model.constrain(t + dt, dt, after, params), weighted(dt, self.error, known)


def _added(state, dt, weights, slopes):
    """state + dt sum(weights * slopes), the weights traced."""

    def leaf(u, *slopes):
        terms = [scaled(w, k) for w, k in zip(weights, slopes, strict=True)]
        return u + scaled(dt, sum(terms[1:], terms[0]))

    return jax.tree.map(leaf, state, *slopes)


def _with_slope(slopes, number, slope):
    return jax.tree.map(lambda every, new: lax.dynamic_update_index_in_dim(every, new, number, 0), slopes, slope)


class Linear(NamedTuple):
    """Solutions of linear systems close to the identity. precondition: roughly the inverse of their matrix."""

    precondition: Callable[[Any], Any]
    allowed: Allowed

    def correction(self, matvec: Callable, right):
        """x with matvec(x) = right, to a fraction of the errors that are allowed."""
        return self._solved(matvec, self.precondition, right, self.allowed.dot, absolute=SOLVED)

    def solution(self, matvec: Callable, right):
        """x with matvec(x) = right to about rounding; differentiable by one more solve."""

        def solve(matvec, right):
            return self._solved(matvec, self.precondition, right, self.allowed.dot)

        def solve_transposed(matvec, right):
            back = jax.linear_transpose(self.precondition, right)
            # Cotangents are in the inverse units.
            inverse = self.allowed._replace(errors=[1 / most for most in self.allowed.errors])
            return self._solved(matvec, lambda x: back(x)[0], right, inverse.dot)

        return lax.custom_linear_solve(matvec, right, solve, solve_transposed)

    def _solved(self, matvec, precondition, right, dot, absolute: float = 0.0):
        eps = float(jnp.finfo(jax.tree.leaves(right)[0].dtype).eps)
        return biconjugate_gradient(
            lambda x: precondition(matvec(x)),
            precondition(right),
            dot=dot,
            domain=self.allowed.model.domain,
            relative=eps**0.75,
            absolute=absolute,
            limit=MOST_ITERATIONS,
        )


def solved_stage(residual: Callable, guess, linear: Linear):
    """z with residual(z) = 0, close to `guess`; not a number where it is not found. Differentiable."""
    domain = linear.allowed.model.domain

    def newton(residual, guess):
        def correction(carry):
            z, _, count, _ = carry
            value, matvec = jax.linearize(residual, z)
            change = linear.correction(matvec, value)
            size = linear.allowed.size(change)
            # A size that is not a number ends it.
            active = (size > CONVERGED) & (count + 1 < MOST_CORRECTIONS)
            return jax.tree.map(jnp.subtract, z, change), size, count + 1, domain.anywhere(active)

        size = linear.allowed.size(guess)
        begin = guess, jnp.full_like(size, jnp.inf), jnp.zeros((), jnp.int32), domain.anywhere(size == size)
        body, begin = steady_carry(correction, begin)
        z, size, *_ = lax.while_loop(lambda carry: carry[3], body, begin)
        return jax.tree.map(lambda u: jnp.where(size <= CONVERGED, u, jnp.nan), z)

    return lax.custom_root(residual, jax.tree.map(lax.stop_gradient, guess), newton, linear.solution)


def preconditioner(model, t, dt, state, params, prepared) -> Callable[[Any], Any]:
    """A linear map that is roughly the inverse of x -> x - dt J x, J the derivative of the tendency at `state`."""
    state, params, dt = jax.tree.map(lax.stop_gradient, (state, params, dt))
    if isinstance(model, SemiImplicitModel):
        none = jax.tree.map(jnp.zeros_like, state)
        return jax.linearize(lambda right: model.implicit_solve(t, dt, right, params, prepared), none)[1]
    leaves, tree = jax.tree.flatten(state)
    shape = model.domain.block_shape
    components = sum(u.size // max(1, _cells(shape)) for u in leaves)
    cellwise = all(u.shape[u.ndim - len(shape) :] == shape for u in leaves)
    if not cellwise or components > MOST_COMPONENTS:
        return lambda x: x

    def stacked(tree) -> Array:
        return jnp.concatenate([u.reshape(-1, *shape) for u in jax.tree.leaves(tree)])

    def unstacked(x: Array):
        found, first = [], 0
        for u in leaves:
            count = u.size // _cells(shape)
            found.append(x[first : first + count].reshape(u.shape))
            first += count
        return tree.unflatten(found)

    _, derivative = jax.linearize(lambda state: model.rhs(t, state, params), state)
    ones = jnp.ones_like(stacked(state))

    def column(k):
        unit = jnp.where(jnp.arange(components).reshape(-1, *(1,) * len(shape)) == k, ones, 0)
        return unit - scaled(dt, stacked(derivative(unstacked(unit))))

    columns = lax.map(column, jnp.arange(components))  # (column, row, ...)
    inverse = _inverse_by_cell(jnp.swapaxes(columns, 0, 1))
    return lambda x: unstacked(jnp.sum(inverse * stacked(x)[None], axis=1))


def _cells(shape) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _inverse_by_cell(matrix: Array) -> Array:
    """The inverses of matrices `(rows, columns, ...)`, one in each cell, by elimination without a choice of pivots."""

    def eliminate(k, both):
        matrix, inverse = both
        pivot = matrix[k, k]
        factor = 1 / jnp.where(pivot == 0, 1, pivot)
        row, own = matrix[k] * factor[None], inverse[k] * factor[None]
        others = jnp.where((jnp.arange(len(matrix)) == k).reshape(-1, *(1,) * (matrix.ndim - 2)), 0, matrix[:, k])
        matrix = (matrix - others[:, None] * row[None]).at[k].set(row)
        return matrix, (inverse - others[:, None] * own[None]).at[k].set(own)

    unit = jnp.eye(len(matrix), dtype=matrix.dtype).reshape(*matrix.shape[:2], *(1,) * (matrix.ndim - 2))
    begin = matrix, unit + jnp.zeros_like(matrix)
    eliminated, begin = steady_carry(lambda both: eliminate(0, both), begin)
    return lax.fori_loop(0, len(matrix), eliminate, begin)[1]
