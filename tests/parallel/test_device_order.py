"""Blocks that are neighbours lie on chips that are, on slices of TPUs whose devices are listed host by host."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from simjax.parallel import _arranged


def slice_of(x, y, kind="TPU v5 lite"):
    """The devices of a slice as jax lists them: four chips of a host, then those of the next one."""
    hosts = itertools.product(range(0, y, 2), range(0, x, 2), (0, 1), (0, 1))
    return [
        SimpleNamespace(platform="tpu", device_kind=kind, coords=(hx + cx, hy + cy, 0), id=number)
        for number, (hy, hx, cy, cx) in enumerate(hosts)
    ]


def farthest(grid, axis, *, ring):
    """The most links between two neighbours along an axis of a mesh, around its end too if it is a ring."""
    places = np.array([device.coords for device in grid.flat]).reshape(*grid.shape, 3)
    steps = np.abs(places - np.roll(places, -1, axis)).sum(-1)
    return int(steps.max() if ring else np.delete(steps, -1, axis).max())


@pytest.mark.parametrize(("x", "y"), [(4, 4), (2, 4), (4, 2)])
def test_small_slices_are_laid_out_as_they_are(x, y):
    grid = _arranged(slice_of(x, y), (x, y))
    assert [farthest(grid, axis, ring=False) for axis in (0, 1)] == [1, 1]
    assert grid[1, 0].coords == (1, 0, 0)


def test_an_axis_of_the_mesh_takes_the_axis_of_the_slice_that_is_as_long():
    grid = _arranged(slice_of(2, 4), (4, 2))
    assert grid.shape == (4, 2) and [farthest(grid, axis, ring=False) for axis in (0, 1)] == [1, 1]


def test_long_lines_that_do_not_close_are_folded():
    grid = _arranged(slice_of(8, 4), (8, 4))
    assert farthest(grid, 0, ring=True) == 2
    assert farthest(_arranged(slice_of(8, 4, "TPU v6 lite"), (8, 4)), 0, ring=False) == 1


def test_rings_of_a_whole_pod_are_left_alone():
    grid = _arranged(slice_of(16, 16), (16, 16))
    assert [farthest(grid, axis, ring=False) for axis in (0, 1)] == [1, 1]


def test_devices_without_places_keep_their_order():
    devices = [SimpleNamespace(platform="gpu", id=number) for number in range(8)]
    assert [device.id for device in _arranged(devices, (2, 4)).flat] == list(range(8))
    # Four of a slice of eight, in a corner or not: nothing is known of their links.
    part = slice_of(4, 2)[:3]
    assert [device.id for device in _arranged(part, (3,)).flat] == [0, 1, 2]
