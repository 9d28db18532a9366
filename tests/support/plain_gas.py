"""A plain shock-capturing scheme for a perfect gas in one dimension, in NumPy, with nothing that keeps it positive.

MUSCL with limited slopes of the primitive variables, HLLC with the signal speeds of Einfeldt et al. (1991), SSPRK3;
outflow at both ends. Toro (2009), ch. 10 and 14. Written apart from the package, to compare with.
"""

import numpy as np

GAMMA = 1.4


def _conserved(w):
    density, u, pressure = w
    return np.array([density, density * u, pressure / (GAMMA - 1) + 0.5 * density * u * u])


def _primitive(q):
    u = q[1] / q[0]
    return np.array([q[0], u, (GAMMA - 1) * (q[2] - 0.5 * q[0] * u * u)])


def _flux(w):
    density, u, pressure = w
    q = _conserved(w)
    return np.array([q[1], q[1] * u + pressure, (q[2] + pressure) * u])


def _beside_contact(w, outer, contact):
    """The conserved state between an outer wave and the contact."""
    density, u, pressure = w
    factor = density * (outer - u) / (outer - contact)
    energy = _conserved(w)[2] / density + (contact - u) * (contact + pressure / (density * (outer - u)))
    return factor * np.array([np.ones_like(contact), contact, energy])


def _hllc(left, right):
    below, above = np.sqrt(left[0]), np.sqrt(right[0])
    squares = [GAMMA * w[2] / w[0] for w in (left, right)]
    mean = (below * left[1] + above * right[1]) / (below + above)
    square = (below * squares[0] + above * squares[1]) / (below + above)
    square = square + 0.5 * (GAMMA - 1) * below * above * ((right[1] - left[1]) / (below + above)) ** 2
    slow = np.minimum(left[1] - np.sqrt(squares[0]), mean - np.sqrt(square))
    fast = np.maximum(right[1] + np.sqrt(squares[1]), mean + np.sqrt(square))
    push, pull = left[0] * (slow - left[1]), right[0] * (fast - right[1])
    contact = (right[2] - left[2] + push * left[1] - pull * right[1]) / (push - pull)
    from_left = _flux(left) + np.minimum(slow, 0) * (_beside_contact(left, slow, contact) - _conserved(left))
    from_right = _flux(right) + np.maximum(fast, 0) * (_beside_contact(right, fast, contact) - _conserved(right))
    return np.where(contact >= 0, from_left, from_right)


def _minmod(a, b):
    return np.where(a * b > 0, np.where(np.abs(a) < np.abs(b), a, b), 0)


def monotonized_central(a, b):
    return _minmod(0.5 * (a + b), 2 * _minmod(a, b))


def solve(problem, cells, end, courant=0.4, limiter=monotonized_central):
    """Density, velocity and pressure at `end`, on the unit interval."""
    x = (np.arange(cells) + 0.5) / cells
    w = np.where(x < problem.origin, *(np.array(side)[:, None] for side in (problem.left, problem.right)))
    q, t = _conserved(w), 0.0

    def slope(q):
        padded = np.pad(_primitive(q), ((0, 0), (2, 2)), mode="edge")
        jumps = np.diff(padded)
        half = 0.5 * limiter(jumps[:, :-1], jumps[:, 1:])
        middle = padded[:, 1:-1]
        return -cells * np.diff(_hllc((middle + half)[:, :-1], (middle - half)[:, 1:]))

    while t < end * (1 - 1e-12):
        density, u, pressure = _primitive(q)
        dt = min(courant / cells / np.max(np.abs(u) + np.sqrt(GAMMA * pressure / density)), end - t)
        first = q + dt * slope(q)
        second = 0.75 * q + 0.25 * (first + dt * slope(first))
        q, t = q / 3 + 2 / 3 * (second + dt * slope(second)), t + dt
    return _primitive(q)
