"""Spectra of decomposed fields against numpy's FFT, and what they cost."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.parallel import decompose, distribute, make_mesh
from simjax.solvers.fourier import FourierBasis, half_count

MESHES = {
    1: [{}],
    2: [{}, {"x": 8}, {"y": 8}, {"x": 2, "y": 4}, {"x": 4, "y": 2}],
    3: [{}, {"x": 2, "z": 2}, {"x": 4, "y": 2}, {"x": 4, "z": 2}, {"x": 2, "y": 2, "z": 2}],
}
SHAPES = {1: (24,), 2: (16, 24), 3: (8, 12, 8)}
COMBINATIONS = [(SHAPES[ndim], mesh) for ndim, meshes in MESHES.items() for mesh in meshes]
COMBINATIONS += [((15, 9), {}), ((7,), {})]
# One that cuts every axis, one that cuts the half axis alone, odd numbers of points; the rest are their neighbours.
USUAL = [
    ((24,), {}),
    ((16, 24), {"y": 8}),
    ((16, 24), {"x": 2, "y": 4}),
    ((8, 12, 8), {"x": 2, "y": 2, "z": 2}),
    ((15, 9), {}),
]


def layouts(combinations, usual=USUAL):
    return pytest.mark.parametrize(
        "shape, sizes",
        [
            pytest.param(*case, id=f"{case[0]} {case[1]}", marks=[] if case in usual else pytest.mark.slow)
            for case in combinations
        ],
    )


each_layout = layouts(COMBINATIONS)


def field(shape, real=True):
    rng = np.random.default_rng(len(shape))
    u = rng.standard_normal(shape)
    return jnp.asarray(u if real else u + 1j * rng.standard_normal(shape))


def reference(u, kept):
    """Coefficients of numpy's FFT with those beyond the cutoff zero, axes reversed, and the field they stand for."""
    spectrum = np.fft.fftn(u) / u.size
    for axis, n in enumerate(u.shape):
        # Strictly below: what is kept of 2/3 has no aliases of squares among itself.
        low = 2 * np.abs(np.fft.fftfreq(n) * n) < kept * n * (1 - 1e-12)
        spectrum *= low.reshape([-1 if k == axis else 1 for k in range(u.ndim)])
    return spectrum.transpose(), np.fft.ifftn(spectrum) * u.size


@each_layout
@pytest.mark.parametrize(
    "kept, real", [(2 / 3, True), pytest.param(1 / 2, True, marks=pytest.mark.slow), (2 / 3, False)]
)
@pytest.mark.slow
def test_coefficients_and_field_are_those_of_numpy_on_every_mesh(shape, sizes, kept, real):
    mesh = make_mesh(sizes)
    domain = decompose(Grid(shape), mesh)
    basis = FourierBasis(domain, kept, real)
    u = field(shape, real)
    spectrum = distribute(basis.forward, mesh, in_specs=domain.spec(), out_specs=basis.spec)(u)
    back = distribute(basis.inverse, mesh, in_specs=basis.spec, out_specs=domain.spec())(spectrum)
    expected, smooth = reference(np.asarray(u), kept)
    assert spectrum.shape == basis.shape
    # Transforms of a thousand values of order one, normalised: a few roundings.
    np.testing.assert_allclose(spectrum, expected[: basis.shape[0]], rtol=0, atol=1e-15)
    np.testing.assert_allclose(back, smooth.real if real else smooth, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kept", [2 / 3, 1.0])
def test_transforms_are_inverse_to_each_other_on_what_is_kept(kept):
    basis = FourierBasis(Domain(Grid((15, 12))), kept)
    forward = jax.jit(basis.forward)
    spectrum = forward(field((15, 12)))
    np.testing.assert_allclose(forward(jax.jit(basis.inverse)(spectrum)), spectrum, rtol=0, atol=1e-16)


@each_layout
@pytest.mark.slow
def test_wavenumbers_differentiate(shape, sizes):
    """A wave of known direction and its derivatives, in a box whose sides differ."""
    mesh = make_mesh(sizes)
    upper = tuple(1.0 + axis for axis in range(len(shape)))
    domain = decompose(Grid(shape, upper=upper), mesh)
    basis = FourierBasis(domain)
    wave = [2, 1, 1][: len(shape)]
    k = [2 * np.pi * m / side for m, side in zip(wave, upper, strict=True)]

    def differentiate(start):
        x = domain.coordinates((0.0,) * len(shape))
        phase = sum(factor * v for factor, v in zip(k, x, strict=True)) + start
        spectrum = basis.forward(jnp.cos(phase))
        return [
            basis.inverse(jax.lax.complex(-v * spectrum.imag, v * spectrum.real)) + factor * jnp.sin(phase)
            for v, factor in zip(basis.wavenumbers(jnp.float64), k, strict=True)
        ]

    start = jnp.zeros(shape)
    found = distribute(differentiate, mesh, in_specs=domain.spec(), out_specs=domain.spec())(start)
    # Rounding of the phase, times k.
    assert max(float(jnp.abs(error).max()) for error in found) < 1e-13


@pytest.mark.parametrize("shape", [(7, 9), (8, 10)])
def test_wavenumbers_are_those_of_an_fft(shape):
    """All of them, those of even and odd numbers of points, also the highest."""
    indices = FourierBasis(Domain(Grid(shape)), kept=1.0, real=False).indices()
    for found, n in zip(indices, shape, strict=True):
        np.testing.assert_array_equal(np.ravel(found), np.fft.fftfreq(n, 1 / n).astype(int))


@each_layout
@pytest.mark.slow
def test_symmetry_of_real_fields_is_restored(shape, sizes):
    """A coefficient that no real field has is gone, the others stay: the result is that of the real part."""
    mesh = make_mesh(sizes)
    domain = decompose(Grid(shape), mesh)
    basis = FourierBasis(domain)
    rng = np.random.default_rng(2)
    clean = np.asarray(FourierBasis(Domain(Grid(shape))).forward(field(shape)))
    soiled = clean.copy()
    if len(shape) > 1:
        wrong = rng.standard_normal(clean.shape[1:]) + 1j * rng.standard_normal(clean.shape[1:])
        turned = np.conj(np.roll(np.flip(wrong), 1, axis=range(wrong.ndim)))
        soiled[0] += wrong - turned
    found = distribute(basis.make_real, mesh, in_specs=basis.spec, out_specs=basis.spec)(soiled)
    np.testing.assert_allclose(found, clean, rtol=0, atol=1e-15)


@layouts([case for case in COMBINATIONS if case[0] in ((16, 24), (8, 12, 8))])
def test_sums_over_shells(shape, sizes):
    mesh = make_mesh(sizes)
    domain = decompose(Grid(shape), mesh)
    basis = FourierBasis(domain)
    values = np.random.default_rng(3).standard_normal(basis.shape)
    found = distribute(basis.shell_sums, mesh, in_specs=basis.spec, out_specs=PartitionSpec())(jnp.asarray(values))
    index = FourierBasis(Domain(Grid(shape))).indices()
    size = np.sqrt(sum(np.asarray(i, float) ** 2 for i in index))
    expected = [values[(size >= j - 0.5) & (size < j + 0.5)].sum() for j in range(min(basis.cutoff) + 1)]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_products_of_what_is_kept_have_no_aliases():
    """With 2/3 kept, coefficients of a square are those of the exact convolution."""
    n = 12
    basis = FourierBasis(Domain(Grid((n,))))
    spectrum = np.asarray(basis.forward(field((n,))))
    square = basis.forward(basis.inverse(jnp.asarray(spectrum)) ** 2)
    both = np.concatenate([np.conj(spectrum[:0:-1]), spectrum])
    convolution = np.convolve(both, both)
    middle = len(convolution) // 2
    cutoff = basis.cutoff[0]
    np.testing.assert_allclose(square[: cutoff + 1], convolution[middle : middle + cutoff + 1], rtol=0, atol=1e-15)


def count(text, what):
    return len(re.findall(what, text))


@pytest.mark.parametrize(
    "shape, sizes, forward, back",
    [
        ((16, 24), {}, 0, 0),
        ((16, 24), {"x": 8}, 1, 1),  # a slab: the transposition alone
        ((16, 24), {"x": 2, "y": 4}, 2, 2),
        ((16, 24), {"y": 8}, 2, 2),  # the half axis must be whole first
        ((8, 12, 8), {"x": 2}, 1, 1),
        ((8, 12, 8), {"x": 2, "y": 2}, 2, 2),  # a pencil
        ((8, 12, 8), {"x": 2, "y": 2, "z": 2}, 3, 3),
    ],
)
@pytest.mark.slow
def test_one_exchange_for_each_axis_that_is_moved(shape, sizes, forward, back):
    mesh = make_mesh(sizes)
    domain = decompose(Grid(shape), mesh)
    basis = FourierBasis(domain)
    there = distribute(basis.forward, mesh, in_specs=domain.spec(), out_specs=basis.spec).lower(field(shape))
    again = distribute(basis.inverse, mesh, in_specs=basis.spec, out_specs=domain.spec()).lower(
        jnp.zeros(basis.shape, complex)
    )
    for program, exchanges in ((there, forward), (again, back)):
        text = program.compile().as_text()
        assert count(text, r"\sall-to-all(?:-start)?\(") == exchanges
        assert count(text, r"\s(?:all-gather|all-reduce|collective-permute)(?:-start)?\(") == 0
        # A real transform along one axis and a complex one along each other axis: none twice.
        assert count(text, r"fft_type=I?RFFT") == 1 and count(text, r"\sfft\(") == len(shape)


def test_number_of_stored_modes_suits_many_devices():
    for n in (64, 128, 256, 512, 1024):
        assert half_count(n, -(-n // 3)) == 3 * n // 8
    for n in range(1, 200):
        modes = max(1, -(-n // 3))
        assert modes <= half_count(n, modes) <= max(1, (n + 1) // 2)
    assert half_count(24, 8) == 8 and half_count(16, 6) == 8


def test_what_cannot_be_cut_is_refused_with_what_can():
    with pytest.raises(ConfigurationError, match="set mesh.x=1, and mesh.ensemble"):
        FourierBasis(decompose(Grid((16,)), make_mesh({"x": 8})))
    with pytest.raises(ConfigurationError, match=r"divisible by 8 and Grid.shape\[1\]=32") as refused:
        FourierBasis(decompose(Grid((16, 28)), make_mesh({"x": 8})))
    assert refused.value.exit_code == 2
    FourierBasis(decompose(Grid((16, 32)), make_mesh({"x": 8})))
