"""Numerical fluxes: consistent, mirrored, exact for what each resolves, and kept positive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_riemann import SOD, TWO_RAREFACTIONS, RiemannProblem

from simjax.ops.positivity import MARGIN, CellAtFace, limit_flux, limit_state
from simjax.ops.riemann import FLUXES, Conserved, Primitive, conserved, exact_flux, primitive, sound_speed

GAMMA = jnp.asarray(1.4)
each_flux = pytest.mark.parametrize("name", FLUXES)


def states(seed, speed=2.0, ndim=3, n=200):
    rng = np.random.default_rng(seed)
    density, pressure = (jnp.asarray(np.exp(rng.normal(size=n))) for _ in range(2))
    return Primitive(density, tuple(jnp.asarray(speed * v) for v in rng.normal(size=(ndim, n))), pressure)


def state(density, *velocity_and_pressure):
    *velocity, pressure = (jnp.asarray([float(v)]) for v in velocity_and_pressure)
    return Primitive(jnp.asarray([float(density)]), tuple(velocity), pressure)


def assert_same(found, wanted, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), found, wanted)


@each_flux
@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.slow
def test_flux_between_equal_states_is_the_exact_one(name, axis):
    w = states(0)
    found = FLUXES[name](w, w, axis, GAMMA)
    # A few roundings of terms up to (E + p) u of some hundreds.
    assert_same(found, exact_flux(w, conserved(w, GAMMA), axis), rtol=1e-12, atol=1e-12)


@each_flux
def test_reversed_states_have_the_reversed_flux_to_the_last_bit(name):
    left, right = states(1), states(2)

    def reverse(w):
        return w._replace(velocity=(-w.velocity[0], *w.velocity[1:]))

    found = FLUXES[name](left, right, 0, GAMMA)
    mirrored = FLUXES[name](reverse(right), reverse(left), 0, GAMMA)
    np.testing.assert_array_equal(mirrored.density, -found.density)
    np.testing.assert_array_equal(mirrored.energy, -found.energy)
    np.testing.assert_array_equal(mirrored.momentum[0], found.momentum[0])
    np.testing.assert_array_equal(mirrored.momentum[1], -found.momentum[1])


@each_flux
def test_axes_are_alike(name):
    left, right = states(3), states(4)

    def turn(w):
        return w._replace(velocity=(w.velocity[2], w.velocity[0], w.velocity[1]))

    found, turned = FLUXES[name](left, right, 0, GAMMA), FLUXES[name](turn(left), turn(right), 1, GAMMA)
    # Squares of velocities are summed in another order.
    np.testing.assert_allclose(turned.momentum[1], found.momentum[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(turned.energy, found.energy, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["hllc", "hllc_all_speed"])
def test_hllc_keeps_a_contact_and_a_shear_at_rest(name):
    left, right = state(1, 0, 0.5, -0.3, 0.7), state(0.1, 0, -2, 0.9, 0.7)
    flux = FLUXES[name](left, right, 0, GAMMA)
    for component in (flux.density, flux.energy, *flux.momentum[1:]):
        assert float(component[0]) == 0.0
    assert float(flux.momentum[0][0]) == pytest.approx(0.7, rel=1e-15)


@pytest.mark.parametrize("name", ["hll", "hllc", "hllc_all_speed"])
def test_a_shock_at_rest_stays(name):
    """Mach 2, the jump of Rankine and Hugoniot: the flux is that of both sides."""
    c = np.sqrt(1.4)
    left = state(1, 2 * c, 1)
    right = state(8 / 3, 2 * c * 3 / 8, 4.5)
    assert_same(
        FLUXES[name](left, right, 0, GAMMA), exact_flux(left, conserved(left, GAMMA), 0), rtol=1e-13, atol=1e-13
    )


@each_flux
def test_supersonic_flow_takes_its_flux_from_upwind(name):
    left, right = state(1, 4, 0.2, 1), state(0.7, 5, -0.4, 0.8)
    if name == "rusanov":
        return
    assert_same(FLUXES[name](left, right, 0, GAMMA), exact_flux(left, conserved(left, GAMMA), 0), rtol=1e-14)


def test_neighbours_along_a_stream_do_not_fill_each_other():
    """What keeps a shock along the grid still: pressure drives mass through a face beside a stream, but less of it the
    faster that is. The same jump in a gas at rest drives what HLLC has."""
    for along, part in ((0.0, 1.0), (0.05, 1 - 0.5), (2.0, 0.0)):
        u = along * np.sqrt(1.4)
        left, right = state(1, 0, u, 1 - 1e-4), state(1, 0, u, 1 + 1e-4)
        flux, plain = (FLUXES[name](left, right, 0, GAMMA).density[0] for name in ("hllc_all_speed", "hllc"))
        assert float(plain) < -1e-5
        # The speeds of sound on both sides differ by a part of 1e-4.
        assert float(flux / plain) == pytest.approx(part, rel=1e-3, abs=1e-6)


def damped(mach, leap, rise, through=0.0):
    """What a jump of velocity of `leap` c adds to the mean pressure by `hllc_all_speed`, over what it adds by HLLC.

    mach, through: of the velocity along and through the face.
    """
    c = np.sqrt(1.4)
    left, right = state(1, through * c, mach * c, 1 - rise), state(1, (through - leap) * c, mach * c, 1 + rise)
    still = state(1, through * c, mach * c, 1 + rise)
    all_speed, plain = (
        float((FLUXES[name](left, right, 0, GAMMA).momentum[0] - FLUXES[name](left, still, 0, GAMMA).momentum[0])[0])
        for name in ("hllc_all_speed", "hllc")
    )
    return all_speed / plain


def test_a_jump_of_velocity_is_damped_by_the_mach_number():
    """In a gas nearly at rest fully where pressure jumps with it by rho c du, as in sound, and by the square of the
    part of that by which it does; less of this the faster the gas is, and nothing from Mach 0.3 on."""
    slow = ((1e-3, 0, 2e-3), (1e-3, 1, 1), (1e-3, -2, 1), (1e-3, 0.5, 0.25), (0.15, 1, 0.5))
    for mach, ratio, part in (*slow, (0.5, 0, 0.75), (0.5, 1, 0.75), (1.5, 0, 1)):
        # The momentum that the gas carries through the face changes too.
        assert damped(mach, 1e-5, 0.5 * ratio * 1.4e-5) == pytest.approx(part, rel=0.05)


def test_strong_jumps_are_damped_as_by_hllc():
    """From five per cent of c, or of gamma p; half of that counts as Mach 0.5."""
    assert damped(1e-3, 0.06, 0.0) == pytest.approx(1, rel=0.05)
    assert damped(1e-3, 0.025, 0.0) == pytest.approx(0.75, rel=0.05)
    # In a gas too fast for sound to be asked for.
    assert damped(0, 1e-3, 0.5 * 1.4 * 0.06, through=0.35) == pytest.approx(1, rel=0.01)
    assert damped(0, 1e-3, 0.5 * 1.4 * 0.01, through=0.35) < 0.8


@each_flux
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_derivatives_are_finite_between_states_at_rest(name, dtype):
    gas = Primitive(*jax.tree.map(lambda u: u.astype(dtype), (state(1, 0, 0, 1)[:3])))

    def total(left, right):
        return sum(map(jnp.sum, jax.tree.leaves(FLUXES[name](left, right, 0, jnp.asarray(1.4, dtype)))))

    for slope in jax.tree.leaves(jax.grad(total, (0, 1))(gas, gas)):
        assert slope.dtype == dtype and bool(jnp.isfinite(slope).all())


def test_primitive_undoes_conserved():
    w = states(5)
    assert_same(primitive(conserved(w, GAMMA), GAMMA), w, rtol=1e-12)


@pytest.mark.parametrize(
    "problem, star",
    [
        (SOD, (0.30313017805064685, 0.9274526200489499)),
        (TWO_RAREFACTIONS, (0.0018938734200547624, 0.0)),
        (RiemannProblem((1.0, 0.0, 1000.0), (1.0, 0.0, 0.01)), (460.894, 19.5975)),
    ],
)
def test_exact_solver_finds_the_star_states_of_the_tables(problem, star):
    """Sod and 123 to the digits of an independent solver, the blast to the six digits of Toro (2009), table 4.2."""
    rounded = star[0] > 100
    np.testing.assert_allclose(problem.star(), star, rtol=2.6e-6 if rounded else 1e-10, atol=1e-12)


def test_face_states_are_drawn_to_their_cell_only_where_they_must():
    cell, face = states(6), states(7)
    face = face._replace(density=face.density - 1.0, pressure=face.pressure - 1.0)
    limited = limit_state(face, cell)
    good = (face.density >= MARGIN * cell.density) & (face.pressure >= MARGIN * cell.pressure)
    assert 20 < int(good.sum()) < 180
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[good], b[good]), limited, face)
    # A rounding of the cell's value.
    assert bool(jnp.all(limited.density >= MARGIN * cell.density * (1 - 1e-14)))
    assert bool(jnp.all(limited.pressure >= MARGIN * cell.pressure * (1 - 1e-14)))


def test_mixed_fluxes_leave_positive_density_and_pressure():
    left, right, other = states(8), states(9), states(10)
    ql, qr = conserved(left, GAMMA), conserved(right, GAMMA)
    speeds = [jnp.abs(w.velocity[0]) + sound_speed(w, GAMMA) for w in (left, right)]
    speed = jnp.maximum(*speeds)
    wild = jax.tree.map(lambda f: 3 * f, exact_flux(other, conserved(other, GAMMA), 0))
    below, above = (CellAtFace(q, exact_flux(w, q, 0), w.pressure / (GAMMA - 1)) for w, q in ((left, ql), (right, qr)))
    mixed = limit_flux(wild, below, above, speed)
    harmful = 0
    for w, q, sign in ((left, ql, 1.0), (right, qr, -1.0)):

        def left_over(flux, w=w, q=q, sign=sign):
            # The cell's own flux is the same at two opposite faces and takes nothing from it.
            rest = jax.tree.map(lambda a, f, own: a - sign * (f - own) / speed, q, flux, exact_flux(w, q, 0))
            return primitive(Conserved(*rest), GAMMA)

        kept, lost = left_over(mixed), left_over(wild)
        harmful += int(((lost.density < 0) | (lost.pressure < 0)).sum())
        assert float(kept.density.min()) > 0 and float(kept.pressure.min()) > 0
    assert harmful > 100, "the wild flux was harmless: nothing is tested"
    # A flux that does no harm passes unchanged.
    mild = FLUXES["hllc"](left, left, 0, GAMMA)
    kept = limit_flux(mild, below, below, speeds[0])
    jax.tree.map(np.testing.assert_array_equal, kept, mild)
