"""Pictures of particles: spheres in a box seen from the side, or discs in a plane, painted by numpy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simjax.io.particle_output import IN_ALL
from simjax.report.colours import ColourScale, diverging_scale
from simjax.report.labels import number, title_case
from simjax.report.scalars import spread

if TYPE_CHECKING:
    import xarray as xr

AZIMUTH, ELEVATION = np.deg2rad(35.0), np.deg2rad(22.0)
LIGHT = np.array([-0.45, 0.55, 0.7])  # to the left, up, and towards who looks
SHARE = 0.46  # radius of a particle in mean distances
EDGE_COLOUR = np.array([120, 128, 140])
SPECIES_COLOURS = np.array([[44, 110, 178], [217, 119, 40], [46, 139, 87], [140, 80, 170], [190, 60, 80], [90, 90, 96]])
SUPERSAMPLING = 2
WALL, WALL_COLOUR = "wall", np.array([176, 182, 190])
PHASE_ASPECT = 1.5  # width to height of a picture of places and velocities
SLOW = 0.01  # of the largest velocity of a run: particles at rest at the start
FRAMES = 16  # from which the largest velocity of a run is taken
LEAST_FILLED = 0.3  # of a phase plane, in which thin beams soon spread
PER_BIN = 8  # particles, where the room that they fill is measured
FOG = 0.45  # of white in the colour of the furthest particle


@dataclass(frozen=True)
class View:
    """Direction of view on a box: `axes` (3, 3) are the directions to the right, up and towards the viewer.

    names: of what is along the edges of a plane. A box of one axis is looked at in phase space: its plane is that of
    places and velocities.
    """

    lower: np.ndarray
    upper: np.ndarray
    axes: np.ndarray
    flat: bool
    names: tuple[str, str] = ("x", "y")

    @property
    def of_phases(self) -> bool:
        return self.names[1] == "v"

    def places(self, dataset: xr.Dataset, frame: int, member: int | None) -> np.ndarray:
        """Places of particles in the view, (particles, 3)."""
        position = at(dataset, "position", frame, member)
        if not self.of_phases:
            return position
        velocity = at(dataset, "velocity", frame, member)[:, 0]
        return np.stack([position[:, 0], velocity, np.zeros_like(velocity)], 1)

    @property
    def corners(self) -> np.ndarray:
        """The box's corners, (8, 3)."""
        return np.array(list(itertools.product(*zip(self.lower, self.upper, strict=True))))

    def project(self, position: np.ndarray) -> np.ndarray:
        """(points, 3): to the right, up, and towards who looks."""
        return (position - 0.5 * (self.lower + self.upper)) @ self.axes.T

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, right, low and high of the projected box."""
        seen = self.project(self.corners)
        return float(seen[:, 0].min()), float(seen[:, 0].max()), float(seen[:, 1].min()), float(seen[:, 1].max())

    @property
    def aspect(self) -> float:
        left, right, low, high = self.frame
        return (right - left) / (high - low)


def view_of(dataset: xr.Dataset) -> View:
    """A plane from above; a box of three dimensions from the front, the right and above, with z upwards; one of
    a single axis with the velocities upwards."""
    lower, upper = (np.atleast_1d(dataset.attrs[f"simjax_box_{side}"]).astype(float) for side in ("lower", "upper"))
    if len(lower) == 1:
        return _phase_plane(dataset, float(lower[0]), float(upper[0]))
    if len(lower) == 2:
        return View(np.append(lower, 0.0), np.append(upper, 0.0), np.eye(3), True)
    return space_view(lower, upper)


def space_view(lower: np.ndarray, upper: np.ndarray) -> View:
    """A box of three dimensions from the front, the right and above, with z upwards."""
    sin_a, cos_a, sin_e, cos_e = np.sin(AZIMUTH), np.cos(AZIMUTH), np.sin(ELEVATION), np.cos(ELEVATION)
    towards = np.array([sin_a * cos_e, -cos_a * cos_e, sin_e])
    right = np.array([cos_a, sin_a, 0.0])
    return View(lower, upper, np.stack([right, np.cross(towards, right), towards]), False)


def _phase_plane(dataset: xr.Dataset, lower: float, upper: float) -> View:
    """Places and velocities, these stretched to a picture of a fixed shape."""
    frames = spread(dataset.sizes["time"], FRAMES) if "velocity" in dataset else []
    speed = 1.05 * max((_largest(dataset, frame) for frame in frames), default=0.0) or 1.0
    stretch = (upper - lower) / PHASE_ASPECT / (2 * speed)
    ends = np.array([lower, -speed, 0.0]), np.array([upper, speed, 0.0])
    return View(*ends, np.diag([1.0, stretch, 1.0]), True, ("x", "v"))


def _largest(dataset: xr.Dataset, frame: int) -> float:
    values = np.abs(at(dataset, "velocity", frame, None)[:, 0])
    return float(values.max(initial=0.0, where=np.isfinite(values)))


def _sampled(dataset: xr.Dataset) -> list[int]:
    """Indices of three frames (first, middle, last) that stand for the whole run."""
    count = dataset.sizes["time"]
    return sorted({0, count // 2, count - 1})


def written_and_all(dataset: xr.Dataset) -> tuple[int, int]:
    """The number of particles in the files, and in the run."""
    written = dataset.sizes["particle"]
    return written, int(dataset.attrs.get(IN_ALL, written))


def counted_particles(dataset: xr.Dataset) -> str:
    """The count of particles that are shown, in words, and of how many."""
    written, count = (f"{number:,}".replace(",", " ") for number in written_and_all(dataset))
    return f"{count} particles" if written == count else f"{written} of {count} particles"


def radius_of(dataset: xr.Dataset, view: View) -> float:
    """Radius at which particles that fill evenly what they fill at the start nearly touch."""
    left, right, low, high = view.frame
    lengths = np.array([right - left, high - low]) if view.flat else view.upper - view.lower
    count, places = dataset.sizes["particle"], view.places(dataset, 0, None)
    places = view.project(places)[:, :2] - [left, low] if view.flat else places - view.lower
    share = max(_filled(places, lengths, count), LEAST_FILLED if view.of_phases else 0.0)
    return SHARE * float((share * np.prod(lengths) / count) ** (1 / len(lengths)))


def _filled(places: np.ndarray, lengths: np.ndarray, count: int) -> float:
    """The share of a box in which there are particles, from bins that would hold a few."""
    size = (PER_BIN * np.prod(lengths) / count) ** (1 / len(lengths))
    shape = np.maximum(np.floor(lengths / size).astype(int), 1)
    found = places[np.isfinite(places).all(axis=1)]
    index = np.clip((found / lengths * shape).astype(int), 0, shape - 1)
    return max(len(np.unique(index, axis=0)), 1) / float(np.prod(shape))


@dataclass(frozen=True)
class Shade:
    """Meaning of the colours of particles: `label`, and their `scale`, or colours of the species where it is None.

    at_start: the variable along a single axis at the start by which phases are followed.
    """

    label: str
    scale: ColourScale | None
    at_start: str | None = None

    def colours(self, dataset: xr.Dataset, frame: int, member: int | None) -> np.ndarray:
        """8-bit colours (particles, 3) at an output time."""
        species = np.asarray(dataset["species"].values)
        if self.scale is None:
            return SPECIES_COLOURS[species % len(SPECIES_COLOURS)]
        if self.at_start:
            return self.scale.colours(at(dataset, self.at_start, 0, member)[:, 0])
        colours = self.scale.colours(speeds(dataset, frame, member))
        names = species_names(dataset)
        return np.where((species == names.index(WALL))[:, None], WALL_COLOUR, colours) if WALL in names else colours


def shade_of(dataset: xr.Dataset) -> Shade:
    """Species where there are several that move, else speed, on one scale for the whole run."""
    fixed = species_names(dataset).count(WALL)
    if "velocity" not in dataset or int(dataset["species"].max()) > fixed:
        return Shade("Species", None)
    if len(np.atleast_1d(dataset.attrs["simjax_box_lower"])) == 1:
        return _phase_shade(dataset)
    sample = [speeds(dataset, frame, None) for frame in _sampled(dataset)]
    values = np.concatenate([s[np.isfinite(s)] for s in sample])
    limit = float(np.quantile(values, 0.995)) if values.size else 1.0
    highest = float(values.max()) if values.size else 0.0
    return Shade("Speed", ColourScale("haline", 0.0, limit or 1.0, (False, highest > 1.01 * limit)))


def _phase_shade(dataset: xr.Dataset) -> Shade:
    """Velocities at the start, or places where nothing moved much then."""
    start = at(dataset, "velocity", 0, None)[:, 0].astype(float)
    values = np.abs(start[np.isfinite(start)])
    most = float(np.quantile(values, 0.9)) if values.size else 0.0
    if most > SLOW * max(_largest(dataset, frame) for frame in _sampled(dataset)):
        scale = diverging_scale([np.clip(start, -most, most)])
        return Shade("Velocity at the start", scale, "velocity")
    lower, upper = (float(np.atleast_1d(dataset.attrs[f"simjax_box_{side}"])[0]) for side in ("lower", "upper"))
    return Shade("Place at the start", ColourScale("phase", lower, upper, (False, False)), "position")


def species_names(dataset: xr.Dataset) -> list[str]:
    """Names of the species by their numbers, where they have any."""
    return str(dataset["species"].attrs.get("flag_meanings", "")).split()


def speeds(dataset: xr.Dataset, frame: int, member: int | None) -> np.ndarray:
    """Speed of every particle at an output time."""
    return np.linalg.norm(at(dataset, "velocity", frame, member).astype(float), axis=-1)


def at(dataset: xr.Dataset, name: str, frame: int, member: int | None) -> np.ndarray:
    """A variable `(particles, 3)` at an output time, of the first member unless another is meant."""
    where = {"time": frame}
    if "member" in dataset[name].dims:
        where["member"] = member or 0
    return np.asarray(dataset[name].isel(where).values)


def radii_of(dataset: xr.Dataset, radius: float, diameters: np.ndarray | None) -> np.ndarray:
    """Radius of every particle: `radius` in the mean, in the proportion of their species' `diameters` where known."""
    species = np.asarray(dataset["species"].values)
    if diameters is None or len(diameters) <= int(species.max(initial=0)):
        return np.full(species.shape, radius)
    own = np.asarray(diameters, float)[species]
    return radius * own / own.mean()


def paint(
    view: View, position: np.ndarray, colours: np.ndarray, radii: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """The particles as an 8-bit picture (height, width, 3) of `size` (width, height), its upper row first.

    radii: of every particle, a length of the view.
    """
    radius = float(radii.max(initial=0.0))
    width, height = (SUPERSAMPLING * side for side in size)
    finite = np.isfinite(position).all(axis=1)
    if not view.flat:  # what has left an open box would stand on the names of its edges
        finite &= ((position >= view.lower) & (position <= view.upper)).all(axis=1)
    seen = view.project(position[finite].astype(float))
    left, right, low, high = view.frame
    margin = 0.0 if view.flat else 1.3 * radius
    scale = min((width - 1) / (right - left + 2 * margin), (height - 1) / (high - low + 2 * margin))
    centre = np.array([width / 2, height / 2])
    order = np.argsort(seen[:, 2], kind="stable")  # what is nearer is painted last
    seen, colours, radii = seen[order], colours[finite][order].astype(float), radii[finite][order]
    pixels = np.stack([seen[:, 0], -seen[:, 1]], 1) * scale + centre
    corners = view.project(view.corners)
    depth = corners[:, 2].max() - corners[:, 2].min()
    far = np.clip((corners[:, 2].max() - seen[:, 2]) / depth, 0, 1)[:, None] if depth > 0 else 0.0
    colours = colours + (255 - colours) * FOG * far
    canvas = _Canvas(width, height)
    if not view.flat:
        canvas.edges(view, scale, centre)
    # Discs lie on one another whole, spheres pass into one another.
    height_of = np.arange(len(seen)) * 3.0 * radius * scale if view.flat else seen[:, 2] * scale
    for one in np.unique(radii):
        own = radii == one
        canvas.spheres(pixels[own], height_of[own], colours[own], max(float(one) * scale, 1.2), view.flat)
    picture = canvas.picture.reshape(height // SUPERSAMPLING, SUPERSAMPLING, width // SUPERSAMPLING, SUPERSAMPLING, 3)
    return np.rint(picture.mean(axis=(1, 3))).astype(np.uint8)


class _Canvas:
    """Pixels, with the depth of the nearest particle in each."""

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        self.picture = np.full((height * width, 3), 255.0)
        self.depth = np.full(height * width, -np.inf)

    def _dots(self, x: np.ndarray, y: np.ndarray, depth: np.ndarray, colours: np.ndarray) -> None:
        """One pixel for each point, unless something nearer is there; of points in a pixel the last counts."""
        column, row = np.rint(x).astype(int), np.rint(y).astype(int)
        inside = (column >= 0) & (column < self.width) & (row >= 0) & (row < self.height)
        where = row[inside] * self.width + column[inside]
        nearer = depth[inside] > self.depth[where]
        where = where[nearer]
        self.depth[where] = depth[inside][nearer]
        self.picture[where] = np.broadcast_to(colours, (len(x), 3))[inside][nearer]

    def spheres(self, pixels: np.ndarray, depth: np.ndarray, colours: np.ndarray, radius: float, flat: bool) -> None:
        reach = int(np.ceil(radius))
        light = LIGHT / np.linalg.norm(LIGHT)
        for dy, dx in itertools.product(range(-reach, reach + 1), repeat=2):
            beside = (dx * dx + dy * dy) / radius**2
            if beside > 1:
                continue
            normal = np.array([dx / radius, -dy / radius, np.sqrt(1 - beside)])
            bright = 0.55 + 0.5 * max(0.0, float(normal @ light)) if not flat else 0.82 + 0.2 * normal[2]
            shaded = np.clip(colours * min(bright, 1.0), 0, 255)
            self._dots(pixels[:, 0] + dx, pixels[:, 1] + dy, depth + radius * normal[2], shaded)

    def edges(self, view: View, scale: float, centre: np.ndarray) -> None:
        corners = view.corners
        for a, b in itertools.combinations(range(8), 2):
            if np.count_nonzero(corners[a] != corners[b]) == 1:
                steps = np.linspace(0, 1, 4 * max(self.width, self.height))[:, None]
                line = view.project(corners[a] + steps * (corners[b] - corners[a])) * scale
                for dx, dy in itertools.product((0, 1), repeat=2):
                    x, y = line[:, 0] + centre[0] + dx, centre[1] - line[:, 1] + dy
                    self._dots(x, y, line[:, 2], EDGE_COLOUR)


def axis_marks(view: View, radius: float, size: tuple[float, float]) -> list[tuple[str, float, float]]:
    """For a box in space, the names of its axes with their ends, and where they stand in a picture of `size`."""
    left, right, low, high = view.frame
    margin = 1.3 * radius
    scale = min(size[0] / (right - left + 2 * margin), size[1] / (high - low + 2 * margin))
    near = np.array([view.lower[0], view.lower[1], view.lower[2]])
    places = {
        "x": near + np.array([0.5, 0, 0]) * (view.upper - view.lower),
        "y": near + np.array([1.0, 0.5, 0]) * (view.upper - view.lower),
        "z": near + np.array([0, 0, 0.5]) * (view.upper - view.lower),
    }
    # Sides found from the places of cells miss zero by a rounding.
    sides = [np.where(np.abs(side) < 1e-9 * (view.upper - view.lower), 0.0, side) for side in (view.lower, view.upper)]
    marks = []
    for name, place in places.items():
        u, v, _ = view.project(place[None])[0]
        ends = " to ".join(number(float(side["xyz".index(name)])) for side in sides)
        marks.append((f"{name}: {ends}", size[0] / 2 + u * scale, size[1] / 2 - v * scale))
    return marks


def species_label(dataset: xr.Dataset, number: int) -> str:
    """A species in a legend."""
    names = species_names(dataset)
    return title_case(names[number].replace("_", " ") if number < len(names) else f"species {number}")
