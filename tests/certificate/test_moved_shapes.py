"""Bodies that a certificate moves by a cell, and keep their formula."""

import numpy as np
import pytest

from simjax.certificate.field_run import functions_of, longest_falling
from simjax.certificate.moved_shapes import SHAPE_OFFSET, keeps_formula, ways_of_formula, with_places
from simjax.config import load_config
from simjax.config.read_stretched_grid import grid_of
from simjax.schema.numbers import named_numbers

MOVING = "maximum(abs(x - 0.5 - 0.3*t) - 0.2, abs(y - 0.5) - 0.125)"


def placed(name, overrides):
    config = load_config(name, overrides)
    assert keeps_formula(config)
    return with_places(config)


def drifting():
    velocity = '["0.3 + 0*x", "sin(x)"]'
    return placed("cylinder", [f'coefficients.solid="{MOVING}"', f"+coefficients.solid_velocity={velocity}"])


def test_a_body_falls_by_a_part_of_a_cell_in_the_last_step():
    """At rest it limits no step, and then falls with 4 m s-2: half of the Courant number 0.7 of cells of 0.075 m."""
    config = load_config("falling_plate", ["grid.shape=[24,40]"])
    dt = longest_falling(config, 6)
    assert dt * (4 * 6 * dt) == pytest.approx(0.5 * 0.7 * 0.075)
    for still in ("cylinder", "gray_scott"):
        assert longest_falling(load_config(still), 6) == np.inf
    assert longest_falling(load_config("falling_plate", ["physics.body.gravity=[0,0]"]), 6) == np.inf


def test_a_body_at_rest_is_given_as_an_array():
    assert not keeps_formula(load_config("cylinder"))


@pytest.mark.parametrize(("name", "kept"), [("falling_plate", {"solid"}), ("swimmer", {"solid", "solid_velocity"})])
def test_what_moves_stays_a_formula(name, kept):
    assert kept <= functions_of(placed(name, []))


def test_each_way_moves_the_body_by_a_cell_with_its_velocity():
    config = drifting()
    grid, (distance,) = grid_of(config.grid_of_fields()), config.coefficients["solid"]
    numbers = {name: np.asarray(value) for name, value in named_numbers(config).items()}
    h = (2 / 160, 1 / 80)
    assert numbers["solid_along_x"] == SHAPE_OFFSET * h[0] and numbers["solid_outward"] == SHAPE_OFFSET * h[0]
    ways = ways_of_formula(grid, numbers)
    assert set(ways) == {"along x", "along y", "outward"}
    # Of the sides of the box at the time 0.1, by the distance right of it and above it.
    for way, moves in {"along x": (h[0], 0), "along y": (0, h[1]), "outward": (h[0], h[1])}.items():
        there = {name: value + ways[way][name] for name, value in numbers.items()}
        for (x, y), move in zip([(0.8, 0.5), (0.53, 0.7)], moves, strict=True):
            before, after = (float(distance({**one, "x": x, "y": y, "t": 0.1})) for one in (numbers, there))
            assert before - after == pytest.approx(move, abs=1e-15)  # rounding
    moved = {name: value + ways["along x"][name] for name, value in numbers.items()}
    velocity = config.coefficients["solid_velocity"][1]
    assert float(velocity({**moved, "x": 0.4 + h[0]})) == pytest.approx(
        float(velocity({**numbers, "x": 0.4})), abs=1e-15
    )
