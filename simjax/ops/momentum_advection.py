"""Schemes by which an incompressible flow carries its own momentum on the staggered grid, valid mode.

All are conservative: what leaves the cell of a component enters the next one. Those of `ops.staggered` go with the
divergence of second order, as do the upwind ones; the central one of fourth order goes with that of fourth order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jax import Array
from jaxtyping import Float

from simjax.ops import staggered
from simjax.ops.difference import shift, shift_by
from simjax.ops.scalar_fluxes import carried
from simjax.ops.spacing import Spacing


@dataclass(frozen=True)
class MomentumScheme:
    """A scheme of `SCHEMES`.

    width: ghost cells needed. order: of divergence, gradient and viscous term that it goes with. steepest: the largest
    value over all waves of h |symbol| of its derivative, by which the time step shrinks. weights: of the cells, in the
    order of the flow, around the one before a face, in what an upwind scheme carries through this.
    """

    width: int = 1
    order: int = 2
    steepest: float = 1.0
    weights: tuple[float, ...] = ()


SCHEMES: dict[str, MomentumScheme] = {
    "central2": MomentumScheme(),
    "central4": MomentumScheme(3, 4, 7 / 6),
    "upwind3": MomentumScheme(2, steepest=1.5, weights=(-1 / 6, 5 / 6, 2 / 6)),
    "upwind5": MomentumScheme(3, steepest=1.63, weights=(2 / 60, -13 / 60, 47 / 60, 27 / 60, -3 / 60)),
}
"""central2, central4: without a change of energy; upwind3, upwind5: smooth what is not resolved, by differences of
fourth and sixth order (Leonard 1979, Comput. Methods Appl. Mech. Eng. 19, 59)."""

BETWEEN = (-1 / 16, 9 / 16, 9 / 16, -1 / 16)
SPANS = ((1, 9 / 8), (3, -1 / 8))
"""Differences over one and three cells, with the weights that make their sum one of fourth order."""


def advection(
    velocity: Sequence[Float[Array, "..."]],
    component: int,
    spacing: Sequence[Spacing],
    scheme: MomentumScheme,
    taper: Array | None = None,
) -> Float[Array, "..."]:
    """Divergence of momentum flux, sum over j of d(u_j u_i)/dx_j, on the faces of component i.

    velocity: padded by `scheme.width`. spacing, taper: padded by one, as `ops.staggered.advection` has them.
    """
    if scheme.order == 4:
        return _fourth_order(velocity, component, spacing)
    ndim, cut = len(spacing), scheme.width - 1
    near = [shift(u, ndim, width=cut) for u in velocity] if cut else velocity
    if not scheme.weights:
        return staggered.advection(near, component, spacing, taper)

    def carrying(axis: int, by: tuple[Array, Array]) -> tuple[Array, Array]:
        u = velocity[component]
        ahead, behind = (_upwind(u, axis, ndim, scheme, first, speed) for first, speed in zip((0, -1), by, strict=True))
        return ahead, behind

    return staggered.advection(near, component, spacing, taper, carrying)


def _upwind(u: Array, axis: int, ndim: int, scheme: MomentumScheme, first: int, by: Array) -> Array:
    """Flux of twice u through the faces between the cells i + first and i + first + 1, by what it passes them with.

    The weights are those of cell averages, so that differences of what a uniform stream carries are derivatives of
    their order.
    """
    back = len(scheme.weights) // 2

    def value(place: Callable[[int], int]) -> Array:
        terms = [2 * w * shift(u, ndim, axis, place(k - back), scheme.width) for k, w in enumerate(scheme.weights)]
        return sum(terms[1:], terms[0])

    return carried(value(lambda k: first + k), value(lambda k: first + 1 - k), by)


def _fourth_order(velocity: Sequence[Array], component: int, spacing: Sequence[Spacing]) -> Array:
    """The divergence form of fourth order of Morinishi, Lund, Vasilyev and Moin (1998), J. Comput. Phys. 143, 90.

    The sum of differences over one and over three cells of fluxes, each of the plain mean of the two values at its ends
    carried by the velocity between them, of fourth order. So the product with u_i is half of u_i^2 times the divergence
    of fourth order, which vanishes.
    """
    ndim, u, terms = len(spacing), velocity[component], []
    for axis, h in enumerate(spacing):

        def by(faces: int, axis: int = axis) -> Array:
            """The transporting velocity on the cell's face `faces` further along the axis."""
            places = ([faces * (k == axis) + (m - 2) * (k == component) for k in range(ndim)] for m in range(4))
            parts = [w * shift_by(velocity[axis], place, 3) for w, place in zip(BETWEEN, places, strict=True)]
            return sum(parts[1:], parts[0])

        for span, weight in SPANS:
            center, half = shift(u, ndim, width=3), span // 2
            above = (center + shift(u, ndim, axis, span, 3)) * by(1 + half)
            below = (center + shift(u, ndim, axis, -span, 3)) * by(-half)
            terms.append((above - below) * (0.5 * weight / (span * h)))
    return sum(terms[1:], terms[0])
