"""The friction of walls whose layers the cells do not resolve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from case import PERIODIC
from exact_flows import STILL, difference, parameters, random_flow
from scipy.integrate import quad

import simjax as sj
from simjax.core.domain import Domain
from simjax.core.mappings import lines
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.flow.incompressible import Incompressible, State
from simjax.models.flow.sides.wall_model import WallModel, drag_rate, modelled_walls, slowed
from simjax.models.sides import velocity_layouts

MODELLED = (WallModel(), WallModel())


@pytest.mark.parametrize("height", [30.0, 300.0, 3000.0])
def test_the_friction_is_that_of_the_profile_in_the_cell(height):
    """Of u+ = min(y+, 8.3 y+^(1/7)), whose mean over a cell of so many wall units is integrated by another way."""
    friction_velocity, viscosity = 0.7, 2e-4
    mean = quad(lambda y: min(y, 8.3 * y ** (1 / 7)), 0, height, points=[11.81], limit=200)[0] / height
    u, h = mean * friction_velocity, height * viscosity / friction_velocity
    # The profile bends where its two parts meet, at 11.81 to four digits.
    assert drag_rate(jnp.asarray(u), jnp.asarray(viscosity), h) * u == pytest.approx(friction_velocity**2, rel=1e-6)


def test_the_friction_and_its_slope_are_those_of_both_layers_where_they_meet():
    viscosity, h = 1e-3, 0.1
    bend = 0.5 * viscosity / h * 8.3 ** (7 / 3)

    def friction(u):
        return drag_rate(u, jnp.asarray(viscosity), h) * u

    (below, rise), (above, steeper) = (jax.value_and_grad(friction)(jnp.asarray(bend * (1 + d))) for d in (-1e-9, 1e-9))
    # The friction changes by 1e-9 of itself; both formulas have one value and one slope there.
    assert float(above) == pytest.approx(float(below), rel=1e-8) and float(steeper) == pytest.approx(
        float(rise), rel=1e-8
    )
    assert float(rise) == pytest.approx(2 * viscosity / h, rel=1e-14)
    assert float(jax.grad(friction)(jnp.asarray(1.1 * bend))) > float(rise)
    assert float(jax.grad(friction)(jnp.asarray(0.0))) == pytest.approx(2 * viscosity / h, rel=1e-14)


@pytest.mark.slow
def test_slow_flow_has_the_friction_of_a_resolved_layer():
    stretch = (None, lines("formula", "s - 0.3*s*s*(1 - s)", 6, 0.0, 1.0), None)
    domain = Domain(Grid((4, 6, 4), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), stretch))
    one, other = (Incompressible(domain, [PERIODIC, sides, PERIODIC]) for sides in (MODELLED, STILL))
    state, params = random_flow(other), parameters(0.3)
    found, expected = (jax.jit(model.rhs)(0.0, state, params) for model in (one, other))
    # Rounding of terms of 2 nu u / h^2, some 1e3.
    assert difference(found, expected) < 1e-11


@pytest.mark.slow
def test_fast_flow_is_slowed_against_its_direction_in_the_cells_on_walls_alone():
    n, angle, speed, viscosity = 6, 0.4, 3.0, 1e-4
    domain = Domain(Grid((4, n, 4)))
    model = Incompressible(domain, [PERIODIC, MODELLED, PERIODIC])
    u, w = speed * np.cos(angle), speed * np.sin(angle)
    state = State((jnp.full((4, n, 4), u), jnp.zeros((4, n, 4)), jnp.full((4, n, 4), w)))
    found = model.rhs(0.0, state, parameters(viscosity)).velocity
    friction = float(drag_rate(jnp.asarray(speed), jnp.asarray(viscosity), 1 / n)) * speed
    assert friction > 3 * 2 * viscosity * speed * n  # more than a resolved layer's
    for slope, part in zip(found, (np.cos(angle), 0.0, np.sin(angle)), strict=True):
        expected = np.zeros(n)
        # Rounding: `drag_rate` itself is compared with an integral above; here its sign, direction and places are.
        expected[[0, -1]] = -friction * n * part
        np.testing.assert_allclose(np.asarray(slope)[1, :, 2], expected, rtol=1e-13, atol=1e-15)


def test_each_wall_has_its_own_cells_and_the_speed_on_their_faces():
    """Of cells that are lower at the lower wall, and a velocity that changes from face to face."""
    stretch = (None, lines("formula", "s + 0.5*s*(s - 1)", 3, 0.0, 1.0), None)
    domain, viscosity, sides = Domain(Grid((3, 3, 4), stretch=stretch)), 1e-3, [PERIODIC, MODELLED, PERIODIC]
    layouts = velocity_layouts(sides, "m s-1")
    velocity = [jnp.asarray(u) for u in np.random.default_rng(0).normal(size=(3, 3, 3, 4))]
    slopes = [jnp.zeros(domain.grid.shape)] * 3

    @jax.jit
    def tendency(velocity):
        return slowed(domain, layouts, modelled_walls(sides), 0.0, velocity, jnp.asarray(viscosity), slopes)

    u, _, w = map(np.asarray, velocity)
    # A face of u is between two cells along x, and each of these has a face of w at both of its ends along z.
    w_at_u = np.mean([np.roll(w, (i, k), (0, 2)) for i in (0, 1) for k in (0, -1)], axis=0)
    u_at_w = np.mean([np.roll(u, (i, k), (0, 2)) for i in (0, -1) for k in (0, 1)], axis=0)
    widths = np.asarray(domain.grid.widths(1))
    assert widths[-1] > 1.5 * widths[0]
    found = tendency(velocity)
    for slope, own, other in ((found[0], u, w_at_u), (found[2], w, u_at_w)):
        expected = np.zeros(own.shape)
        for at in (0, -1):
            speed = np.hypot(own[:, at], other[:, at])
            expected[:, at] = (
                -own[:, at] * drag_rate(jnp.asarray(speed), jnp.asarray(viscosity), widths[at]) / widths[at]
            )
        # Rounding of numbers of order one.
        np.testing.assert_allclose(slope, expected, rtol=0, atol=1e-13)
    assert not np.any(found[1])


def test_where_such_walls_are_not_taken():
    given = {"grid": {"shape": [8, 8]}, "physics": {"viscosity": 0.01}, "boundaries": {"y": "wall_model"}}
    given["time"] = {"end": 1.0, "output_every": 1.0}
    with pytest.raises(
        ConfigurationError,
        match="balance of momentum_x: expected walls with a resolved layer, as it does not know their",
    ):
        sj.configure("incompressible", outputs=[{"balance": "momentum_x"}], **given)
    with pytest.raises(
        ConfigurationError,
        match="upper = wall_model: expected a Cartesian grid, .* got grid.axisymmetric = true; write no_slip",
    ):
        Incompressible(Domain(Grid((8, 8), axisymmetric=True)), [(sj.SlipWall(), WallModel()), PERIODIC])
