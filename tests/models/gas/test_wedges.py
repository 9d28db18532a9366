"""A shock of Mach 2 that runs into a wedge: regular reflection by two-shock theory, Mach reflection by three shocks."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from gas_runs import centers, gas, run, seen, start
from gas_speeds import jump
from scipy.optimize import brentq

from simjax.core.boundary import Outflow, SlipWall
from simjax.models.flow.bodies.solids import Solid
from simjax.models.gas.boundaries import GasInflow
from simjax.ops.gas import GasScheme

MACH, CORNER, BEGIN = 2.0, 0.25, 0.15
"""Of the shock in a gas at rest, whose speed of sound is 1; where the wedge rises, and where the shock begins."""
PATHS = 0.1, 0.3
"""Angles, in radians, between which the path of the triple point above a wedge of 30 degrees is looked for."""
SCHEMES = {"mc": GasScheme("mc", "primitive"), "weno": GasScheme()}

# ---------------------------------------------------------------------- theory: Ben-Dor (2007), Shock Wave Reflection


def oblique(mach, angle):
    """Mach number behind a shock at this angle to the stream, the turn of the stream, and the ratio of pressures."""
    square = (mach * math.sin(angle)) ** 2
    turn = math.atan(2 / math.tan(angle) * (square - 1) / (mach**2 * (1.4 + math.cos(2 * angle)) + 2))
    behind = math.sqrt((1 + 0.2 * square) / (1.4 * square - 0.2)) / math.sin(angle - turn)
    return behind, turn, 1 + 2.8 / 2.4 * (square - 1)


def regular(wedge):
    """Pressure behind the reflected shock, and its angle to the wall: it turns the stream back along the wall."""
    behind, turn, first = oblique(MACH / math.cos(wedge), math.pi / 2 - wedge)
    angles = np.linspace(math.asin(1 / behind) + 1e-9, math.pi / 2, 2000)
    turns = [oblique(behind, angle)[1] for angle in angles]
    # The weaker one of the two that turn it so far.
    k = int(np.argmax(np.array(turns) > turn))
    angle = brentq(lambda angle: oblique(behind, angle)[1] - turn, angles[k - 1], angles[k])
    return first * oblique(behind, angle)[2], angle - turn


def triple_point(wedge):
    """The angle of its path to the wall: pressures and directions on both sides of the slip line are one, and the stem
    is straight and normal to the wall."""

    def fault(path):
        mach = MACH / math.cos(wedge + path)
        behind, first_turn, first = oblique(mach, math.pi / 2 - wedge - path)
        _, stem_turn, stem = oblique(mach, math.pi / 2 - path)
        normal = math.sqrt(1 + 2.4 / 2.8 * (stem / first - 1))
        return first_turn - oblique(behind, math.asin(normal / behind))[1] - stem_turn

    return brentq(fault, *PATHS)


# ---------------------------------------------------------------------- runs


def reflected(scheme, degrees, cells, end):
    """x, y, where the gas is, pressure, and the place of the incident shock."""
    angle, (density, pressure) = math.radians(degrees), jump(MACH)
    speed = MACH * (1 - 1 / density)
    wedge = Solid(lambda t, x, y: math.cos(angle) * y - math.sin(angle) * (x - CORNER))
    stream = GasInflow(density=1.4 * density, pressure=pressure, velocity=(speed, 0.0))
    model = gas(
        (5 * cells // 4, cells), [(stream, Outflow()), (SlipWall(), Outflow())], scheme, (0, 0), (1.25, 1), solid=wedge
    )
    x, y = centers(model)
    behind = x < BEGIN
    state = start(
        model,
        *(jnp.where(behind, a, b) for a, b in ((1.4 * density, 1.4),)),
        (jnp.where(behind, speed, 0), 0),
        jnp.where(behind, pressure, 1),
    )
    last = run(model, state, end, courant=0.5, most=20000, quick=False)
    x, y = (np.asarray(one).ravel() for one in (x, y))
    return (
        x,
        y,
        np.asarray(model.bodies.fluid(model.domain, float)),
        np.asarray(seen(model, last)[2]),
        BEGIN + MACH * end,
    )


def front(x, line, level):
    """The foremost place of this pressure on a line, from behind to before."""
    i = np.flatnonzero(line > level)[-1]
    return x[i] + (line[i] - level) / (line[i] - line[i + 1]) * (x[1] - x[0])
