"""Three-dimensional incompressible flow in a periodic box, as velocity in a Fourier basis."""

import jax.numpy as jnp
from jax import Array

from simjax.grid import AXES
from simjax.models.declaration import model
from simjax.models.flow.fourier.fourier_flow import VELOCITY, SpectralFlow, square_of
from simjax.models.fluid_outputs import vorticity_output
from simjax.models.spectral.base import precision_of
from simjax.ops.scaling import scaled, times_i
from simjax.schema.config_errors import raise_first

# Products u_i u_j whose transforms are needed: the pressure takes up what all three squares have in common.
_PAIRS = ((0, 1), (0, 2), (1, 2))


@model(
    "spectral_velocity",
    fields=(VELOCITY,),
    diagnosed=lambda ndim: ("vorticity_magnitude",),
    least_axes=3,
    most_axes=3,
)
class SpectralVelocity(SpectralFlow):
    """Three-dimensional Navier-Stokes: du/dt = -P div(u u) + nu lap(u) - eta (-lap)^p u - alpha u + P f, div(u) = 0.

    P = 1 - k k / k^2 projects on divergence-free fields; the rest as in `SpectralFlow`. Pseudo-spectral, 2/3
    dealiased, so that the truncated inviscid equation conserves energy. Eight real transforms: three of them
    inverse, five of the products of velocities less w^2 on the diagonal, which the pressure takes up (Orszag and
    Patterson 1972, Phys. Rev. Lett. 28, 76).

    Examples:
        >>> run = sj.configure(
        ...     sj.SpectralVelocity, grid={"shape": [16, 16, 16]}, physics={"viscosity": 1e-2},
        ...     initial={"velocity": ["sin(2*pi*y)", "sin(2*pi*z)", "sin(2*pi*x)"]},
        ...     time={"end": 0.1, "output_every": 0.1},
        ... )
    """

    fields = ("velocity",)
    units = "m s-1"

    def __check_init__(self):
        raise_first(
            SpectralVelocity.declarations["spectral_velocity"].axes_refusals("grid.shape", self.domain.grid.shape)
        )

    def symbol(self, k, params):
        return {"velocity": -self.decay(k, params)}

    def velocity(self, k, state):
        return state["velocity"]

    def nonlinear(self, t, k, state, params):
        u = tuple(self.to_grid(component) for component in state["velocity"])
        common = u[2] * u[2]
        flux = {pair: self.to_spectrum(u[pair[0]] * u[pair[1]]) for pair in _PAIRS}
        flux |= {(i, i): self.to_spectrum(u[i] * u[i] - common) for i in range(2)}
        slopes = []
        for i in range(3):
            terms = [scaled(k[j], flux[min(i, j), max(i, j)]) for j in range(3) if (i, j) != (2, 2)]
            slopes.append(times_i(jnp.full((), -1.0, k[0].dtype), sum(terms[1:], terms[0])))
        return {"velocity": project(k, tuple(slopes))}

    def explicit_rhs(self, t, state, params):
        dtype = precision_of(state)
        k = self.basis.wavenumbers(dtype)
        slopes = self.nonlinear(t, k, state, params)["velocity"]
        sources = self.sources(t, params, dtype)
        if sources:
            forces = project(k, tuple(sources.get(axis, jnp.zeros_like(slopes[0])) for axis in AXES))
            slopes = tuple(u + f for u, f in zip(slopes, forces, strict=True))
        return {"velocity": slopes}

    def perturb(self, step, t, dt, state, params):
        if self.band is None or params.injection is None:
            return state
        dtype = precision_of(state)
        size, noise = self.forcing_noise(step, dt, params, 3, dtype)
        # Two of three components survive the projection.
        noise = project(self.basis.wavenumbers(dtype), noise)
        added = (u + scaled(2**-0.5 * size, w) for u, w in zip(state["velocity"], noise, strict=True))
        return {"velocity": tuple(added)}

    def component_layouts(self):
        return {"velocity": self.velocity_layouts()}

    def state_from(self, fields, params):
        """The divergence-free part of a velocity, its mean included."""
        velocity = tuple(self.to_spectrum(u) for u in fields["velocity"])
        return {"velocity": project(self.basis.wavenumbers(precision_of(velocity)), velocity)}

    def fields_from(self, names, state, params):
        return {"velocity": tuple(self.to_grid(u) for u in state["velocity"])}

    @property
    def taken_through(self):
        return f"the projection on velocities without divergence and {super().taken_through}"

    def outputs(self):
        return (*self.velocity_outputs(), vorticity_output(3))

    def observe(self, t, state, params):
        (kx, ky, kz), (u, v, w) = self.basis.wavenumbers(precision_of(state)), state["velocity"]
        curl = (
            times_i(ky, w) - times_i(kz, v),
            times_i(kz, u) - times_i(kx, w),
            times_i(kx, v) - times_i(ky, u),
        )
        square = sum(self.to_grid(c) ** 2 for c in curl)
        # The derivative of a square root at zero is infinite.
        magnitude = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        return {f"velocity_{axis}": self.to_grid(c) for axis, c in zip(AXES, (u, v, w), strict=True)} | {
            "vorticity_magnitude": magnitude
        }


def project(k: tuple[Array, ...], u: tuple[Array, ...]) -> tuple[Array, ...]:
    """u - k (k . u) / k^2: the divergence-free part of a vector field, from its coefficients."""
    square = square_of(k)
    share = 1 / jnp.where(square == 0, 1, square)
    along = sum((scaled(v, c) for v, c in zip(k[1:], u[1:], strict=True)), scaled(k[0], u[0]))
    return tuple(c - scaled(v * share, along) for v, c in zip(k, u, strict=True))
