"""The nonlinear Schroedinger equation: a complex field, in a Fourier basis."""

import math
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.model import Measure, Output
from simjax.grid import AXES, CENTER
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import square_of
from simjax.models.spectral.base import SpectralModel, periodic_layout, precision_of
from simjax.notebook import all_in_a_line
from simjax.ops.scaling import scaled, times_i
from simjax.schema.kinds import Real, key
from simjax.schema.model_schema import FieldSchema
from simjax.solvers.fourier import FourierBasis


class Params(eqx.Module):
    """interaction g: below zero focusing, above zero defocusing. potential V: block field, or None where there is none.

    Both in units of hbar = m = 1.
    """

    interaction: Array
    potential: Array | None = None

    __repr__ = all_in_a_line


@model(
    "schroedinger",
    fields=(FieldSchema("real_part"), FieldSchema("imaginary_part")),
    diagnosed=lambda ndim: ("density",),
    coefficients=(FieldSchema("potential", optional=True),),
    forced=(),
)
class Schroedinger(SpectralModel):
    """Nonlinear Schroedinger (Gross-Pitaevskii): i dpsi/dt = -lap(psi) / 2 + (V + g |psi|^2) psi.

    psi wave function or envelope, V potential, g interaction, focusing if negative; in units of hbar = m = 1. With
    g < 0 and V = 0, A sech(A sqrt(-g) x) exp(-i g A^2 t / 2) is a soliton at rest in one dimension; in two and three
    dimensions, large masses collapse when g < 0. The potential is periodic like everything else: let psi vanish
    where it jumps. It is taken explicitly, so dt max|V| must stay below about two.

    Diagnostics: mass, the integral of |psi|^2; energy, of |grad psi|^2 / 2 + V |psi|^2 + g |psi|^4 / 2; momentum along
    each axis. The truncated equation conserves mass and energy, and momentum without V: only time steps change them.
    One inverse and one forward complex transform per stage; the nonlinearity is cubic, hence 1/2 of the wavenumbers
    are kept. Pitaevskii (1961), Sov. Phys. JETP 13, 451; Gross (1961), Nuovo Cimento 20, 454.

    Examples:
        >>> soliton = sj.configure(
        ...     sj.Schroedinger, grid={"shape": [128], "lower": [-10.0], "upper": [10.0]},
        ...     physics={"interaction": -1.0},
        ...     initial={"real_part": "1/cosh(x)", "imaginary_part": "0"},
        ...     time={"end": 0.1, "output_every": 0.1, "dt": 0.01},
        ... )
    """

    dimensionless = True
    fields = ("psi",)
    dealiasing = 1 / 2

    @dataclass(frozen=True)
    class Keys:
        interaction: float = key(Real(), -1.0, about="interaction g, below zero focusing")

    @classmethod
    def configured(cls, setup, **options):
        (potential,) = setup.coefficients.get("potential", (None,))
        model, params = super().configured(setup, **options)
        return model, Params(params["interaction"], potential)

    @property
    def basis(self) -> FourierBasis:
        return FourierBasis(self.domain, self.dealiasing, real=False)

    def symbol(self, k, params):
        square = square_of(k)
        return {"psi": lax.complex(jnp.zeros_like(square), -0.5 * square)}

    def nonlinear(self, t, k, state, params):
        psi = self.to_grid(state["psi"])
        return {"psi": self.to_spectrum(times_i(-self._energy(psi, params), psi))}

    def _energy(self, psi, params):
        """V + g |psi|^2."""
        interaction = params.interaction * density_of(psi)
        return interaction if params.potential is None else params.potential + interaction

    def partition_specs(self, state, params):
        states, others = super().partition_specs(state, params)
        if params.potential is not None:
            others = eqx.tree_at(lambda p: p.potential, others, self.domain.spec())
        return states, others

    def component_layouts(self):
        layout = periodic_layout(self.domain, self.units)
        return {"real_part": (layout,), "imaginary_part": (layout,)}

    def state_from(self, fields, params):
        return {"psi": self.to_spectrum(lax.complex(fields["real_part"][0], fields["imaginary_part"][0]))}

    def fields_from(self, names, state, params):
        psi = self.to_grid(state["psi"])
        return {"real_part": (psi.real,), "imaginary_part": (psi.imag,)}

    def outputs(self):
        offset = (CENTER,) * self.domain.grid.ndim
        return tuple(
            Output(name, offset, self.units, text)
            for name, text in (
                ("density", "density"),
                ("real_part", "real part of psi"),
                ("imaginary_part", "imaginary part of psi"),
            )
        )

    def observe(self, t, state, params):
        psi = self.to_grid(state["psi"])
        return {"density": density_of(psi), "real_part": psi.real, "imaginary_part": psi.imag}

    def diagnostics(self, t, state, params):
        spectrum, volume = state["psi"], math.prod(self.domain.grid.lengths)
        k = self.basis.wavenumbers(precision_of(state))
        density = density_of(self.to_grid(spectrum))
        # Means of products of four are exact: that many kept wavenumbers do not add up to n.
        potential = 0.5 * params.interaction * density
        potential = potential if params.potential is None else params.potential + potential
        kinetic = 0.5 * self.mean_product(spectrum, scaled(square_of(k), spectrum))
        momenta = {
            f"momentum_{axis}": volume * self.mean_product(spectrum, scaled(component, spectrum))
            for axis, component in zip(AXES, k, strict=False)
        }
        return {
            "mass": volume * self.mean_product(spectrum, spectrum),
            "energy": volume * (kinetic + self.domain.mean(potential * density)),
            **momenta,
        }

    def measures(self):
        momenta = {f"momentum_{axis}": Measure("1", f"{axis}-momentum") for axis in AXES}
        return {"mass": Measure("1", "mass"), "energy": Measure("1", "energy"), **momenta}


Schroedinger.Params = Params


def density_of(psi: Array) -> Array:
    """|psi|^2, without the root."""
    return psi.real * psi.real + psi.imag * psi.imag
