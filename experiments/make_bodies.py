"""Writes airfoil.dat and grains.png, the bodies of conf/experiment/airfoil.yaml and porous_array.yaml.

    python experiments/make_bodies.py

The airfoil is NACA 2412 (Jacobs, Ward and Pinkerton 1933, NACA Report 460) with a closed trailing edge; the grains are
discs of random sizes that leave gaps of a twelfth of the height at least, and repeat along x.
"""

from pathlib import Path

import numpy as np
from PIL import Image

CAMBER, PLACE, THICKNESS = 0.02, 0.4, 0.12
PIXELS, GRAINS, LEAST_GAP = (768, 384), 16, 32.0


def airfoil(points: int = 80) -> np.ndarray:
    """Points (x, y) around an airfoil of chord one, from the trailing edge over the upper side, `(2 points - 1, 2)`."""
    x = 0.5 * (1 - np.cos(np.linspace(0, np.pi, points)))
    half = 5 * THICKNESS * (0.2969 * np.sqrt(x) - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
    front, p, m = x < PLACE, PLACE, CAMBER
    line = np.where(front, m / p**2 * (2 * p * x - x**2), m / (1 - p) ** 2 * (1 - 2 * p + 2 * p * x - x**2))
    slope = np.where(front, 2 * m / p**2 * (p - x), 2 * m / (1 - p) ** 2 * (p - x))
    angle = np.arctan(slope)
    upper = np.stack([x - half * np.sin(angle), line + half * np.cos(angle)], axis=1)
    lower = np.stack([x + half * np.sin(angle), line - half * np.cos(angle)], axis=1)
    return np.concatenate([upper[::-1], lower[1:]])


def grains() -> np.ndarray:
    """Grey values [row, column] of discs, dark on white."""
    random, (nx, ny) = np.random.default_rng(7), PIXELS
    y, x = np.mgrid[:ny, :nx] + 0.5
    nearest, placed = np.full((ny, nx), np.inf), 0
    while placed < GRAINS:
        radius = random.uniform(24.0, 52.0)
        center = random.uniform((0.0, radius + LEAST_GAP), (nx, ny - radius - LEAST_GAP))
        across = np.abs(x - center[0])
        distance = np.hypot(np.minimum(across, nx - across), y - center[1])
        if nearest[distance < radius + LEAST_GAP].min() >= 0:
            nearest, placed = np.minimum(nearest, distance - radius), placed + 1
    return (255 * np.clip(nearest + 0.5, 0, 1)).astype(np.uint8)


if __name__ == "__main__":
    np.savetxt(Path(__file__).with_name("airfoil.dat"), airfoil(), "%.6f", header="NACA 2412", comments="")
    Image.fromarray(grains()).save(Path(__file__).with_name("grains.png"), optimize=True)
