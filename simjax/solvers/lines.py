"""Tridiagonal systems along a cut axis, solved without making the axis whole.

Each wave of the other axes leaves one equation along lines: lambda phi + the second difference of phi = f, with
lambda <= 0. A block solves it with ghosts of zero, by sines. What is missing are the true ghosts, two numbers per line
and block: they obey a small system between blocks, periodic or made so by reflection at walls, which waves along the
blocks solve. Only these numbers travel (substructuring; Wang 1981, ACM Trans. Math. Softw. 7, 170).
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.solvers import dft
from simjax.solvers.exchange import block_index, blocks, exchange

PERIODIC, EVEN, ODD = "periodic", "even", "odd"


def solve_lines(
    right: Array, eigenvalues: Array, names: Sequence[str], *, axis: int, spacing: float, ends: str
) -> Array:
    """phi with (lambda + second difference) phi = right, along the array axis `axis`, counted from the last.

    Args:
        right: this block's right-hand side, leading axes first.
        eigenvalues: lambda of this block, at most zero, one number per line: like `right` but for its leading axes,
            and 1 along `axis`.
        names: mesh axes that cut the axis, outermost first.
        ends: `periodic`; `even` for Neumann, `odd` for Dirichlet conditions at both ends.

    Lines with lambda zero that no Dirichlet condition holds are solved up to a constant, if their sum vanishes.
    """
    u = jnp.moveaxis(right, axis, -1)
    shape, m = u.shape, u.shape[-1]
    u, eigenvalues = u.reshape(-1, eigenvalues.size, m), eigenvalues.ravel()
    # exp(-angle) is the decay of a line's solution from cell to cell.
    angle = 2 * jnp.arcsinh(0.5 * spacing * jnp.sqrt(-eigenvalues))
    particular = _between_zeros(u, eigenvalues, spacing)
    edges = jnp.stack([particular[..., 0], particular[..., -1]], axis=-1)
    ghosts = _ghosts(edges, angle, m, names, ends)
    lower, upper = _influence(angle, m)
    phi = particular + ghosts[..., :1] * lower[None] + ghosts[..., 1:] * upper[None]
    return jnp.moveaxis(phi.reshape(shape), -1, axis)


def _between_zeros(u: Array, eigenvalues: Array, spacing: float) -> Array:
    """The solution on blocks `(members, lines, m)` with ghosts of zero."""
    m = u.shape[-1]
    k = jnp.arange(1, m + 1)
    turns = (k[:, None] * k[None, :]) % (2 * (m + 1))
    sines = jnp.sin(np.pi / (m + 1) * turns.astype(u.dtype))
    own = -((2 / spacing * jnp.sin(np.pi / (2 * (m + 1)) * k.astype(u.dtype))) ** 2)
    scale = (2 / (m + 1)) / (eigenvalues[:, None] + own[None, :])
    spectrum = jnp.matmul(u, sines, precision=lax.Precision.HIGHEST) * scale[None]
    return jnp.matmul(spectrum, sines, precision=lax.Precision.HIGHEST)


def _influence(angle: Array, m: int) -> tuple[Array, Array]:
    """Solutions without right side on a block's `(lines, m)` cells, for a ghost of one below it, and above it."""
    i = jnp.arange(1, m + 1).astype(angle.dtype)[None, :]
    angle = angle[:, None]
    still = angle == 0
    safe = jnp.where(still, 1.0, angle)
    # sinh((m + 1 - i) angle) / sinh((m + 1) angle)
    decayed = jnp.exp(-i * safe) * jnp.expm1(-2 * (m + 1 - i) * safe) / jnp.expm1(-2 * (m + 1) * safe)
    lower = jnp.where(still, (m + 1 - i) / (m + 1), decayed)
    return lower, jnp.flip(lower, -1)


def _ghosts(edges: Array, angle: Array, m: int, names: Sequence[str], ends: str) -> Array:
    """Ghosts (below, above) of this block's lines, `(members, lines, 2)`, from the particular solution's edges."""
    count = blocks(names)
    members, waves, _ = edges.shape
    # Every device solves for the ghosts of its share of the lines on all blocks.
    share = -(-waves // count)
    more = share * count - waves
    edges = jnp.pad(edges, ((0, 0), (0, more), (0, 0)))
    angle = lax.dynamic_slice_in_dim(jnp.pad(angle, (0, more)), block_index(names) * share, share)
    edges = exchange(edges[None], names, split=2, concatenate=0)
    first, last = _first_and_last(edges, angle, m, ends)
    below, above = jnp.roll(last, 1, axis=0), jnp.roll(first, -1, axis=0)
    if ends != PERIODIC:
        sign = 1 if ends == EVEN else -1
        below = jnp.concatenate([sign * first[:1], below[1:]])
        above = jnp.concatenate([above[:-1], sign * last[-1:]])
    ghosts = exchange(jnp.stack([below, above], axis=-1), names, split=0, concatenate=2)
    return ghosts[0, :, :waves]


def _first_and_last(edges: Array, angle: Array, m: int, ends: str) -> tuple[Array, Array]:
    """Solutions in the first and last cell of every block, `(blocks, members, lines)`.

    With a and b, the answers of the cells beside a ghost of one and farthest from it, first[j] = p[j] + a last[j - 1]
    + b first[j + 1] and last[j] = q[j] + b last[j - 1] + a first[j + 1]: circulant, so waves along the blocks
    decouple. Written for half the sum and half the difference of p and q, with 1 - a - b without cancellation.
    """
    count = edges.shape[0]
    p, q = edges[..., 0], edges[..., 1]
    if ends != PERIODIC:
        sign = 1 if ends == EVEN else -1
        p, q = jnp.concatenate([p, sign * jnp.flip(q, 0)]), jnp.concatenate([q, sign * jnp.flip(p, 0)])
    mean, half = dft.rfft(0.5 * (p + q), 0), dft.rfft(0.5 * (p - q), 0)
    angle = angle[None, None]
    lower, _ = _influence(angle[0, 0], m)
    a, b = lower[None, None, :, 0], lower[None, None, :, -1]
    gap = jnp.expm1(-m * angle) * jnp.expm1(-angle) / (1 + jnp.exp(-(m + 1) * angle))  # 1 - a - b
    turn = (2 * np.pi / p.shape[0]) * jnp.arange(mean.shape[0]).astype(angle.dtype)[:, None, None]
    sine, slow = jnp.sin(turn), 2 * jnp.sin(0.5 * turn) ** 2  # 1 - cos
    determinant = gap * (1 + a - b) + 2 * b * slow
    free = determinant == 0  # a constant that nothing fixes
    inverse = jnp.where(free, 0.0, 1 / jnp.where(free, 1.0, determinant)).astype(mean.dtype)
    # (1 - b exp(-i turn)) -+ a exp(-i turn), real parts of both kinds, and imaginary ones.
    plus = lax.complex((1 + a - b) - (a - b) * slow, -(a - b) * sine)
    minus = lax.complex(gap + (a + b) * slow, (a + b) * sine)
    first = inverse * (plus * mean + minus * half)
    last = inverse * (jnp.conj(plus) * mean - jnp.conj(minus) * half)
    # The wave of length zero: its halves decouple, and the sum may be free.
    still = turn == 0
    bound = (gap > 0) & (ends != ODD)
    steady = jnp.where(bound, mean / jnp.where(gap > 0, gap, 1.0).astype(mean.dtype), 0.0)
    change = half / (1 + a - b).astype(mean.dtype)
    first, last = jnp.where(still, steady + change, first), jnp.where(still, steady - change, last)
    return dft.irfft(first, p.shape[0], 0)[:count], dft.irfft(last, p.shape[0], 0)[:count]
