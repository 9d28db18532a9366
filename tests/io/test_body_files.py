"""Distances from bodies of files: images, outlines, surfaces; the same in parts; what is refused."""

import numpy as np
import pytest
from PIL import Image

from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import CENTER, Grid
from simjax.io.body_files import body_field
from simjax.schema.config import BodyFile

GRID = Grid((32, 24), (0.0, 0.0), (2.0, 1.5))
WHOLE = ((0, 32), (0, 24))


def centers(grid):
    return np.meshgrid(*(grid.coordinates(axis, CENTER) for axis in range(grid.ndim)), indexing="ij")


def write_circle(path, points=400):
    angle = 2 * np.pi * np.arange(points) / points
    np.savetxt(path, np.stack([np.cos(angle), np.sin(angle)], axis=1), header="a circle", comments="")
    return path


def write_image(path, center, radius, pixel=0.02, ink=0):
    """A disc in the box of `GRID`, in pixels whose rows begin at the top."""
    y, x = np.mgrid[1.5 - pixel / 2 : 0 : -pixel, pixel / 2 : 2.0 : pixel]
    inside = np.hypot(x - center[0], y - center[1]) < radius
    Image.fromarray(np.where(inside, ink, 255 - ink).astype(np.uint8)).save(path)
    return path


def from_file(path, periodic=(False, False), grid=GRID, **options):
    options = {"at": (0.0,) * grid.ndim} | options
    return body_field(BodyFile(path, ("distance",), **options), grid, periodic)


@pytest.mark.parametrize("periodic", [False, True])
def test_an_outline_of_points_is_a_polygon(tmp_path, periodic):
    """The body goes on beyond a periodic side, on the other side of the box."""
    body = from_file(write_circle(tmp_path / "a.dat"), (periodic, False), scale=0.3, at=(0.2, 0.7))
    x, y = centers(GRID)
    images = [np.hypot(x - 0.2 - shift, y - 0.7) - 0.3 for shift in ((0.0, 2.0) if periodic else (0.0,))]
    # A polygon of 400 sides lies up to r (pi / 400)^2 / 2 = 9.3e-6 within its circle.
    np.testing.assert_allclose(body.read(WHOLE), np.min(images, axis=0), atol=9.4e-6)


def test_an_outline_is_turned_counterclockwise_then_moved(tmp_path):
    path = tmp_path / "bar.csv"
    path.write_text("0, -0.1\n1, -0.1\n1, 0.1\n0, 0.1\n")
    body = from_file(path, angle=np.pi / 2, at=(1.0, 0.25))
    x, y = centers(GRID)
    beyond = np.stack([np.abs(x - 1.0) - 0.1, np.abs(y - 0.75) - 0.5])
    expected = np.linalg.norm(np.maximum(beyond, 0), axis=0) + np.minimum(beyond.max(axis=0), 0)
    np.testing.assert_allclose(body.read(WHOLE), expected, atol=1e-14)  # rounding of a rotation


@pytest.mark.parametrize("ink", [0, 255])
def test_an_image_fills_the_box_with_its_first_row_on_top(tmp_path, ink):
    path = write_image(tmp_path / "disc.png", (0.6, 1.0), 0.3, ink=ink)
    found = from_file(path, inside="light" if ink else "dark").read(WHOLE)
    x, y = centers(GRID)
    expected = np.hypot(x - 0.6, y - 1.0) - 0.3
    # Edges of pixels lie up to 0.7 of them from the circle; cells of 0.06 are then interpolated between them.
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_an_image_repeats_along_periodic_axes_alone(tmp_path):
    path = write_image(tmp_path / "disc.png", (0.3, 0.75), 0.2)
    x, y = centers(GRID)
    right = x > 1.5
    around = np.hypot(x - 2.3, y - 0.75)[right] - 0.2
    np.testing.assert_allclose(from_file(path, (True, False)).read(WHOLE)[right], around, atol=0.02)
    assert from_file(path).read(WHOLE)[right].min() > 1.0


@pytest.mark.slow
def test_a_closed_surface_is_a_body(tmp_path):
    import trimesh

    trimesh.creation.box(extents=(0.5, 0.4, 0.3)).export(tmp_path / "box.stl")
    grid = Grid((12, 10, 8))
    body = from_file(tmp_path / "box.stl", (False,) * 3, grid, scale=2.0, at=(0.5, 0.45, 0.5))
    beyond = np.stack(
        [np.abs(x - c) - e for x, c, e in zip(centers(grid), (0.5, 0.45, 0.5), (0.5, 0.4, 0.3), strict=True)]
    )
    expected = np.linalg.norm(np.maximum(beyond, 0), axis=0) + np.minimum(beyond.max(axis=0), 0)
    found = body.read(((0, 12), (0, 10), (0, 8)))
    np.testing.assert_allclose(found, expected, atol=1e-7)  # corners in a file are single precision


@pytest.mark.parametrize("kind", ["outline", "image"])
def test_parts_are_those_of_the_whole(tmp_path, kind):
    body = (
        from_file(write_circle(tmp_path / "a.dat", 60), (True, False), scale=0.3, at=(0.2, 0.7))
        if kind == "outline"
        else from_file(write_image(tmp_path / "a.png", (0.6, 1.0), 0.3), (True, False))
    )
    parts = [[body.read(((i, i + 8), (j, j + 12))) for j in (0, 12)] for i in range(0, 32, 8)]
    np.testing.assert_array_equal(np.block(parts), body.read(WHOLE))


def test_files_without_a_body_are_refused(tmp_path):
    import trimesh

    Image.new("L", (16, 12), 255).save(tmp_path / "white.png")
    with pytest.raises(ConfigurationError, match=r"white.png: expected dark pixels .* got no pixel dark"):
        from_file(tmp_path / "white.png")
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(InputOutputError, match=r"torn.png cannot be read as an image"):
        from_file(tmp_path / "torn.png")
    (tmp_path / "line.csv").write_text("0,0\n1,1\n0,0\n")
    with pytest.raises(ConfigurationError, match=r"line.csv: expected at least three different points .* got 2"):
        from_file(tmp_path / "line.csv")
    (tmp_path / "words.csv").write_text("0,0\n1,0\none,1\n")
    with pytest.raises(ConfigurationError, match=r"words.csv: line 3 is 'one 1'; expected two numbers"):
        from_file(tmp_path / "words.csv")
    open_box = trimesh.creation.box()
    open_box.update_faces(np.arange(11))
    open_box.export(tmp_path / "open.stl")
    with pytest.raises(ConfigurationError, match=r"open.stl: expected a closed surface"):
        from_file(tmp_path / "open.stl", (False,) * 3, Grid((8, 8, 8)))


def test_a_body_must_fit_the_grid(tmp_path):
    path = write_circle(tmp_path / "a.dat")
    with pytest.raises(ConfigurationError, match=r"goes from 0.94 to 1.06 along x, less than 2 cells of 0.0625"):
        from_file(path, scale=0.06, at=(1.0, 0.7))
    with pytest.raises(ConfigurationError, match=r"goes from 2.7 to 3.3 along x, beyond the grid from 0 to 2"):
        from_file(path, scale=0.3, at=(3.0, 0.7))
