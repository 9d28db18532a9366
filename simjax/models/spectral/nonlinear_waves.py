"""Model equations of nonlinear waves, each with advection of a scalar by itself: Burgers, Korteweg-de Vries,
Kuramoto-Sivashinsky; periodic, in a Fourier basis, with two real transforms per stage in one dimension.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from simjax.core.boundary import Side
from simjax.core.domain import Domain
from simjax.core.model import Measure
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import square_of
from simjax.models.spectral.base import Force, SpectralModel
from simjax.ops.scaling import scaled
from simjax.schema.config_errors import raise_first
from simjax.schema.kinds import Choice, Real, key


@model("viscous_burgers")
class ViscousBurgers(SpectralModel):
    """Viscous Burgers: du/dt = -u du/dx + nu d2u/dx2, waves that steepen until viscosity holds them.

    u speed of the wave (m s-1), nu viscosity (m2 s-1), x in m; in d dimensions u sum_i du/dx_i and nu lap(u), so that
    u also is carried along the diagonal of the box. The mean is conserved; its transforms per stage are one inverse,
    one forward. 2/3 dealiased. Whitham (1974), Linear and Nonlinear Waves, chapter 4.

    Examples:
        >>> model = sj.ViscousBurgers(sj.Domain(sj.Grid((64,))))
    """

    units = "m s-1"

    @dataclass(frozen=True)
    class Keys:
        viscosity: float = key(Real(low=0.0), 0.01, units="m2 s-1", about="viscosity nu")

    def symbol(self, k, params):
        return {"u": -params["viscosity"] * square_of(k)}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.derivative(-0.5 * sum(k[1:], k[0]), self.to_spectrum(u * u))}


@model("korteweg_de_vries")
class KortewegDeVries(SpectralModel):
    """Korteweg-de Vries: du/dt = -alpha u du/dx - beta d3u/dx3, solitons that pass through each other.

    u elevation, alpha `nonlinearity`, beta `dispersion`; dimensionless, 6 and 1 in the usual scaling, where
    2 kappa^2 / cosh^2(kappa (x - 4 kappa^2 t)) is a soliton. In two and three dimensions the dispersion is
    beta d(lap u)/dx, the equation of Zakharov and Kuznetsov (1974), Sov. Phys. JETP 39, 285.

    Diagnostics: mass, the integral of u; momentum, of u^2 / 2; energy, of beta |grad u|^2 / 2 - alpha u^3 / 6. The
    truncated equation conserves all three, so that only the time steps change them. One inverse and one forward
    transform per stage, 2/3 dealiased. Zabusky and Kruskal (1965), Phys. Rev. Lett. 15, 240.

    Examples:
        >>> wave = sj.configure(
        ...     sj.KortewegDeVries, grid={"shape": [128], "lower": [-10.0], "upper": [10.0]},
        ...     initial={"u": "2/cosh(x)**2"}, time={"end": 0.1, "output_every": 0.1, "dt": 0.001},
        ... )
    """

    dimensionless = True

    @dataclass(frozen=True)
    class Keys:
        nonlinearity: float = key(Real(), 6.0, about="nonlinearity alpha")
        dispersion: float = key(Real(), 1.0, about="dispersion beta")

    def symbol(self, k, params):
        dispersion = params["dispersion"] * k[0] * square_of(k)
        return {"u": lax.complex(jnp.zeros_like(dispersion), dispersion)}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.derivative(-0.5 * params["nonlinearity"] * k[0], self.to_spectrum(u * u))}

    def diagnostics(self, t, state, params):
        u, volume = state["u"], math.prod(self.domain.grid.lengths)
        k2 = square_of(self.basis.wavenumbers(u.real.dtype))
        # The mean of a cube over the grid is exact as well: three kept wavenumbers do not add up to n.
        cube = self.domain.mean(self.to_grid(u) ** 3)
        gradient = self.mean_product(u, scaled(k2, u))
        return {
            "mass": volume * self.mean(u),
            "momentum": 0.5 * volume * self.mean_product(u, u),
            "energy": volume * (0.5 * params["dispersion"] * gradient - params["nonlinearity"] / 6 * cube),
        }

    def measures(self):
        return {name: Measure("1", name) for name in ("mass", "momentum", "energy")}


def _refusals(integral: bool, shape: Sequence[int]) -> Iterator[tuple[str, str]]:
    """A sentence on the slope of a front in several dimensions, with its key path."""
    if not integral and len(shape) > 1:
        yield (
            "physics.form",
            f"physics.form = slope: expected height for grid.shape={list(shape)}, as a slope has a component per axis; "
            "write physics.form=height, in Python integral=True",
        )


@model("kuramoto_sivashinsky", check=lambda config: _refusals(config.physics.form == "height", config.grid.shape))
class KuramotoSivashinsky(SpectralModel):
    """Kuramoto-Sivashinsky: du/dt = -u du/dx - a d2u/dx2 - b d4u/dx4, chaos fed by a band of growing waves.

    u slope (or speed) of a flame front or a film, a `instability`, b `damping`; dimensionless, both one in the usual
    scaling. Waves grow at the rate a k^2 - b k^4. With `integral`, in any dimension, for the front's height h whose
    slope is u: dh/dt = -|grad h|^2 / 2 - a lap(h) - b lap(lap(h)); its mean falls steadily.

    One inverse transform per stage, or one per axis in integral form, and one forward; 2/3 dealiased.
    Kuramoto and Tsuzuki (1976), Prog. Theor. Phys. 55, 356; Sivashinsky (1977), Acta Astronaut. 4, 1177.

    Examples:
        >>> front = sj.KuramotoSivashinsky(sj.Domain(sj.Grid((32, 32))), integral=True)
    """

    dimensionless = True

    @dataclass(frozen=True)
    class Keys:
        instability: float = key(Real(), 1.0, about="instability a")
        damping: float = key(Real(above=0.0), 1.0, about="damping b")
        form: str = key(Choice(("slope", "height")), "slope", about="what u is: slope of the front, or its height")

    domain: Domain
    forces: dict[str, Force]
    integral: bool = eqx.field(static=True)

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]] | None = None,
        forces: Mapping[str, Force | None] | None = None,
        *,
        integral: bool = False,
    ):
        super().__init__(domain, sides, forces)
        raise_first(_refusals(integral, domain.grid.shape))
        self.integral = integral

    @classmethod
    def configured(cls, setup, **options):
        return super().configured(setup, integral=setup.keys.form == "height", **options)

    def symbol(self, k, params):
        square = square_of(k)
        return {"u": square * (params["instability"] - params["damping"] * square)}

    def nonlinear(self, t, k, state, params):
        if not self.integral:
            u = self.to_grid(state["u"])
            return {"u": self.derivative(-0.5 * k[0], self.to_spectrum(u * u))}
        slopes = tuple(self.to_grid(self.derivative(component, state["u"])) for component in k)
        return {"u": -0.5 * self.to_spectrum(square_of(slopes))}
