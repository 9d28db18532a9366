"""Gauss-Newton with Levenberg's damping, matrix-free."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg

from simjax.inverse.methods.least_squares import LeastSquares, dot, half_square, norm
from simjax.inverse.methods.solver import Iterate, Solver
from simjax.status import OK


class GaussNewton(Solver):
    """Steps p with (J^T J + damping |J g|^2 / |g|^2) p = -g, g = J^T r, by conjugate gradients.

    Nocedal and Wright 2006, Numerical Optimization, section 10.3.
    J is never formed: a product with it is a forward derivative of the run, one with its transpose a reverse one.
    Damping is relative to the curvature along the gradient. It falls by three after a step that lowered the loss by at
    least a quarter of what the linear model promised, and rises tenfold after one that failed, which is not taken.
    """

    damping: float = eqx.field(static=True, default=1e-3)
    cg_iterations: int = eqx.field(static=True, default=20)
    cg_tolerance: float = eqx.field(static=True, default=1e-3)

    def begin(self, latent) -> Iterate:
        dtype = jnp.result_type(*jax.tree.leaves(latent))
        return Iterate.first(latent, jnp.asarray(self.damping, dtype))

    def step(self, problem: LeastSquares, iterate: Iterate) -> Iterate:
        latent, damping = iterate.latent, iterate.inner
        residuals, pull, status = jax.vjp(problem.evaluate, latent, has_aux=True)
        (gradient,) = pull(residuals)
        loss = jnp.where(status == OK, half_square(residuals), jnp.inf)

        def push(v):
            return jax.jvp(problem.residuals, (latent,), (v,))[1]

        along = push(gradient)
        ridge = damping * dot(along, along) / dot(gradient, gradient)

        def product(v):
            (back,) = pull(push(v))
            return jax.tree.map(lambda a, b: a + ridge * b, back, v)

        direction, _ = cg(
            product, jax.tree.map(jnp.negative, gradient), tol=self.cg_tolerance, maxiter=self.cg_iterations
        )
        ahead = jax.tree.map(jnp.add, latent, direction)
        new_loss, _ = problem.loss(ahead)
        # -g.p - 1/2 p.(J^T J + ridge) p.
        promised = -dot(gradient, direction) - 0.5 * dot(direction, product(direction))
        gained = loss - new_loss
        taken = gained > 0
        damping = jnp.where(gained > 0.25 * promised, damping / 3, jnp.where(taken, damping, damping * 10))
        latent = jax.tree.map(lambda a, b: jnp.where(taken, a, b), ahead, latent)
        return Iterate(iterate.iteration + 1, latent, damping, loss, norm(gradient), status)

    def settled(self, iterate: Iterate, before: Iterate, tolerance: float) -> bool:
        # A step that was not taken leaves the loss as it is and is followed by one with more damping.
        return bool(0 < before.loss - iterate.loss <= tolerance * before.loss) or bool(iterate.inner > 1e8)
