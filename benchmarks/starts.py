"""Fields and numbers that all contestants start from, in numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WAVENUMBER, FORCE = 4, 1.0
VISCOSITY, VELOCITY = 1e-3, (0.7, 0.3, 0.2)
FLOW_DT = 0.25 * VISCOSITY
LONG_WAVES = ((1, 2), (2, 1), (3, 3), (4, 1), (2, 5))


def faces(cells: int, length: float = 2 * np.pi) -> np.ndarray:
    """Places of the lower faces of equal cells."""
    return np.arange(cells) * length / cells


def centers(cells: int, length: float = 2 * np.pi) -> np.ndarray:
    """Places of the centres of equal cells."""
    return (np.arange(cells) + 0.5) * length / cells


def smooth_scalar(shape: Sequence[int]) -> np.ndarray:
    """A concentration of order one at the centres of a unit box."""
    scalar = np.ones((1,) * len(shape))
    for x in np.meshgrid(*(2 * np.pi * centers(n, 1.0) for n in shape), indexing="ij", sparse=True):
        scalar = scalar * (1 + 0.5 * np.sin(x))
    return scalar


def advection_diffusion_dt(shape: Sequence[int]) -> float:
    """A quarter of what forward Euler allows: central advection needs dt <= 2 kappa / |a|^2, diffusion h^2."""
    velocity = np.array(VELOCITY[: len(shape)])
    of_diffusion = 1 / (2 * VISCOSITY * float(np.sum(np.square(np.array(shape, float)))))
    return 0.25 * min(2 * VISCOSITY / float(velocity @ velocity), of_diffusion)


def pulse(shape: Sequence[int]) -> np.ndarray:
    """A pressure of order one at the centres of a unit box."""
    x = np.meshgrid(*(centers(n, 1.0) for n in shape), indexing="ij")
    return 1 + 0.3 * np.sin(2 * np.pi * sum(x) + 2)


def solenoidal_velocity(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """A smooth velocity of order one on the lower faces of a box of side 2 pi: differences of a stream function."""
    x, y = map(faces, shape)
    rng = np.random.default_rng(0)
    psi = np.zeros(shape)
    for k, m in LONG_WAVES:
        a, b = rng.uniform(0, 2 * np.pi, 2)
        psi += np.sin(k * x + a)[:, None] * np.sin(m * y + b)[None, :] / np.hypot(k, m)
    u = (np.roll(psi, -1, axis=1) - psi) * shape[1] / (2 * np.pi)
    v = -(np.roll(psi, -1, axis=0) - psi) * shape[0] / (2 * np.pi)
    fastest = max(np.abs(u).max(), np.abs(v).max())
    return u / fastest, v / fastest


def taylor_green(cells: int) -> tuple[np.ndarray, ...]:
    """The vortices of Taylor and Green (1937) on lower faces, free of divergence on the grid as well."""
    face, center = faces(cells), centers(cells)
    u = np.sin(face)[:, None, None] * np.cos(center)[:, None] * np.cos(center)
    v = -np.cos(center)[:, None, None] * np.sin(face)[:, None] * np.cos(center)
    return u, v, np.zeros((cells,) * 3)


def random_vorticity(cells: int, largest: float = 15.0) -> np.ndarray:
    """Waves of up to six lengths of a box of side 2 pi along each axis, of random height and phase."""
    x = centers(cells)
    rng = np.random.default_rng(0)
    field = np.zeros((cells, cells))
    for k in range(1, 7):
        for m in range(-6, 7):
            field += rng.normal() * np.cos(k * x[:, None] + m * x + rng.uniform(0, 2 * np.pi))
    return largest * field / np.abs(field).max()


def flames(members: int, cells: int, length: float) -> np.ndarray:
    """Slopes of flame fronts along a line, `(members, cells)`, smooth and different."""
    x = 2 * np.pi * centers(cells, length) / length
    phase = 2 * np.pi * np.arange(members)[:, None] / members
    return np.cos(x + phase) * (1 + np.sin(x)) + 0.1 * np.cos(8 * x + 3 * phase)


def spots(members: int, cells: int, length: float, size: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Fuel and catalyst `(members, cells, cells)` of two spots whose distance differs from member to member."""
    x = centers(cells, length)

    def spot(at: float) -> np.ndarray:
        profile = np.exp(-(((x - at * length) / size) ** 2))
        return profile[:, None] * profile

    both = np.stack([spot(0.35) + spot(0.55 + 0.15 * member / members) for member in range(members)])
    return 1 - 0.5 * both, 0.3 * both


def melting_crystal(cells_per_side: int, density: float, temperature: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Positions and velocities `(particles, 3)` of a face-centred cubic lattice at rest as a whole, and its box."""
    basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]) + 0.25
    corners = np.stack(np.meshgrid(*[np.arange(cells_per_side)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    constant = (4 / density) ** (1 / 3)
    position = (corners + basis).reshape(-1, 3) * constant
    velocity = np.random.default_rng(0).normal(size=position.shape)
    velocity -= velocity.mean(axis=0)
    velocity *= np.sqrt(temperature * 3 * (len(position) - 1) / np.sum(velocity**2))
    return position, velocity, cells_per_side * constant
