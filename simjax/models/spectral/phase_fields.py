"""Phase fields: two phases, +1 and -1, with an interface of finite thickness; periodic, in a Fourier basis.

Both equations descend in the free energy F = integral of (u^2 - 1)^2 / 4 + epsilon^2 |grad u|^2 / 2. They are
divided so that the linear part is that of the pure phases, where (u^3 - u)' = 2, and the rest, u^3 - 3 u, is flat
there: steps are then limited by interfaces that move, not by the stiffness of phases at rest (Eyre 1998, MRS Proc.
529, 39, on such divisions). The nonlinearity is cubic, hence 1/2 of the wavenumbers are kept; one inverse and one
forward transform per stage.
"""

import math
from dataclasses import dataclass

from simjax.core.model import Measure
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import square_of
from simjax.models.measures import length_power
from simjax.models.spectral.base import SpectralModel
from simjax.ops.scaling import scaled
from simjax.schema.kinds import Real, key


class _PhaseField(SpectralModel):
    """A phase field u that descends in F."""

    dealiasing = 1 / 2

    def free_energy(self, state, params):
        """Free energy F per volume."""
        u = state["u"]
        k2 = square_of(self.basis.wavenumbers(u.real.dtype))
        # Exact: four kept wavenumbers do not add up to n.
        wells = self.domain.mean((self.to_grid(u) ** 2 - 1) ** 2)
        return 0.25 * wells + 0.5 * params["epsilon"] ** 2 * self.mean_product(u, scaled(k2, u))

    def diagnostics(self, t, state, params):
        volume = math.prod(self.domain.grid.lengths)
        return {"free_energy": volume * self.free_energy(state, params), "mean_u": self.mean(state["u"])}

    def measures(self):
        free = Measure(length_power(self.domain.grid.ndim), "free energy")
        return {"free_energy": free, "mean_u": Measure("1", "mean of u")}

    def _excess(self, state):
        """Coefficients of u^3 - 3 u."""
        u = self.to_grid(state["u"])
        return self.to_spectrum(u * (u * u - 3))


@model("allen_cahn")
class AllenCahn(_PhaseField):
    """Allen-Cahn: du/dt = M (epsilon^2 lap(u) + u - u^3), phases whose interfaces shrink.

    u order parameter, between -1 and 1 if it is so at the start; M mobility (s-1); epsilon (m): a flat interface is
    tanh(x / (sqrt(2) epsilon)), a curved one moves at M epsilon^2 times its curvature, so the area inside a circle
    shrinks at 2 pi M epsilon^2. Allen and Cahn (1979), Acta Metall. 27, 1085.

    Examples:
        >>> model = sj.AllenCahn(sj.Domain(sj.Grid((32, 32))))
    """

    @dataclass(frozen=True)
    class Keys:
        mobility: float = key(Real(low=0.0), 1.0, units="s-1", about="mobility M")
        epsilon: float = key(Real(above=0.0), 0.01, units="m", about="thickness epsilon of interfaces")

    def symbol(self, k, params):
        return {"u": -params["mobility"] * (2 + params["epsilon"] ** 2 * square_of(k))}

    def nonlinear(self, t, k, state, params):
        return {"u": scaled(-params["mobility"], self._excess(state))}


@model("cahn_hilliard")
class CahnHilliard(_PhaseField):
    """Cahn-Hilliard: du/dt = M lap(u^3 - u - epsilon^2 lap(u)), two phases that separate and coarsen.

    u concentration, -1 and 1 in the pure phases; its mean is conserved to the last bit. M mobility (m2 s-1), epsilon
    (m) about the thickness of an interface. Cahn and Hilliard (1958), J. Chem. Phys. 28, 258.

    Examples:
        >>> model = sj.CahnHilliard(sj.Domain(sj.Grid((32, 32))))
    """

    @dataclass(frozen=True)
    class Keys:
        mobility: float = key(Real(low=0.0), 1.0, units="m2 s-1", about="mobility M")
        epsilon: float = key(Real(above=0.0), 0.01, units="m", about="thickness epsilon of interfaces")

    def symbol(self, k, params):
        square = square_of(k)
        return {"u": -params["mobility"] * square * (2 + params["epsilon"] ** 2 * square)}

    def nonlinear(self, t, k, state, params):
        return {"u": scaled(-params["mobility"] * square_of(k), self._excess(state))}
