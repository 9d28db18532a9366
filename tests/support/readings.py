"""Places, segments and boxes in a plane from (0, -1) to (2, 2), and what is read there of a wave, in closed form."""

import numpy as np

PLACES = [[0.01, 1.99], [2.0, -1.0], [1.0, 0.4], [0.71, -0.3], [1.96, 1.0]]
STARTS, ENDS = [[0.0, -1.0], [0.3, 1.9], [1.7, 0.2]], [[2.0, 2.0], [0.3, -0.7], [0.1, 0.25]]
# The last one is narrower than a cell of the coarser grids.
LOWERS, UPPERS = (
    [[0.0, -1.0], [0.33, 0.41], [1.51, -0.9], [0.0, 0.5]],
    [[2.0, 2.0], [0.36, 1.17], [2.0, 2.0], [0.04, 0.6]],
)


def wave(x, y):
    """A wave of the plane's periods."""
    return np.sin(np.pi * x + 0.3) * np.cos(2 * np.pi / 3 * y - 0.7)


def of_wave(boxes):
    """Readings of the wave by operator: itself, quadrature along segments, its primitive over the first `boxes`."""
    (a, b), (c, d) = (np.moveaxis(np.asarray(corners[:boxes]), 1, 0) for corners in (LOWERS, UPPERS))
    along_x = -(np.cos(np.pi * c + 0.3) - np.cos(np.pi * a + 0.3)) / (np.pi * (c - a))
    along_y = 1.5 / np.pi * (np.sin(2 * np.pi / 3 * d - 0.7) - np.sin(2 * np.pi / 3 * b - 0.7)) / (d - b)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    start, end = np.asarray(STARTS)[:, None], np.asarray(ENDS)[:, None]
    samples = 0.5 * (start + end) + 0.5 * (end - start) * nodes[None, :, None]
    lengths = np.linalg.norm(end - start, axis=-1)[:, 0]
    return {
        "points": wave(*np.transpose(PLACES)),
        "line of sight": (wave(samples[..., 0], samples[..., 1]) @ weights) * lengths / 2,
        "box average": along_x * along_y,
    }
