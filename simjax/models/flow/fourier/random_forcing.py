"""Random forcing of a band of wavenumbers, white in time, at a known rate of energy injection."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.solvers.fourier import FourierBasis


class Band(eqx.Module):
    """Wavenumbers low <= |k| <= high, in radians per length."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def reach(self, grid: Grid) -> tuple[int, ...]:
        """The largest index along each axis, in units of 2 pi / L."""
        return tuple(int(np.floor(self.high * length / (2 * np.pi) * (1 + 1e-12))) for length in grid.lengths)

    def inside(self, grid: Grid) -> np.ndarray:
        """Table of bools: which of the indices -reach..reach along every axis of the grid lie in the band."""
        k = [
            2 * np.pi / length * np.arange(-r, r + 1) for r, length in zip(self.reach(grid), grid.lengths, strict=True)
        ]
        size = np.sqrt(sum(v**2 for v in np.meshgrid(*k, indexing="ij")))
        return (size >= self.low * (1 - 1e-12)) & (size <= self.high * (1 + 1e-12)) & (size > 0)

    def check(self, basis: FourierBasis) -> int:
        """The number of wavenumbers in the band.

        Raises:
            ConfigurationError: there are none, or the grid does not resolve them all.
        """
        reach, cutoff = self.reach(basis.domain.grid), basis.cutoff
        if any(r > c for r, c in zip(reach, cutoff, strict=True)):
            raise ConfigurationError(
                f"Random forcing up to wavenumber {self.high:g} needs indices up to {max(reach)}; this grid keeps "
                f"{min(cutoff)} (a third of Grid.shape={basis.domain.grid.shape}): use a finer grid or a lower band."
            )
        count = int(self.inside(basis.domain.grid).sum())
        if count == 0:
            raise ConfigurationError(
                f"No wavenumber of the box lies between {self.low:g} and {self.high:g} (they are multiples of "
                "2 pi / length): widen the band of the random forcing."
            )
        return count

    def noise(self, basis: FourierBasis, seed, step, components: int, dtype) -> tuple[Array, ...]:
        """Complex Gaussian coefficients of `components` real fields on this block: independent, E|w_k|^2 = 1 in band.

        Drawn from (seed, step) for the whole band by every device and put in their places: no decomposition,
        resolution or precision changes them.
        """
        grid = basis.domain.grid
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), step)
        inside = self.inside(grid)
        # Uniform numbers are exact in float32; the Gaussians are formed in the precision of the run.
        uniform = jax.random.uniform(key, (components, 2, *inside.shape), jnp.float32, -1 + 2**-24, 1.0)
        parts = 2**0.5 * lax.erf_inv(uniform.astype(dtype))
        drawn = jnp.where(inside, lax.complex(parts[:, 0], parts[:, 1]), 0)
        # (w_k + conj(w_-k)) / 2 belongs to a real field; each part has variance one half then.
        mirrored = jnp.conj(jnp.flip(drawn, axis=range(1, drawn.ndim)))
        table = 0.5 * (drawn + mirrored)
        return tuple(_place(table[i], basis, self.reach(grid)) for i in range(components))


def _place(table: Array, basis: FourierBasis, reach: Sequence[int]) -> Array:
    """Entries of `table`, for indices -reach..reach along the grid's axes, where this block's spectrum has them."""
    values = jnp.transpose(table)
    for axis, (index, r) in enumerate(zip(basis.indices(), reach, strict=True)):
        where = len(reach) - 1 - axis
        taken = jnp.take(values, jnp.clip(index.ravel() + r, 0, 2 * r), axis=where)
        values = jnp.where(jnp.abs(index) <= r, taken, 0)
    return values
