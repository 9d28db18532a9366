"""Sums of 1 / r over all images in a periodic box, split in near pairs and a smooth rest."""

import abc
import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from simjax.errors import ConfigurationError
from simjax.grid import FACE
from simjax.jaxpr.platform import one_pass
from simjax.jaxpr.varying import steady_carry
from simjax.ops.scaling import scaled, times_i
from simjax.particles.cells import Cells
from simjax.particles.mesh import SHAPES, ParticleMesh
from simjax.particles.pairs import Pairs
from simjax.solvers.fourier import FourierBasis, MeshBasis

ORDERS = {"ngp": 1, "cic": 2, "tsc": 3, "pcs": 4}
"""Name of an assignment -> p, where its Fourier transform is sinc^p along each axis."""
ALIASES = {1: (1.0,), 2: (1.0, -2 / 3), 3: (1.0, -1.0, 2 / 15), 4: (1.0, -4 / 3, 2 / 5, -4 / 315)}
"""p -> the sum of sinc^2p over all aliases of a wavenumber, as a polynomial in sin^2(k h / 2)."""
MESH_ERRORS = (1 / 4320, 3 / 1936, 7601 / 2271360, 143 / 28800)
"""The error of forces from a mesh of "pcs", as the coefficients of a series in (alpha h)^2."""
CHUNK = 32
"""Waves summed at once."""
PAIRS = 2**22
"""Pairs of a wave and a slot of all devices that a GPU sums at once: a chunk is too little work to wait for."""


class FarField(eqx.Module):
    """The smooth part of the sum: charges spread as Gaussians, or whatever a mesh resolves of point charges."""

    @abc.abstractmethod
    def field(self, cells: Cells, position: Array, ids: Array, charge: Array) -> tuple[Array, Array]:
        """Potential `cells.shape` and field -grad phi `(ndim, *cells.shape)` at the particles.

        position: `(ndim, *cells.shape)` within the cells. charge: `cells.shape`, zero at empty slots.
        """

    @abc.abstractmethod
    def tension(self, cells: Cells, position: Array, ids: Array, charge: Array) -> Array:
        """The potential of `field` with each wave multiplied by delta_ab - 2 k_a k_b (1 / k^2 + 1 / 4 alpha^2).

        `(ndim, ndim, *cells.shape)`: minus its slope in a strain of space, for charges that move along.
        """

    @abc.abstractmethod
    def own(self, cells: Cells, dtype) -> Array:
        """The potential of a unit charge at its own place that is in `field`, without that of its images."""


class WaveSum(FarField):
    """phi(x) = 4 pi / V sum over k and j of exp(-k^2 / 4 alpha^2) / k^2 q_j cos k (x - x_j), 0 < |k| <= `most`.

    Exact up to what is beyond `most`; work is that of particles times wavenumbers. Three axes.
    Ewald (1921), Ann. Phys. 369, 253; Frenkel and Smit (2002), eq. 12.1.
    """

    alpha: float = eqx.field(static=True)
    most: float = eqx.field(static=True)

    def field(self, cells, position, ids, charge):
        def felt(k, c, s, phase):
            cosine, sine = jnp.cos(phase), jnp.sin(phase)
            slope = c * sine - s * cosine
            return jnp.sum(c * cosine + s * sine, axis=0), jnp.tensordot(k.T, slope, 1)

        return self._felt(cells, position, charge, felt)

    def tension(self, cells, position, ids, charge):
        def felt(k, c, s, phase):
            factors = _tension(tuple(k.T), self.alpha)
            return jnp.tensordot(factors, c * jnp.cos(phase) + s * jnp.sin(phase), 1)

        return self._felt(cells, position, charge, felt)

    def _felt(self, cells: Cells, position: Array, charge: Array, felt: Callable):
        """Sum over waves of `felt(k, c, s, phase)`, where c cos(phase) + s sin(phase) is a wave's potential."""
        waves, weights = (jnp.asarray(u, position.dtype) for u in self._waves(cells))
        x, ndim = cells.absolute(position), cells.ndim

        def column(u: Array) -> Array:
            return u.reshape(-1, *(1,) * (ndim + 1))

        def phases(k: Array) -> Array:
            return sum((column(k[:, a]) * x[a][None] for a in range(1, ndim)), column(k[:, 0]) * x[0][None])

        # Phases are computed again for the derivative.
        @jax.checkpoint
        def structure(k):
            phase, axes = phases(k), tuple(range(1, ndim + 2))
            return jnp.sum(charge[None] * jnp.cos(phase), axis=axes), jnp.sum(charge[None] * jnp.sin(phase), axis=axes)

        @jax.checkpoint
        def at_particles(k, c, s, weight):
            return felt(k, column(weight * c), column(weight * s), phases(k))

        real, imaginary = cells.domain.total(lax.scan(lambda _, k: (None, structure(k)), None, waves)[1])
        each = (waves, real, imaginary, weights)

        def add(total, wave):
            return jax.tree.map(jnp.add, total, at_particles(*wave))

        first = jax.tree.map(lambda u: u[0], each)
        start = jax.tree.map(lambda u: jnp.zeros(u.shape, u.dtype), jax.eval_shape(at_particles, *first))
        _, start = steady_carry(lambda total: add(total, first), start)
        return lax.scan(lambda total, wave: (add(total, wave), None), start, each)[0]

    def own(self, cells, dtype):
        return jnp.asarray(2 * self.alpha / math.sqrt(math.pi), dtype)

    def _waves(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Half of the wavevectors, `(chunks, waves, ndim)`, and twice their weights, `(chunks, waves)`."""
        lengths = np.array(cells.domain.grid.lengths)
        reach = [int(self.most * length / (2 * math.pi)) for length in lengths]
        indices = np.array(list(itertools.product(*(range(-n, n + 1) for n in reach))))
        after = [tuple(n) > (0,) * cells.ndim for n in indices]
        k = indices[after] * (2 * math.pi / lengths)
        square = np.sum(k * k, axis=1)
        k, square = k[square <= self.most**2], square[square <= self.most**2]
        weights = 8 * math.pi / math.prod(lengths) * np.exp(-square / (4 * self.alpha**2)) / square
        chunk = CHUNK
        if one_pass():
            chunk = min(max(CHUNK, PAIRS // (cells.capacity * cells.domain.grid.cells)), len(k))
        missing = -len(k) % chunk
        k, weights = np.pad(k, [(0, missing), (0, 0)]), np.pad(weights, (0, missing))
        return k.reshape(-1, chunk, cells.ndim), weights.reshape(-1, chunk)


class MeshSum(FarField):
    """lap(phi) = -4 pi rho on a mesh, with charges spread to it and the field -grad phi = -i k phi_k brought back.

    phi_k = 4 pi / k^2 exp(-k^2 / 4 alpha^2) prod U^2 / prod (sum of U^2 over aliases)^2 rho_k, where U is the Fourier
    transform of the assignment, is the influence function that makes the mean square error of the field least if
    aliases of 1 / k^2 are left out. Forces between two particles are opposite and equal. alpha = 0 is no Gaussian: all
    that the mesh resolves. Hockney and Eastwood (1988), eq. 8-22.

    finer: mesh cells in each particle cell, or a tuple: those of the whole mesh along each axis, so that forces do not
    depend on where particles are stored. assignment: "ngp", "cic", "tsc" or "pcs". stray: how far particles may have
    left their cells, in mesh cells.
    """

    alpha: float = eqx.field(static=True)
    finer: int | tuple[int, ...] = eqx.field(static=True)
    assignment: str = eqx.field(static=True, default="tsc")
    stray: float = eqx.field(static=True, default=0.5)

    def field(self, cells, position, ids, charge):
        mesh, basis, k, potential = self._potential(cells, position, ids, charge)
        slopes = jnp.stack([basis.inverse(times_i(-one, potential)) for one in k])
        at_particles = mesh.interpolate(position, ids, slopes)
        return mesh.interpolate(position, ids, basis.inverse(potential)), at_particles

    def tension(self, cells, position, ids, charge):
        mesh, basis, k, potential = self._potential(cells, position, ids, charge)
        return mesh.interpolate(position, ids, basis.inverse(scaled(_tension(k, self.alpha), potential[None, None])))

    def _potential(self, cells: Cells, position: Array, ids: Array, charge: Array):
        """The mesh, its waves, and their phi_k."""
        mesh = self.mesh(cells)
        basis = MeshBasis(mesh.domain)
        density = mesh.deposit(position, ids, charge) / mesh.domain.grid.cell_volume
        k = basis.wavenumbers(position.dtype)
        return mesh, basis, k, scaled(self._influence(basis, k), basis.forward(density))

    def own(self, cells, dtype):
        """On the average over places in a mesh cell: 1 / V sum of influence times the sum of U^2 over aliases."""
        basis = MeshBasis(self.mesh(cells).domain)
        k = basis.wavenumbers(dtype)
        terms = self._influence(basis, k) * basis.weights(dtype)
        for one, h in zip(k, basis.domain.grid.spacing, strict=True):
            terms = terms * self._aliases(one, h)
        lengths = basis.domain.grid.lengths
        return basis.domain.sum(jnp.where(basis.kept(), terms, 0)) / math.prod(lengths) - _images(self.alpha, lengths)

    def mesh(self, cells: Cells) -> ParticleMesh:
        """The mesh over a box of cells."""
        # With nodes where even assignments have whole cells to both sides, half a cell of stray costs nothing.
        offset = (FACE,) * cells.ndim if ORDERS[self.assignment] % 2 else ()
        return ParticleMesh(cells, self.finer, self.assignment, offset, self.stray)

    def _influence(self, basis: FourierBasis, k: tuple[Array, ...]) -> Array:
        order, grid = ORDERS[self.assignment], basis.domain.grid
        square = sum((one * one for one in k[1:]), k[0] * k[0])
        result = jnp.where(square > 0, 4 * math.pi / jnp.where(square > 0, square, 1), 0)
        if self.alpha:
            result = result * jnp.exp(-square / (4 * self.alpha**2))
        for one, h in zip(k, grid.spacing, strict=True):
            window = _sinc(one * (h / 2)) ** (2 * order)
            result = result * (window / self._aliases(one, h) ** 2)
        return result

    def _aliases(self, k: Array, h: float) -> Array:
        """Sum of U^2 over the aliases of wavenumbers along one axis."""
        sine = jnp.sin(k * (h / 2)) ** 2
        return sum((c * sine**n for n, c in enumerate(ALIASES[ORDERS[self.assignment]]) if n), jnp.ones_like(sine))


def _sinc(x: Array) -> Array:
    """sin x / x. That of jax 0.12 asks that its argument be the same on all devices."""
    return jnp.where(x == 0, 1, jnp.sin(x) / jnp.where(x == 0, 1, x))


def _tension(k: tuple[Array, ...], alpha: float) -> Array:
    """delta_ab - 2 k_a k_b (1 / k^2 + 1 / 4 alpha^2) of waves: `(ndim, ndim, ...)`, zero where k is."""
    square = sum((one * one for one in k[1:]), k[0] * k[0])
    factor = jnp.where(square > 0, 2 / jnp.where(square > 0, square, 1) + 1 / (2 * alpha**2), 0)
    rows = [[(1.0 if a == b else 0.0) - factor * p * q for b, q in enumerate(k)] for a, p in enumerate(k)]
    return jnp.stack([jnp.stack(row) for row in rows])


def _images(alpha: float, lengths: Sequence[float]) -> float:
    """Smooth potential at a unit charge of its own images and the background: sum over k != 0 less 2 alpha / sqrt(pi).

    exp(-k^2 / 4 alpha^2) / k^2 is the integral of exp(-k^2 t) from t = 1 / 4 alpha^2 on, in which axes separate.
    """
    longest = max(lengths)
    # In the logarithm of t, between where exp(-k^2 t) is one and where nothing is left of it.
    t, step = np.linspace(math.log(1 / (4 * alpha**2)), math.log(longest**2), 2001, retstep=True)
    product = np.ones_like(t)
    for length in lengths:
        waves = 2 * math.pi / length * np.arange(1, int(2 * alpha * length) + 2)
        product = product * (1 + 2 * np.exp(-np.exp(t)[:, None] * waves**2).sum(axis=1))
    integrand = (product - 1) * np.exp(t)
    # Simpson's rule.
    weights = np.ones_like(t)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    total = 4 * math.pi / math.prod(lengths) * step / 3 * np.sum(weights * integrand)
    return float(total - 2 * alpha / math.sqrt(math.pi))


class PeriodicSum(eqx.Module):
    """phi_i = sum over j and images of q_j / |x_i - x_j + L n|, without i itself, in a neutralising background.

    1 / r = erfc(alpha r) / r + erf(alpha r) / r: pairs nearer than a cutoff, plus `far`, less what `far` holds of the
    particle itself. The mean of phi over the box is zero, and what surrounds all images conducts.
    Frenkel and Smit (2002), Understanding Molecular Simulation, section 12.1.
    """

    alpha: float = eqx.field(static=True)
    far: FarField

    def field(self, pairs: Pairs, charge: Array, softening: Array | float = 0.0) -> tuple[Array, Array]:
        """Potential `cells.shape` and field -grad phi `(ndim, *cells.shape)` at the particles.

        Args:
            pairs: those nearer than the cutoff at which erfc(alpha r) is negligible.
            charge: `cells.shape`.
            softening: length; near pairs take r^2 + softening^2 in the place of r^2.
        """
        charge = self._checked(pairs, charge)
        near = pairs.sum(_near(self.alpha), charge, jnp.asarray(softening, charge.dtype))
        potential, field = self.far.field(pairs.cells, pairs.position, pairs.ids, charge)
        itself = self.far.own(pairs.cells, charge.dtype) * charge
        return near["potential"] + potential - itself - self._background(pairs, charge), jnp.stack(
            near["field"]
        ) + field

    def tension(self, pairs: Pairs, charge: Array) -> Array:
        """Minus the slope of the potential in a strain of space, for charges that move along.

        `(ndim, ndim, *cells.shape)`; 1/2 sum of q_i times it is the virial, sum over pairs of r_a F_b, whose trace is
        the energy.
        """
        charge = self._checked(pairs, charge)
        near = pairs.sum(_near_tension(self.alpha), charge, jnp.zeros((), charge.dtype))
        found = near + self.far.tension(pairs.cells, pairs.position, pairs.ids, charge)
        background = jnp.eye(pairs.cells.ndim, dtype=charge.dtype) * self._background(pairs, charge)
        return found - background.reshape(*background.shape, *(1,) * charge.ndim)

    def _checked(self, pairs: Pairs, charge: Array) -> Array:
        cells = pairs.cells
        if cells.ndim != 3 or not all(cells.periodic):
            raise ConfigurationError(
                f"A sum over images needs a box with three periodic axes; got periodic={cells.periodic}."
            )
        return jnp.where(pairs.ids >= 0, charge, 0)

    def _background(self, pairs: Pairs, charge: Array) -> Array:
        """Correction by which the background lowers the potential of near pairs."""
        volume = math.prod(pairs.cells.domain.grid.lengths)
        return math.pi / (self.alpha**2 * volume) * pairs.cells.domain.sum(charge)


def _near(alpha: float):
    """The pair function of erfc(alpha r) / r."""

    def pair(separation, here, there, softening):
        square = sum((x * x for x in separation), softening * softening)
        r = jnp.sqrt(square)
        potential = there * lax.erfc(alpha * r) / r
        slope = (potential + there * (2 * alpha / math.sqrt(math.pi)) * jnp.exp(-(alpha**2) * square)) / square
        return {"potential": potential, "field": tuple(slope * x for x in separation)}

    return pair


def _near_tension(alpha: float):
    """The pair function of r_a r_b times what the field has with r_b."""
    near = _near(alpha)

    def pair(separation, here, there, softening):
        field = near(separation, here, there, softening)["field"]
        return jnp.stack([jnp.stack([x * slope for slope in field]) for x in separation])

    return pair


def split_at(cutoff: float, tolerance: float) -> float:
    """alpha with erfc(alpha cutoff) = tolerance: what pairs beyond the cutoff would add is that share of 1 / r."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle) > tolerance else (low, middle)
    return high / cutoff


def ewald_sum(cutoff: float, tolerance: float) -> PeriodicSum:
    """Plain Ewald summation whose two parts are cut off where their terms are `tolerance` of the first."""
    alpha = split_at(cutoff, tolerance)
    return PeriodicSum(alpha, WaveSum(alpha, 2 * alpha * math.sqrt(-math.log(tolerance))))


def mesh_spacing(cutoff: float, tolerance: float) -> float:
    """The longest h of a mesh of "pcs" that is as exact as near pairs cut off where erfc(alpha r) is `tolerance`.

    Mean squares of the errors of forces between charges anywhere, in units of <q^2> sqrt(density alpha): of the mesh
    (alpha h)^4 sqrt(sqrt(2 pi) sum of a_m (alpha h)^2m), of the pairs 2 exp(-(alpha cutoff)^2) / sqrt(alpha cutoff).
    Deserno and Holm (1998), J. Chem. Phys. 109, 7694, eq. 17 and 38.
    """
    reach = split_at(cutoff, tolerance) * cutoff
    of_pairs = 2 * math.exp(-(reach**2)) / math.sqrt(reach)

    def of_mesh(step: float) -> float:
        series = sum(a * step ** (2 * m) for m, a in enumerate(MESH_ERRORS))
        return step**4 * math.sqrt(math.sqrt(2 * math.pi) * series)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if of_mesh(middle) < of_pairs else (low, middle)
    return low / reach * cutoff


def mesh_sum(
    cutoff: float, tolerance: float, finer: int | tuple[int, ...], assignment: str = "tsc", stray: float = 0.5
) -> PeriodicSum:
    """Particle-particle particle-mesh summation: the error is that of the mesh, with alpha times its spacing.

    finer: as of `MeshSum`.
    """
    if assignment not in SHAPES:
        raise ConfigurationError(f"assignment={assignment} is unknown; write {', '.join(SHAPES)}.")
    alpha = split_at(cutoff, tolerance)
    return PeriodicSum(alpha, MeshSum(alpha, finer, assignment, stray))
