"""Sides that exchange a scalar with their surroundings: dc/dn = transfer (outside - c)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scalars import march

from simjax.config import validate
from simjax.core.boundary import Dirichlet, ScalarSide, center_layout
from simjax.core.domain import Domain
from simjax.driver.start.build import build_model, named_values
from simjax.errors import ConfigurationError
from simjax.grid import Grid
from simjax.models.robin import ExchangeSide, Robin
from simjax.models.scalar.transport import Params, Transport


@pytest.mark.parametrize("width", [1, 3])
def test_ghosts_continue_a_line_that_obeys_the_condition(width):
    """c = 1 + 2 x on (0, 1): slopes along the outward normal are -2 and 2."""
    grid = Grid((8,))
    lower, upper = Robin(4.0, 0.5), Robin(1.5, 3 + 2 / 1.5)  # 4 (0.5 - 1) = -2, 1.5 (3 + 2 / 1.5 - 3) = 2
    x = (np.arange(-width, 8 + width) + 0.5) / 8
    padded = Domain(grid).pad(jnp.asarray(1 + 2 * x[width:-width]), center_layout([(lower, upper)]), width)
    np.testing.assert_allclose(padded, 1 + 2 * x, rtol=0, atol=2e-15)  # roundings of numbers below four


@pytest.mark.slow
def test_a_mode_between_two_sides_decays_at_second_order():
    """cos(m (x - 1/2)) with m tan(m / 2) = transfer decays at the rate kappa m^2; here m = 2."""
    side = ExchangeSide(2 * np.tan(1.0))
    errors = []
    for cells in (16, 32):
        domain = Domain(Grid((cells,)))
        (x,) = domain.coordinates((0.5,))
        start = jnp.cos(2 * (x - 0.5))
        params = Params((jnp.zeros(cells),), jnp.full(cells, 0.1))
        final = march(Transport(domain, [(side, side)], "central"), params, start, end=1.0, steps=cells**2 // 2)
        errors.append(float(jnp.max(jnp.abs(final - np.exp(-0.4) * start))))
    assert 3.7 < errors[0] / errors[1] < 4.3  # 4 but for the next term of the error


def test_an_implicit_step_reaches_the_steady_state():
    """A line from 1 at the lower wall to what the upper one keeps: slope -h / (1 + h) for transfer h, outside 0."""
    domain = Domain(Grid((16,)))
    (x,) = domain.coordinates((0.5,))
    model = Transport(domain, [(ScalarSide(Dirichlet(1.0)), ExchangeSide(3.0))], "upwind", tolerance=1e-12)
    params = Params((jnp.zeros(16),), jnp.ones(16))
    final = march(model, params, jnp.sin(7 * x), end=1e6, steps=2, integrator="imex_euler")
    # What is left of the start is 1 / (1 + rate dt), with a rate above one.
    np.testing.assert_allclose(final, 1 - 0.75 * x, rtol=0, atol=4e-6)


def test_a_configuration_says_transfer_and_outside():
    config = {
        "model": "advection_diffusion",
        "physics": {"diffusivity": 0.1, "velocity": [0]},
        "grid": {"shape": [8]},
        "time": {"end": 1, "output_every": 1, "dt": 0.01},
        "precision": "float64",
        "parameters": {"cold": -0.5},
        "initial": {"concentration": "x"},
        "boundaries": {"x": {"lower": {"kind": "robin", "transfer": 2, "outside": "cold"}, "upper": "no_slip"}},
    }
    valid = validate(config)
    values = {name: jnp.asarray(value) for name, value in named_values(valid).items()}
    model, _ = build_model(valid, Domain(Grid((8,))), values, {})
    lower, _ = model.layout.boundaries[0]
    assert isinstance(lower, Robin) and lower.transfer == 2
    assert float(model.domain.pad(jnp.ones(8), model.layout, 1)[0]) == pytest.approx(2 / 3, rel=1e-12)  # h = 1/8
    config["boundaries"] = {"x": "robin"}
    with pytest.raises(ConfigurationError, match=r"boundaries.x.transfer is missing: a wall of kind robin needs"):
        validate(config)
    with pytest.raises(ConfigurationError, match="transfer"):
        Robin(-1.0)
