"""Distances from bodies of files: images, outlines, surfaces; the same in parts; what is refused."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from simjax.errors import ConfigurationError, InputOutputError, ResourceError
from simjax.grid import CENTER, Grid
from simjax.io import memory
from simjax.io.body_files import BYTES_PER_DISTANCE, body_field
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


# ---- images of unknown origin


def png(rows=64, width=32, *, written=None, before=b"", header=(8, 0, 0, 0, 0), end=True):
    """An image whose lower half is dark, of which so many rows are written; `before` are parts ahead of the pixels."""
    lines = [b"\0" + (b"\xff" if row < rows // 2 else b"\0") * width for row in range(rows)]
    pixels = zlib.compress(b"".join(lines[: rows if written is None else written]))
    parts = part(b"IHDR", struct.pack(">II5B", width, rows, *header)) + before + part(b"IDAT", pixels)
    return b"\x89PNG\r\n\x1a\n" + parts + (part(b"IEND", b"") if end else b"")


def part(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def refused_image(tmp_path, content, said, error=InputOutputError, **options):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(error, match=said) as refused:
        from_file(tmp_path / "a.png", **options).read(WHOLE)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("written", [1, 63])
def test_an_image_that_ends_before_its_rows_do_is_no_body(tmp_path, written):
    refused_image(tmp_path, png(written=written), rf"it ends after {33 * written} of 2112 bytes of its rows")
    refused_image(tmp_path, png(written=written, end=False), "it is cut")


def test_an_image_is_looked_through_before_a_library_sees_it(tmp_path):
    refused_image(tmp_path, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it does not begin as PNG does")
    refused_image(tmp_path, b"GIF89a" + bytes(100), "it does not begin as PNG does")
    refused_image(tmp_path, png().replace(b"IDAT", b"IDAX"), "the checksum of its part 'IDAX' is wrong")
    refused_image(tmp_path, png()[:-30], "unpack_from|checksum|cut")
    refused_image(tmp_path, png(header=(8, 9, 0, 0, 0)), "its header says what no PNG is")
    long = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">II5B", 4, 4, 8, 0, 0, 0, 0))
    long += part(b"IDAT", zlib.compress(bytes(2**26))) + part(b"IEND", b"")
    refused_image(tmp_path, long, "it has more than the 20 bytes of its rows")


def test_what_stands_beside_the_pixels_is_not_unpacked(tmp_path):
    """A text of 256 KiB that unpacks to 256 MiB, a profile of colours, and a comment."""
    packed = zlib.compress(bytes(2**28), 1)
    beside = part(b"zTXt", b"a\0\0" + packed) * 3 + part(b"iCCP", b"b\0\0" + packed) + part(b"tEXt", b"c\0d")
    (tmp_path / "a.png").write_bytes(png(before=beside))
    (tmp_path / "b.png").write_bytes(png())
    tracemalloc.start()
    found = from_file(tmp_path / "a.png").read(WHOLE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, from_file(tmp_path / "b.png").read(WHOLE))
    assert peak < 2**25  # the packed parts twice over, and the distances


@pytest.mark.parametrize("kind", ["L", "RGB", "RGBA", "P", "1", "I;16", "LA"])
@pytest.mark.parametrize("interlaced", [False, True])
def test_every_kind_of_png_is_read(tmp_path, kind, interlaced):
    path = write_image(tmp_path / "a.png", (0.6, 1.0), 0.3)
    expected = from_file(path).read(WHOLE)
    with Image.open(path) as image:
        if kind == "I;16":
            deep = Image.fromarray(257 * np.asarray(image, np.uint16))
            deep.save(path)
        else:
            image.convert(kind).save(path)
    if interlaced:
        path.write_bytes(in_passes(path.read_bytes()))
    np.testing.assert_array_equal(from_file(path).read(WHOLE), expected)


def in_passes(content):
    """The image of a PNG file of one byte a pixel, or more, written in seven passes."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("L"))
    rows = b""
    for first_row, row_step, first, step in (
        (0, 8, 0, 8),
        (0, 8, 4, 8),
        (4, 8, 0, 4),
        (0, 4, 2, 4),
        (2, 4, 0, 2),
        (0, 2, 1, 2),
        (1, 2, 0, 1),
    ):
        rows += b"".join(b"\0" + row.tobytes() for row in pixels[first_row::row_step, first::step])
    header = struct.pack(">II5B", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 1)
    return content[:8] + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def test_images_are_estimated_before_they_are_read(tmp_path, monkeypatch):
    head = png()[:8] + part(b"IHDR", struct.pack(">II5B", 20_000, 20_000, 8, 0, 0, 0, 0))
    refused_image(tmp_path, head, "a.png has 20000 x 20000 pixels; expected at most 100000000", ConfigurationError)
    head = png()[:8] + part(b"IHDR", struct.pack(">II5B", 9900, 9900, 8, 0, 0, 0, 0))
    monkeypatch.setattr(memory, "host_memory", lambda: 2**34)
    refused_image(tmp_path, head, "9900 x 9900 pixels, would need about 18.3 GiB", ResourceError, periodic=(True, True))
    monkeypatch.setattr(memory, "host_memory", lambda: 2**33)
    refused_image(tmp_path, head, "9900 x 9900 pixels, would need about 4.57 GiB", ResourceError)


@pytest.mark.parametrize("periodic", [(False, False), (True, True)])
def test_the_estimate_of_an_image_holds(tmp_path, periodic):
    body = from_file(write_image(tmp_path / "a.png", (0.6, 1.0), 0.3, pixel=0.004), periodic)
    tracemalloc.start()
    body.read(WHOLE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    padded = np.prod([n + 2 * width for n, width in zip((500, 375), body._margins, strict=True)])
    assert 0.5 * BYTES_PER_DISTANCE < peak / padded < BYTES_PER_DISTANCE


# ---- surfaces that go beyond the grid


def test_what_lies_far_from_the_grid_takes_no_memory(tmp_path):
    """A corner of a triangle a million lengths away: 10^8 pieces of half a cell, of which few are near."""
    path = tmp_path / "far.csv"
    path.write_text("0.5,0.5\n1e6,0.5\n1e6,1e6\n")
    body = from_file(path)
    assert len(body._small_pieces) < 2000
    x, y = centers(GRID)
    right, up = x - 0.5, y - 0.5
    from_corner = np.hypot(right, up)
    below = np.where(right > 0, np.abs(up), from_corner)
    above = np.where(right + up > 0, np.abs(up - right) / np.sqrt(2), from_corner)  # from the diagonal
    inside = (up > 0) & (up < right)
    expected = np.where(inside, -1, 1) * np.minimum(below, above)
    np.testing.assert_allclose(body.read(WHOLE), expected, atol=1e-9)  # rounding of lengths of 10^6


def test_a_surface_that_lies_nowhere_in_the_grid_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"the surface of a.dat lies nowhere in the grid"):
        from_file(write_circle(tmp_path / "a.dat"), scale=1e6, at=(1.0, 0.7)).read(WHOLE)


def test_pieces_are_estimated_before_they_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "host_memory", lambda: 2**18)
    with pytest.raises(ResourceError, match=r"a.dat, in pieces of half a cell, would need about .* change scale or at"):
        grid = Grid((320, 240), (0.0, 0.0), (2.0, 1.5))
        from_file(write_circle(tmp_path / "a.dat", 100), grid=grid, scale=0.5, at=(1.0, 0.7)).read(WHOLE)


def test_a_body_must_fit_the_grid(tmp_path):
    path = write_circle(tmp_path / "a.dat")
    with pytest.raises(ConfigurationError, match=r"goes from 0.94 to 1.06 along x, less than 2 cells of 0.0625"):
        from_file(path, scale=0.06, at=(1.0, 0.7))
    with pytest.raises(ConfigurationError, match=r"goes from 2.7 to 3.3 along x, beyond the grid from 0 to 2"):
        from_file(path, scale=0.3, at=(3.0, 0.7))
