"""Bodies as shapes: distances of primitives and their unions, and mistakes in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simjax.config import validate
from simjax.errors import ConfigurationError

RANDOM = np.random.default_rng(3)


def config(solid, axes=2, names=()):
    return validate(
        {
            "model": "incompressible",
            "grid": {"shape": [8] * axes},
            "physics": {"viscosity": 0.1},
            "parameters": {"radius": 0.25, "speed": 2.0, **dict.fromkeys(names, 0.5)},
            "initial": {"velocity": [0] * axes},
            "coefficients": {"solid": solid},
            "time": {"end": 0.1, "output_every": 0.1},
        }
    )


def distance(solid, points, t=0.0):
    """The distance at points `(n, axes)`."""
    (formula,) = config(solid, points.shape[1]).coefficients["solid"]
    named = dict(zip("xyz", points.T, strict=False)) | {"radius": 0.25, "speed": 2.0, "t": t}
    return np.broadcast_to(formula(named), len(points))


def sampled(surface, points):
    """The distance of points from the nearest of those of a surface."""
    return np.linalg.norm(points[:, None] - surface, axis=-1).min(axis=1)


def test_a_ball_may_move_and_be_as_large_as_a_parameter():
    points = RANDOM.uniform(-1, 1, (20, 3))
    found = distance({"ball": {"center": [0.1, "speed*t", 0], "radius": "2*radius"}}, points, t=0.3)
    expected = np.linalg.norm(points - [0.1, 0.6, 0], axis=1) - 0.5
    np.testing.assert_allclose(found, expected, atol=1e-15)  # rounding


@pytest.mark.parametrize("inside", [False, True])
def test_a_box_is_as_far_as_its_nearest_point(inside):
    ends = (0.2, 0.8) if inside else (-1.0, 2.0)
    points = RANDOM.uniform(*ends, (60, 2)) * [1.0, 0.5]
    found = distance({"box": {"lower": [0, 0], "upper": [1, 0.5]}}, points)
    along = np.linspace(0, 1, 4001)
    edges = [np.stack(pair, axis=1) for pair in ((along, 0 * along), (along, 0 * along + 0.5))]
    edges += [np.stack(pair, axis=1) for pair in ((0 * along, 0.5 * along), (0 * along + 1, 0.5 * along))]
    # Points of the edges are 2.5e-4 apart, and the nearest one off by half of that.
    np.testing.assert_allclose(np.abs(found), sampled(np.concatenate(edges), points), atol=1.3e-4)
    within = (np.abs(points - [0.5, 0.25]) < [0.5, 0.25]).all(axis=1)
    np.testing.assert_array_equal(found < 0, within)


def test_a_capsule_and_a_cylinder():
    points = RANDOM.uniform(-1, 1, (40, 3))
    capsule = {"capsule": {"start": [-0.5, 0, 0], "end": [0.3, 0.4, 0.2], "radius": 0.1}}
    share = np.linspace(0, 1, 4001)[:, None]
    axis = [-0.5, 0, 0] + share * np.array([0.8, 0.4, 0.2])
    # Points of the axis are 2.3e-4 apart.
    np.testing.assert_allclose(distance(capsule, points), sampled(axis, points) - 0.1, atol=1.2e-4)
    cylinder = {"cylinder": {"center": [0.1, 7, 0.2], "radius": 0.3, "along": "y"}}
    expected = np.hypot(points[:, 0] - 0.1, points[:, 2] - 0.2) - 0.3
    np.testing.assert_allclose(distance(cylinder, points), expected, atol=1e-15)


def test_a_half_space_lies_behind_its_normal_of_any_length():
    points = RANDOM.uniform(-1, 1, (10, 2))
    found = distance({"half_space": {"point": [0, 0.5], "normal": [3, 4]}}, points)
    np.testing.assert_allclose(found, points @ [0.6, 0.8] - 0.4, atol=1e-15)


def test_a_list_is_the_union_and_is_written_as_it_was_understood():
    parts = [{"ball": {"center": [0.2 * k, 0.1], "radius": 0.05}} for k in range(5)] + ["y + 0.3"]
    points = RANDOM.uniform(-1, 1, (30, 2))
    each = [distance(part, points) for part in parts]
    np.testing.assert_array_equal(distance(parts, points), np.min(each, axis=0))
    once = config(parts)
    assert config(once.write()["coefficients"]["solid"]).coefficients == once.coefficients


@pytest.mark.parametrize(
    "solid",
    [{"ball": {"center": ["c", 0.5], "radius": 0.25}}, {"box": {"lower": ["c - 0.25", 0], "upper": ["c + 0.25", 1]}}],
)
@pytest.mark.slow
def test_a_distance_has_derivatives_inside_of_bodies(solid):
    """Also in the middle of a ball, and all over a box, where what is beyond its faces vanishes."""
    (formula,) = config(solid, names=("c",)).coefficients["solid"]
    x = jnp.asarray([0.5, 0.6, 0.9])
    slope = jax.jacfwd(lambda c: formula({"x": x, "y": jnp.full(3, 0.5), "c": c}, jnp))(jnp.asarray(0.5))
    np.testing.assert_allclose(slope[1:], -1, atol=1e-12)  # nearest to the right
    assert np.isfinite(slope[0])


@pytest.mark.parametrize(
    ("solid", "sentence"),
    [
        ({"bal": {"center": [0, 0], "radius": 1}}, r"coefficients.solid.bal: unknown key; did you mean .*ball"),
        ([{"ball": {"center": [0, 0]}}], r"coefficients.solid\[0\].ball.radius is missing"),
        ({"ball": {"center": [0, 0, 0], "radius": 1}}, r"ball.center = .*: expected a list of 2 numbers or formulas"),
        ({"ball": {"center": [0, 0], "radius": "r"}}, r"ball.radius = .*unknown name 'r'; did you mean"),
        ([], r"coefficients.solid = \[\]: expected a list of at least one shape"),
        ({"ball": 3}, r"coefficients.solid.ball = 3: expected keys with values: center, radius"),
        ({"file": "no.png"}, r"coefficients.solid.file = 'no.png': no such file"),
    ],
)
def test_mistakes_are_told_in_a_sentence(solid, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        config(solid)
