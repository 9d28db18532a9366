"""Two-dimensional incompressible flow in a periodic box, as vorticity in a Fourier basis."""

import jax.numpy as jnp
from jax import Array, lax

from simjax.grid import AXES
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import SpectralFlow, square_of
from simjax.models.fluid_outputs import vorticity_output
from simjax.models.spectral.base import precision_of
from simjax.ops.scaling import scaled, times_i
from simjax.schema.config_errors import raise_first
from simjax.schema.model_schema import FieldSchema


@model(
    "vorticity",
    fields=(
        FieldSchema("vorticity", units="s-1", default=None, optional=True),
        FieldSchema("velocity", vector=True, units="m s-1", default=None, optional=True),
    ),
    least_axes=2,
    most_axes=2,
)
class Vorticity(SpectralFlow):
    """Two-dimensional Navier-Stokes: dw/dt + (u . grad) w = nu lap(w) - eta (-lap)^p w - alpha w + curl(f), div(u) = 0.

    w = dv/dx - du/dy vorticity, (u, v) velocity; the rest as in `SpectralFlow`. Pseudo-spectral, 2/3 dealiased, so
    that the truncated inviscid equation conserves energy and enstrophy. Advection is
    (dyy - dxx)(u v) + dxy(u^2 - v^2) (Basdevant 1983, J. Comput. Phys. 50, 209): four real transforms, two of
    them inverse.

    The coefficient of k = 0, which the vorticity of a periodic flow does not have, holds the mean velocity
    (U, V) as U + i V: it advects, and obeys dU/dt = -alpha U + mean of f.

    Examples:
        >>> run = sj.configure(
        ...     sj.Vorticity, grid={"shape": [32, 32]}, physics={"viscosity": 1e-3},
        ...     initial={"vorticity": "sin(2*pi*x)*sin(2*pi*y)"}, time={"end": 0.1, "output_every": 0.1},
        ... )
    """

    fields = ("vorticity",)
    units = "s-1"

    def __check_init__(self):
        raise_first(Vorticity.declarations["vorticity"].axes_refusals("grid.shape", self.domain.grid.shape))

    def symbol(self, k, params):
        return {"vorticity": -self.decay(k, params)}

    def velocity(self, k, state):
        """i (k_y, -k_x) w / k^2, and the mean where k = 0."""
        (kx, ky), vorticity = k, state["vorticity"]
        square = square_of(k)
        mean = square == 0
        stream = jnp.where(mean, 0, 1 / jnp.where(mean, 1, square))
        u, v = times_i(ky * stream, vorticity), times_i(-kx * stream, vorticity)
        # Written on real and imaginary parts, which fuse into one pass.
        return (
            lax.complex(jnp.where(mean, vorticity.real, u.real), u.imag),
            lax.complex(jnp.where(mean, vorticity.imag, v.real), v.imag),
        )

    def nonlinear(self, t, k, state, params):
        kx, ky = k
        u, v = (self.to_grid(component) for component in self.velocity(k, state))
        shear, strain = self.to_spectrum(u * v), self.to_spectrum(u * u - v * v)
        return {"vorticity": scaled(kx * kx - ky * ky, shear) - scaled(kx * ky, strain)}

    def explicit_rhs(self, t, state, params):
        dtype = precision_of(state)
        k = self.basis.wavenumbers(dtype)
        slope = self.nonlinear(t, k, state, params)["vorticity"]
        for axis, force in self.sources(t, params, dtype).items():
            slope = slope + _curl(k, AXES.index(axis), force)
        return {"vorticity": slope}

    def perturb(self, step, t, dt, state, params):
        if self.band is None or params.injection is None:
            return state
        vorticity = state["vorticity"]
        size, (noise,) = self.forcing_noise(step, dt, params, 1, precision_of(state))
        # |w_k| = k |u_k|
        k = jnp.sqrt(jnp.maximum(square_of(self.basis.wavenumbers(size.dtype)), jnp.finfo(size.dtype).tiny))
        return {"vorticity": vorticity + scaled(size * k, noise)}

    def component_layouts(self):
        return super().component_layouts() | {"velocity": self.velocity_layouts()}

    def state_from(self, fields, params):
        """From the vorticity, from a velocity (its curl and its mean), or from the sum of both."""
        state = super().state_from(fields, params) if "vorticity" in fields else None
        if "velocity" not in fields:
            assert state is not None
            # A vorticity has no mean; what rounding leaves would be taken for a mean velocity.
            return {"vorticity": self._without_mean(state["vorticity"])}
        velocity = [self.to_spectrum(u) for u in fields["velocity"]]
        k = self.basis.wavenumbers(velocity[0].real.dtype)
        vorticity = _curl(k, 0, velocity[0]) + _curl(k, 1, velocity[1])
        return {"vorticity": vorticity if state is None else vorticity + self._without_mean(state["vorticity"])}

    def fields_from(self, names, state, params):
        """The vorticity, or the velocity; of both together no way leads back."""
        if {"vorticity", "velocity"} <= {*names}:
            return {}
        k = self.basis.wavenumbers(precision_of(state))
        vorticity = self.to_grid(self._without_mean(state["vorticity"]))
        return {"vorticity": (vorticity,), "velocity": tuple(self.to_grid(u) for u in self.velocity(k, state))}

    @property
    def taken_through(self):
        """The words for it: a vorticity has no mean, and a velocity no divergence."""
        return f"what a periodic flow without divergence can have, and {super().taken_through}"

    def _without_mean(self, vorticity: Array) -> Array:
        return jnp.where(square_of(self.basis.indices()) == 0, 0, vorticity)

    def outputs(self):
        return (vorticity_output(2), *self.velocity_outputs())

    def observe(self, t, state, params):
        k = self.basis.wavenumbers(precision_of(state))
        velocity = {f"velocity_{AXES[i]}": self.to_grid(u) for i, u in enumerate(self.velocity(k, state))}
        return {"vorticity": self.to_grid(self._without_mean(state["vorticity"])), **velocity}


def _curl(k: tuple[Array, ...], axis: int, u: Array) -> Array:
    """Coefficients of the curl of a vector field with the one component `u` along `axis`, its mean where k = 0."""
    nought = jnp.zeros_like(u.real)
    mean = lax.complex(u.real, nought) if axis == 0 else lax.complex(nought, u.real)
    return jnp.where(square_of(k) == 0, mean, times_i(-k[1] if axis == 0 else k[0], u))
