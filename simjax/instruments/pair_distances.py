"""The instrument that reads how particles are distributed around each other."""

from dataclasses import dataclass

import equinox as eqx
import numpy as np

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.instruments.instrument import Coordinate, Instrument, Layout
from simjax.particles.radial_distribution import smooth_radial_distribution
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import ListOf, Real, key
from simjax.schema.model_schema import PARTICLES
from simjax.schema.site import Refusal

MOST_RADII = 1000
RADIUS = "radius"


@instrument("radial_distribution", family=PARTICLES)
class RadialDistribution(Instrument):
    """g at `radii`, each a mean over distances nearer than `width` to it; see `smooth_radial_distribution`."""

    radii: tuple[float, ...] = eqx.field(static=True)
    width: float = eqx.field(static=True)
    variable: str = eqx.field(static=True, default="radial_distribution")

    @dataclass(frozen=True)
    class Keys:
        """The distances."""

        radii: tuple[float, ...] = key(ListOf(Real(above=0.0), 1, MOST_RADII, noun="distances"), about="distances")
        width: float = key(Real(above=0.0), about="half the range of distances that counts for each")

    at_kind = "radii"
    of_fields = False

    def read(self, view):
        assert view.cells is not None
        return smooth_radial_distribution(view.cells, view.particles, np.asarray(self.radii), self.width)

    def check(self, grid):
        reach, length = max(self.radii) + self.width, min(grid.spacing)
        if reach > length * (1 + 1e-12):
            raise ConfigurationError(
                f"radial_distribution reaches to {reach:g}, its largest distance and width: expected at most "
                f"{length:g}, the length of a cell, which follows from the cutoff and the skin; observe smaller "
                "distances, or write a larger skin."
            )

    def shape(self, grid):
        return (len(self.radii),)

    def layout(self, source, output, grid, units):
        about = {"long_name": "distance between particles", "units": units}
        return Layout((RADIUS,), (Coordinate(RADIUS, (RADIUS,), np.asarray(self.radii), about),))

    @classmethod
    def refusals(cls, of, given, site):
        near = [r for r in given["radii"] if r < given["width"]]
        if near:
            yield Refusal("radii", f"distances of at least width={given['width']:g}", near[0])
        if site.periodic is not None and not all(site.periodic):
            yield Refusal("radii", "a box that is periodic along every axis; observe positions")

    @classmethod
    def readings(cls, source, written):
        return {"radial_distribution": ()}

    @classmethod
    def made(cls, source, run):
        operator = cls(**source.given)
        about = "pairs at a distance, over those of independent particles"
        return {operator.variable: (operator, Output(operator.variable, (), "1", about))}
