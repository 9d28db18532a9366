"""Checks of a number that a model records: those of `Measure.check`, which `driver.output.run_checks` makes.

Each bound is what the steps, the scheme and the precision may do to a run that is right.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Conserved:
    """A number that stays as it is: it changes by the roundings of the steps, which add up as a random walk.

    measured_by: names of the numbers by the largest size of which its rounding is measured, such as the minimum and the
    maximum of the field that it is the mean of; none: it is measured by itself.

    Examples:
        >>> sj.Measure("kg", "mass of the water", check=sj.Conserved()).check.measured_by
        ()
    """

    measured_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Falling:
    """A number that never rises: from frame to frame it may by roundings and by the error of the steps.

    rate: name of a number that is the mean of half the square of a rate, such as the enstrophy, by which the error of
    the steps is measured; "": it has none.

    Examples:
        >>> sj.Measure("J", "free energy", check=sj.Falling()).check.rate
        ''
    """

    rate: str = ""


@dataclass(frozen=True)
class SmallDrift:
    """A number of particles whose drift, the slope of a line through all frames, is a small share of another.

    share_of: name of that other one, a kinetic energy. The progress line shows the drift in the place of the number.
    """

    share_of: str


@dataclass(frozen=True)
class PairMomentum:
    """A component of a momentum that forces between pairs leave as it is to rounding.

    kinetic_energy, energy: names of the numbers by which the momentum of all particles without its signs is measured.
    """

    kinetic_energy: str
    energy: str


MeasureCheck = Conserved | Falling | SmallDrift | PairMomentum
