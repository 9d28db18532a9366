"""Light and a round dielectric cylinder, exactly: the field of a line current beside it, and its resonances.

Time is exp(-i w t), units have c = mu = eps = 1. `decaying_modes` reads resonances out of a series that was measured.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import newton
from scipy.special import h1vp, hankel1, jv, jvp


def line_current_field(k, index, radius, source, probes, orders=40):
    """E_z at `probes` of a unit current exp(-i w t) along z at `source`, outside of a cylinder about the origin.

    The void's field is -(k/4) H0(k r); Graf's theorem expands it around the axis, and E_z and its slope are continuous
    at the surface.
    """
    m = np.arange(-orders, orders + 1)
    far, turned = np.hypot(*source), np.arctan2(source[1], source[0])
    inside, outside = index * k * radius, k * radius
    incoming = hankel1(m, k * far)
    j, h, d = jv(m, outside), hankel1(m, outside), _determinant(outside, m, index, "tm")
    scattered = -incoming * (j * index * jvp(m, inside) - jvp(m, outside) * jv(m, inside)) / d
    within = incoming * (jvp(m, outside) * h - j * h1vp(m, outside)) / d
    result = []
    for place in probes:
        r, angle = np.hypot(*place), np.arctan2(place[1], place[0])
        if r < radius:
            waves, direct = within * jv(m, index * k * r), 0.0
        else:
            waves, direct = scattered * hankel1(m, k * r), hankel1(0, k * np.hypot(*np.subtract(place, source)))
        result.append(direct + np.sum(waves * np.exp(1j * m * (angle - turned))))
    return -k / 4 * np.array(result)


def _determinant(z, m, index, polarisation):
    """Zero where waves go out and none comes in."""
    electric, magnetic = (index, 1.0) if polarisation == "tm" else (1.0, index)
    return electric * jvp(m, index * z) * hankel1(m, z) - magnetic * jv(m, index * z) * h1vp(m, z)


def resonance(guess, m, index, radius, polarisation):
    """The complex frequency w / (2 pi) of the mode with `m` waves around the cylinder, near a guess."""
    z = newton(_determinant, 2 * np.pi * radius * guess, args=(m, index, polarisation), tol=1e-14)
    return z / (2 * np.pi * radius)


def decaying_modes(series, dt, count):
    """Complex frequencies f of `count` exponentials exp(-2 pi i f t) in a real series, and amplitudes at its start.

    The matrix pencil of Hua and Sarkar (1990, IEEE Trans. Acoust. Speech Signal Process. 38, 814).
    """
    half = len(series) // 2
    windows = np.lib.stride_tricks.sliding_window_view(series, half)
    _, _, right = np.linalg.svd(windows, full_matrices=False)
    right = right[:count]
    poles = np.linalg.eigvals(right[:, 1:] @ np.linalg.pinv(right[:, :-1]))
    powers = poles ** np.arange(len(series))[:, None]
    amplitudes, *_ = np.linalg.lstsq(powers, series.astype(complex), rcond=None)
    return 1j * np.log(poles) / (2 * np.pi * dt), amplitudes
