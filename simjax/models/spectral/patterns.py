"""Equations that make patterns of a wavelength of their own: Swift-Hohenberg, Gray-Scott; in a Fourier basis.

Nonlinearities are cubic, hence 1/2 of the wavenumbers are kept.
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax

from simjax.core.model import Measure
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import square_of
from simjax.models.spectral.base import SpectralModel
from simjax.ops.scaling import scaled
from simjax.schema.kinds import Real, key


@model("swift_hohenberg")
class SwiftHohenberg(SpectralModel):
    """Swift-Hohenberg: du/dt = r u - (q^2 + lap)^2 u + g u^2 - u^3, stripes and hexagons as in convection.

    u amplitude, r `growth` of waves of the `wavenumber` q, g `asymmetry`, which favours hexagons; dimensionless.
    Waves grow at the rate r - (q^2 - k^2)^2. Diagnostics: free_energy, which never grows, the integral of
    ((q^2 + lap) u)^2 / 2 - r u^2 / 2 - g u^3 / 3 + u^4 / 4. One inverse and one forward transform per stage.
    Swift and Hohenberg (1977), Phys. Rev. A 15, 319; Cross and Hohenberg (1993), Rev. Mod. Phys. 65, 851.

    Examples:
        >>> model = sj.SwiftHohenberg(sj.Domain(sj.Grid((32, 32), upper=(20.0, 20.0))))
    """

    dimensionless = True
    dealiasing = 1 / 2

    @dataclass(frozen=True)
    class Keys:
        growth: float = key(Real(), 0.2, about="growth r of waves of the wavenumber q")
        wavenumber: float = key(Real(low=0.0), 1.0, about="wavenumber q")
        asymmetry: float = key(Real(), 0.0, about="asymmetry g")

    def symbol(self, k, params):
        return {"u": params["growth"] - (params["wavenumber"] ** 2 - square_of(k)) ** 2}

    def nonlinear(self, t, k, state, params):
        u = self.to_grid(state["u"])
        return {"u": self.to_spectrum(u * u * (params["asymmetry"] - u))}

    def diagnostics(self, t, state, params):
        spectrum, volume = state["u"], math.prod(self.domain.grid.lengths)
        u = self.to_grid(spectrum)
        rate = self.symbol(self.basis.wavenumbers(u.dtype), params)["u"]
        # Exact: four kept wavenumbers do not add up to n.
        powers = self.domain.mean(u * u * u * (0.25 * u - params["asymmetry"] / 3))
        linear = -0.5 * self.mean_product(spectrum, scaled(rate, spectrum))
        return {"free_energy": volume * (powers + linear), **super().diagnostics(t, state, params)}

    def measures(self):
        return {"free_energy": Measure("1", "free energy"), **super().measures()}


@model("gray_scott")
class GrayScott(SpectralModel):
    """Gray-Scott: du/dt = D_u lap(u) - u v^2 + F (1 - u), dv/dt = D_v lap(v) + u v^2 - (F + K) v.

    u fuel, v catalyst of the reaction U + 2 V -> 3 V, concentrations of order one; D_u, D_v diffusivities (m2 s-1), F
    `feed` and K `kill` rates (s-1). Spots that divide, worms, spirals and Turing patterns, by F and K. Two inverse
    transforms per stage and one forward, of u v^2. Pearson (1993), Science 261, 189.

    Examples:
        >>> sj.GrayScott(sj.Domain(sj.Grid((32, 32)))).fields
        ('u', 'v')
    """

    fields = ("u", "v")
    dealiasing = 1 / 2

    @dataclass(frozen=True)
    class Keys:
        diffusivity_u: float = key(Real(low=0.0), 2e-5, units="m2 s-1", about="diffusivity D_u of the fuel")
        diffusivity_v: float = key(Real(low=0.0), 1e-5, units="m2 s-1", about="diffusivity D_v of the catalyst")
        feed: float = key(Real(low=0.0), 0.04, units="s-1", about="feed F")
        kill: float = key(Real(low=0.0), 0.06, units="s-1", about="kill K")

    def symbol(self, k, params):
        square, feed = square_of(k), params["feed"]
        return {
            "u": -params["diffusivity_u"] * square - feed,
            "v": -params["diffusivity_v"] * square - (feed + params["kill"]),
        }

    def nonlinear(self, t, k, state, params):
        u, v = self.to_grid(state["u"]), self.to_grid(state["v"])
        reaction = self.to_spectrum(u * v * v)
        supply = jnp.where(square_of(k) == 0, params["feed"], 0)
        return {"u": lax.complex(supply - reaction.real, -reaction.imag), "v": reaction}
