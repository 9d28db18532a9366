"""Distance from bodies whose shape a file has: images, closed outlines of points, closed surfaces of triangles.

Distances are positive outside of bodies, at cell centres, from the nearest image along periodic axes. Each process
computes them where its devices need them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.grid import CENTER, Grid
from simjax.io.memory import require_memory, require_memory_for_text
from simjax.io.png_files import png_size, read_brightness
from simjax.io.stored_variable import Ranges
from simjax.schema.config import BodyFile

LEAST_CELLS = 2
"""Cells that a body must span along every axis."""
BYTES_PER_DISTANCE = 50
"""Memory for the distance at a pixel, with those that are added around: up to 46 bytes were measured."""
BYTES_PER_PIECE = (0, 0, 300, 600)
"""Memory for a segment or triangle that is no longer than half a cell, by axes of the grid; 294 and 447 measured."""


class BodyField:
    """The distance from a body, region by region; made by `body_field`. notes: sentences about what is done."""

    def __init__(self, source: BodyFile, grid: Grid, periodic: Sequence[bool]):
        self._source, self._grid, self._periodic = source, grid, tuple(map(bool, periodic))
        name, self._image = source.file.name, source.file.suffix.lower() == ".png"
        if self._image:
            pixels = " x ".join(map(str, self._solid.shape))
            self.notes = [f"{name}: {pixels} pixels over the grid, solid where it is {source.inside}"]
        else:
            self._require_cells()
            lower, upper = (at(self._corners.reshape(-1, grid.ndim), axis=0) for at in (np.min, np.max))
            spans = ", ".join(f"{a:g} to {b:g}" for a, b in zip(lower, upper, strict=True))
            self.notes = [f"{name}: a body of {len(self._corners)} pieces from {spans}"]

    def read(self, bounds: Ranges) -> np.ndarray:
        """float64 distances `[x, y, z]` between `bounds`, first cell and one past the last along each axis."""
        centers = [self._grid.coordinates(axis, CENTER)[first:last] for axis, (first, last) in enumerate(bounds)]
        return self._of_image(centers) if self._image else self._of_pieces(centers)

    def told_first(self) -> list[tuple[int, str]]:
        """Give no values that are not finite: a distance is finite everywhere."""
        return []

    def require_finite(self, found: Iterable[tuple[int, str]]) -> None:
        """Do nothing, as `told_first` tells of nothing."""

    # ------------------------------------------------------------------ images

    @cached_property
    def _solid(self) -> np.ndarray:
        """Pixels `[x, y]` that are solid."""
        path, wanted = self._source.file, self._source.inside
        self._require_room_for_image()
        solid = (read_brightness(path) < 0.5) == (wanted == "dark")
        if solid.all() or not solid.any():
            found = "every" if solid.all() else "no"
            raise ConfigurationError(
                f"{path.name}: expected {wanted} pixels for bodies and others for the fluid; got {found} pixel "
                f"{wanted}. Draw the body, or change coefficients.solid.inside."
            )
        return solid

    @property
    def _margins(self) -> list[int]:
        """Pixels added at each side: half a period, which is as far as the nearest image may lie, and one beside."""
        sizes = png_size(self._source.file)
        return [n // 2 + 2 if wraps else 1 for n, wraps in zip(sizes, self._periodic, strict=True)]

    def _require_room_for_image(self) -> None:
        path = self._source.file
        sizes = png_size(path)
        padded = np.prod([n + 2 * width for n, width in zip(sizes, self._margins, strict=True)], dtype=float)
        require_memory(
            padded * BYTES_PER_DISTANCE, f"{path.name}, of {sizes[0]} x {sizes[1]} pixels,", "make the image smaller"
        )

    @cached_property
    def _distance_of_pixels(self) -> tuple[np.ndarray, list[int]]:
        """Distances at pixels, and around the image, where it goes on or repeats; the width that is added there."""
        from scipy.ndimage import distance_transform_edt

        solid = self._solid
        around = self._margins
        for axis, (width, wraps) in enumerate(zip(around, self._periodic, strict=True)):
            widths = [(width, width) if axis == k else (0, 0) for k in range(solid.ndim)]
            solid = np.pad(solid, widths, mode="wrap" if wraps else "edge")
        sizes = self._pixel_sizes
        # The surface lies between the centres of two pixels, half a pixel from either.
        half = 0.5 * min(sizes)
        outside, inside = (np.asarray(distance_transform_edt(one, sampling=sizes)) for one in (~solid, solid))
        return np.where(solid, half - inside, outside - half), around

    @property
    def _pixel_sizes(self) -> list[float]:
        return [length / n for length, n in zip(self._grid.lengths, self._solid.shape, strict=True)]

    def _of_image(self, centers: Sequence[np.ndarray]) -> np.ndarray:
        from scipy.ndimage import map_coordinates

        distance, around = self._distance_of_pixels
        lower = self._grid.lower
        places = [
            (x - low) / size - 0.5 + width
            for x, low, size, width in zip(centers, lower, self._pixel_sizes, around, strict=True)
        ]
        return map_coordinates(distance, np.meshgrid(*places, indexing="ij"), order=1, mode="nearest")

    # ------------------------------------------------------------------ outlines and surfaces

    @cached_property
    def _corners(self) -> np.ndarray:
        """Corners of the segments or triangles of the surface, `(pieces, ndim, ndim)`, in the grid's coordinates."""
        source = self._source
        read = _triangles if source.file.suffix.lower() == ".stl" else _segments
        corners = source.scale * read(source.file)
        if source.angle:
            c, s = np.cos(source.angle), np.sin(source.angle)
            corners = corners @ np.array([[c, s], [-s, c]])
        return corners + np.asarray(source.at)

    def _require_cells(self) -> None:
        """Refuse bodies that are too small for the grid, or beyond it."""
        points, grid = self._corners.reshape(-1, self._grid.ndim), self._grid
        for axis, h in enumerate(grid.mean_spacing):
            least, most = points[:, axis].min(), points[:, axis].max()
            where = f"coefficients.solid: {self._source.file.name} goes from {least:g} to {most:g} along {'xyz'[axis]}"
            if most - least < LEAST_CELLS * h:
                raise ConfigurationError(
                    f"{where}, less than {LEAST_CELLS} cells of {h:g}; expected a larger body: change scale, or make "
                    "the grid finer."
                )
            if most <= grid.lower[axis] or least >= grid.upper[axis]:
                raise ConfigurationError(
                    f"{where}, beyond the grid from {grid.lower[axis]:g} to {grid.upper[axis]:g}; change at or scale."
                )

    def _images(self) -> Iterator[np.ndarray]:
        """Shifts to the body and its nearest images along periodic axes."""
        steps = [(0, -1, 1) if wraps else (0,) for wraps in self._periodic]
        for step in itertools.product(*steps):
            yield np.array(step) * self._grid.lengths

    @cached_property
    def _small_pieces(self) -> np.ndarray:
        """Pieces of the surface no longer than half a cell, without those that are nearest to no cell of the grid.

        A point of the surface bounds how far any cell is from it, and so how far from the grid its nearest piece is.
        """
        grid, corners = self._grid, np.concatenate([self._corners + shift for shift in self._images()])
        lower, upper = np.asarray(grid.lower), np.asarray(grid.upper)
        middle = 0.5 * (lower + upper)
        closest = _closest(corners, np.broadcast_to(middle, (len(corners), grid.ndim)))
        reach = np.linalg.norm(closest - middle, axis=-1).min() + 0.5 * np.linalg.norm(upper - lower)
        name, divided = self._source.file.name, corners
        while divided is not None:
            beyond = np.maximum(lower - divided.max(axis=1), divided.min(axis=1) - upper).clip(min=0)
            away = np.linalg.norm(beyond, axis=-1)
            if away.min() > 0:
                raise ConfigurationError(
                    f"coefficients.solid: the surface of {name} lies nowhere in the grid; change at or scale."
                )
            pieces = divided[away <= reach]
            # The next cut gives twice as many at most.
            require_memory(
                2 * len(pieces) * BYTES_PER_PIECE[grid.ndim],
                f"{name}, in pieces of half a cell,",
                "change scale or at, or make the grid coarser",
            )
            divided = _divided(pieces, 0.5 * min(grid.mean_spacing))
        return pieces

    def _of_pieces(self, centers: Sequence[np.ndarray]) -> np.ndarray:
        from scipy.spatial import KDTree

        small = self._small_pieces
        middles = small.mean(axis=1)
        points = np.stack([x.ravel() for x in np.meshgrid(*centers, indexing="ij")], axis=-1)
        # The nearest middle lies on the nearest piece, or on one of its neighbours where these are as small.
        _, nearest = KDTree(middles).query(points, k=min(4 if points.shape[1] == 2 else 12, len(middles)))
        nearest = np.atleast_2d(nearest.T).T
        distance = np.full(len(points), np.inf)
        for candidate in nearest.T:
            closest = _closest(small[candidate], points)
            distance = np.minimum(distance, np.linalg.norm(points - closest, axis=-1))
        distance = distance.reshape([len(x) for x in centers])
        inside = np.zeros(distance.shape, bool)
        for shift in self._images():
            inside |= _inside(self._corners + shift, centers)
        return np.where(inside, -distance, distance)


def body_field(source: BodyFile, grid: Grid, periodic: Sequence[bool]) -> BodyField:
    """The distance from the body of a file on a grid.

    Raises:
        ConfigurationError: the file has no closed shape, the shape does not fit the grid, or a package is missing.
        InputOutputError: the file cannot be read.
        ResourceError: the distance would take too much memory.
    """
    return BodyField(source, grid, periodic)


def _segments(path: Path) -> np.ndarray:
    """Segments `(n, 2, 2)` of the closed outline through the points of a text file, two numbers a line.

    Lines that are not two numbers are passed over before the first point, as the title of a file of an airfoil.
    """
    try:
        require_memory_for_text(path)
        lines = [line.replace(",", " ").split() for line in path.read_text(errors="replace").splitlines()]
    except OSError as error:
        raise InputOutputError(f"{path.name} cannot be read: {error.strerror}.") from None
    points: list[tuple[float, float]] = []
    for number, words in enumerate(lines, 1):
        try:
            x, y = map(float, words)
        except ValueError:
            if points and words:
                shown = " ".join(words)[:40]
                raise ConfigurationError(
                    f"{path.name}: line {number} is '{shown}'; expected two numbers, x and y of a point of the outline."
                ) from None
            continue
        points.append((x, y))
    found = np.array(points).reshape(-1, 2)
    found = found[np.append(True, np.any(np.diff(found, axis=0) != 0, axis=1))] if len(found) else found
    if len(found) > 1 and np.all(found[0] == found[-1]):
        found = found[:-1]
    if len(found) < 3 or not np.isfinite(found).all():
        raise ConfigurationError(
            f"{path.name}: expected at least three different points of an outline, finite numbers x and y a line; got "
            f"{len(found)} points."
        )
    return np.stack([found, np.roll(found, -1, axis=0)], axis=1)


def _triangles(path: Path) -> np.ndarray:
    """Triangles `(n, 3, 3)` of the closed surface in an STL file."""
    try:
        import trimesh
    except ImportError:
        raise ConfigurationError(
            f"{path.name}: reading surfaces takes trimesh, which is not installed; pip install 'simjax[surfaces]'."
        ) from None
    require_memory_for_text(path)
    try:
        with path.open("rb") as file:  # by its kind: of others trimesh opens further files that they name
            mesh = trimesh.load_mesh(file, file_type="stl")
        triangles, closed = np.asarray(mesh.triangles, float), bool(mesh.is_watertight)
    except Exception as error:  # of many kinds, from whatever the reader tries
        raise InputOutputError(f"{path.name} cannot be read as a surface: {error}; write it anew as STL.") from None
    if not len(triangles) or not closed:
        raise ConfigurationError(
            f"{path.name}: expected a closed surface, each edge of two triangles; got {len(triangles)} triangles with "
            "gaps between them. Close the surface in the program that made it."
        )
    return triangles


def _divided(pieces: np.ndarray, size: float) -> np.ndarray | None:
    """Segments or triangles, those longer than `size` cut in two along their longest edge; None where none is."""
    ends = np.roll(pieces, -1, axis=1)
    lengths = np.linalg.norm(ends - pieces, axis=-1)
    longest = lengths.argmax(axis=1)
    large = lengths.max(axis=1) > size
    if not large.any():
        return None
    rows = np.arange(large.sum())
    own, first = pieces[large], longest[large]
    second = (first + 1) % pieces.shape[1]
    middle = 0.5 * (own[rows, first] + own[rows, second])
    halves = [own.copy(), own.copy()]
    halves[0][rows, second], halves[1][rows, first] = middle, middle
    return np.concatenate([pieces[~large], *halves])


def _closest(pieces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points of segments or triangles that are nearest to `points`, one of each."""
    if pieces.shape[1] == 3:
        from trimesh.triangles import closest_point

        return closest_point(pieces, points)
    start, along = pieces[:, 0], pieces[:, 1] - pieces[:, 0]
    square = np.maximum(np.sum(along**2, axis=-1), np.finfo(float).tiny)
    share = np.clip(np.sum((points - start) * along, axis=-1) / square, 0, 1)
    return start + share[:, None] * along


def _inside(corners: np.ndarray, centers: Sequence[np.ndarray]) -> np.ndarray:
    """Cells `[x, y, z]` inside of a closed surface: to their left, along x, it is crossed an odd number of times."""
    crossed = np.zeros([len(centers[0]) + 1, *(len(x) for x in centers[1:])], np.int64)
    # A hair beside the centres, so that lines through them miss corners and edges.
    others = [x + (k + 1) * 1e-9 * np.ptp(corners[..., k + 1]) for k, x in enumerate(centers[1:])]
    for piece in corners:
        ends = [np.searchsorted(x, [piece[:, k + 1].min(), piece[:, k + 1].max()]) for k, x in enumerate(others)]
        if any(first == last for first, last in ends):
            continue
        lines = np.meshgrid(*(x[first:last] for x, (first, last) in zip(others, ends, strict=True)), indexing="ij")
        # Weights of the corners where their mean lies on the line: the last ones solve a small linear system.
        edges = (piece[1:] - piece[0])[:, 1:]
        if abs(np.linalg.det(edges)) == 0:
            continue
        offsets = np.stack([line.ravel() - piece[0, k + 1] for k, line in enumerate(lines)], axis=-1)
        weights = offsets @ np.linalg.inv(edges)
        hit = (weights >= 0).all(axis=-1) & (weights.sum(axis=-1) <= 1)
        x = piece[0, 0] + weights @ (piece[1:, 0] - piece[0, 0])
        places = np.searchsorted(centers[0], x[hit])
        at = np.unravel_index(np.flatnonzero(hit), lines[0].shape)
        where = [index + first for index, (first, _) in zip(at, ends, strict=True)]
        np.add.at(crossed, (places, *where), 1)
    return np.cumsum(crossed[:-1], axis=0) % 2 == 1
