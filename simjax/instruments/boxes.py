"""The instrument that reads means over a box."""

from dataclasses import dataclass

from simjax.instruments.instrument import Layout
from simjax.instruments.operators import BoxAverage
from simjax.schema.instrument_declarations import instrument
from simjax.schema.kinds import key
from simjax.schema.site import Point, Refusal


@instrument("box_mean")
class BoxMean(BoxAverage):
    """The mean of a field over one box; see `BoxAverage`."""

    @dataclass(frozen=True)
    class Keys:
        """Corners of the box."""

        lower: tuple[float, ...] = key(Point(), units="m", about="lower corner")
        upper: tuple[float, ...] = key(Point(), units="m", about="upper corner")

    at_given_places = True

    def read(self, view):
        return super().read(view)[0]

    def shape(self, grid):
        return ()

    def layout(self, source, output, grid, units):
        about = {"cell_methods": "area: mean", "box_lower": self.lowers[0], "box_upper": self.uppers[0]}
        return Layout(attributes=about)

    @classmethod
    def refusals(cls, of, given, site):
        lower, upper = given["lower"], given["upper"]
        if not all(a < b for a, b in zip(lower, upper, strict=True)):
            yield Refusal("upper", f"a point above lower={list(lower)} on each axis", list(upper))

    @classmethod
    def made(cls, source, run):
        box = (source.given["lower"],), (source.given["upper"],)
        return {one.name: (cls(one.name, *box), one) for one in cls.seen(source, run)}
