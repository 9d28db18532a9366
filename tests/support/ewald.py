"""Ewald's sum in numpy, written apart from the package: what sums over periodic images are held against."""

import itertools
import math

import numpy as np


def ewald(position, charge, lengths, alpha, images=2, waves=10):
    """Potential `(particles,)` and field `(3, particles)` of charges 1 / r with all their images.

    Without a particle's own potential, in a background that neutralises. The terms left out are of the order of
    erfc(alpha images L) and exp(-(pi waves / alpha L)^2).
    """
    lengths = np.asarray(lengths, float)
    apart = position[:, :, None] - position[:, None, :]
    apart -= np.round(apart / lengths[:, None, None]) * lengths[:, None, None]
    erfc = np.vectorize(math.erfc)
    potential, field = np.zeros(len(charge)), np.zeros_like(position)
    for n in itertools.product(range(-images, images + 1), repeat=3):
        d = apart + (n * lengths)[:, None, None]
        square = np.sum(d * d, axis=0)
        itself = square == 0
        square = np.where(itself, 1, square)
        r = np.sqrt(square)
        near = np.where(itself, 0, erfc(alpha * r) / r)
        slope = near + np.where(itself, 0, 2 * alpha / math.sqrt(math.pi) * np.exp(-(alpha**2) * square))
        potential += near @ charge
        field += (slope / square * d) @ charge
    volume = math.prod(lengths)
    k = 2 * math.pi * np.array([n for n in itertools.product(range(-waves, waves + 1), repeat=3) if any(n)]) / lengths
    square = np.sum(k * k, axis=1)
    factor = 4 * math.pi / volume * np.exp(-square / (4 * alpha**2)) / square
    waves_at = np.exp(1j * k @ position)
    total = (waves_at.conj() @ charge * factor)[:, None] * waves_at
    potential += total.real.sum(axis=0)
    field += k.T @ total.imag
    potential -= 2 * alpha / math.sqrt(math.pi) * charge + math.pi / (alpha**2 * volume) * np.sum(charge)
    return potential, field
