"""Modes of waveguides: effective indices, orthogonality, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from simjax.models.waves.guided_modes import Section, Window, guided_mode

W, WIDTH, INSIDE = np.pi, 0.5, 6.25
"""Angular frequency, width of a slab in air, its permittivity."""


def effective_index(stiffness):
    """Of the slab's lowest even mode; stiffness: of the field inside, 1 of Ez and 1/permittivity of Hz."""

    def matched(index):
        inside, outside = W * np.sqrt(INSIDE - index**2), W * np.sqrt(index**2 - 1)
        return stiffness * inside * np.tan(inside * WIDTH / 2) - outside

    # The field inside turns by less than a quarter of a wave from the middle on.
    least = np.sqrt(max(INSIDE - (np.pi / (W * WIDTH)) ** 2, 1.0))
    return brentq(matched, least + 1e-9, np.sqrt(INSIDE) - 1e-9)


def slab(n, at_faces):
    """The slab on a line of n cells between conductors far away, of width 4."""
    h = 4 / n
    faces = -2 + h * np.arange(n)

    def mean(places):
        within = places[:, None] + h * (np.arange(64) + 0.5) / 64 - 0.5 * h
        return jnp.asarray(np.where(abs(within) < WIDTH / 2, INSIDE, 1.0).mean(axis=1))

    one = jnp.ones(n)
    if at_faces:
        return Section(mean(faces), one, one)
    # E along the guide lies along the surfaces and has the arithmetic mean, E across it the harmonic one.
    across = mean(faces + 0.5 * h)
    return Section(one, 1 / mean(faces), 1 + (across - 1) / (INSIDE - 1) * (1 / INSIDE - 1))


@pytest.mark.parametrize("at_faces", [True, False], ids=["tm", "te"])
def test_effective_index_of_a_slab_is_of_second_order(at_faces):
    exact = effective_index(1.0 if at_faces else 1 / INSIDE)
    errors = []
    for n in (128, 256):
        mode = guided_mode(slab(n, at_faces), Window(at_faces, 0, n), (4 / n, 4 / n), W / (2 * np.pi), 0)
        errors.append(abs(float(mode.wavenumber) / W - exact))
    print(exact, errors)
    # What the scheme loses of the index inside: (k h)^2 / 24 of 2.5, with 26 cells over the wave.
    assert errors[0] < 6.3e-3
    assert 3.5 < errors[0] / errors[1] < 4.5


@pytest.mark.parametrize("at_faces", [True, False], ids=["tm", "te"])
def test_modes_are_orthogonal_and_of_unit_size(at_faces):
    """The power that E of one mode has with H of another vanishes; windows hold what is in them alone."""
    modes = [guided_mode(slab(64, at_faces), Window(at_faces, 8, 52), (0.05, 1 / 16), 1.4, k) for k in range(4)]
    powers = np.asarray([[a.electric @ b.magnetic for a in modes] for b in modes])
    size = np.sqrt(np.outer(np.diag(powers), np.diag(powers)))
    np.testing.assert_allclose(powers / size, np.eye(4), atol=1e-13)  # roundings of 64 cells
    for mode in modes:
        assert float(jnp.abs(mode.electric).max()) == pytest.approx(1, abs=1e-14)
        outside = np.r_[0:8, 52:64]
        assert float(jnp.abs(mode.electric)[outside].max()) < 1e-14
        assert float(jnp.abs(mode.magnetic)[outside].max()) < 1e-14


def test_modes_between_plates_are_those_of_the_scheme():
    n, h = 24, 1 / 24
    plain = Section(*(jnp.ones(n),) * 3)
    for number in range(3):
        mode = guided_mode(plain, Window(True, 0, n), (0.05, h), 2.0, number)
        across = 2 / h * np.sin(0.5 * np.pi * (number + 1) * h)
        square = (4 * np.pi) ** 2 - across**2
        assert float(mode.square) == pytest.approx(square, rel=1e-12)  # roundings of 24 cells
        assert float(mode.wavenumber) == pytest.approx(40 * np.arcsin(0.025 * np.sqrt(square)), rel=1e-12)
        exact = np.sin(np.pi * (number + 1) * h * np.arange(n))
        np.testing.assert_allclose(mode.electric, exact / abs(exact).max(), atol=1e-12)
    # Number 3 has half a wave in 1/4, more than the wave in the medium: it does not go on.
    last = guided_mode(plain, Window(True, 0, n), (0.05, h), 2.0, 4)
    assert float(last.square) < 0 and float(last.wavenumber) == 0


@pytest.mark.parametrize("window", [Window(True, None, None), Window(False, None, None), Window(False, 2, 21)])
def test_derivatives_by_the_medium_are_those_of_differences(window):
    """Also on a periodic line, where other modes come in pairs of one wavenumber."""
    n = 24
    shape = 1 + 0.2 * jnp.sin(2 * jnp.pi * jnp.arange(float(n)) / n)
    weights = jnp.cos(0.7 * jnp.arange(float(n)))

    def loss(size):
        section = Section(2 * (1 + size * (shape - 1)), 1 / (1 + 3 * size * (shape - 1)), jnp.ones(n))
        mode = guided_mode(section, window, (0.05, 1 / n), 1.1, 0)
        return mode.electric @ weights + mode.magnetic @ weights[::-1] + 0.1 * mode.wavenumber

    for size in (0.4, 1.0):
        found, step = jax.grad(loss)(size), 1e-4
        expected = (loss(size + step) - loss(size - step)) / (2 * step)
        # Central differences: step^2 of third derivatives, and roundings over the step.
        assert float(found) == pytest.approx(float(expected), rel=1e-6, abs=1e-8)
