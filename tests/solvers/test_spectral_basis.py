"""Spectra of decomposed fields: there and back on every mesh, whatever the sides."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import QUICK

from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.spectral import SpectralBasis
from simjax.solvers.transforms import COSINE, FOURIER

KINDS = {"waves": FOURIER, "cosines": COSINE}
# Blocks along some axes do not fit on others; the last mesh has an odd number of them.
CUTS = [
    ((16, 24), (2, 4)),
    ((16, 24), (4, 2)),
    ((16, 24), (8, 1)),
    ((16, 24), (1, 8)),
    ((9, 15), (3, 1)),
    ((8, 12, 4), (2, 2, 2)),
    ((6, 8, 16), (2, 4, 1)),
    ((8, 12, 8), (1, 2, 4)),
    ((8, 16, 6), (8, 1, 1)),
    ((6, 4, 9), (1, 1, 3)),
]
CASES = [(*cut, kinds) for cut in CUTS for kinds in itertools.product(KINDS, repeat=len(cut[0]))]


def there_and_back(shape, cuts, kinds):
    """The function of whole fields; beside the field, how large its spectrum is on a block, and its eigenvalues."""
    mesh = make_mesh({axis: count for axis, count in zip("xyz", cuts, strict=False) if count > 1})
    domain = decompose(Grid(shape), mesh)
    basis = SpectralBasis(domain, [KINDS[kind] for kind in kinds])

    def run(u):
        spectrum = basis.forward(u)
        values = jnp.broadcast_shapes(*(values.shape for values in basis.eigenvalues(u.dtype)))
        assert spectrum.shape == values
        return basis.inverse(spectrum)

    return distribute(run, mesh, in_specs=domain.spec(), out_specs=domain.spec())


@pytest.mark.parametrize(("shape", "cuts", "kinds"), CASES, ids=str)
def test_spectra_are_as_large_as_their_eigenvalues(shape, cuts, kinds):
    back = jax.eval_shape(there_and_back(shape, cuts, kinds), jax.ShapeDtypeStruct(shape, jnp.float64))
    assert back.shape == shape and back.dtype == jnp.float64


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "cuts", "kinds"), CASES, ids=str)
def test_fields_come_back(shape, cuts, kinds):
    u = np.random.default_rng(0).normal(size=shape)
    back = jax.jit(there_and_back(shape, cuts, kinds), compiler_options=QUICK)(u)
    # Rounding of a few sums of up to 24 numbers of order one, along each axis and back.
    np.testing.assert_allclose(back, u, rtol=0, atol=1e-14)
