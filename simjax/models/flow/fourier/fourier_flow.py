"""A base of incompressible flows in a Fourier basis, in whatever unknown they are written."""

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_at_least
from simjax.core.boundary import Side
from simjax.core.domain import Domain
from simjax.core.model import Measure, Output
from simjax.grid import AXES, CENTER
from simjax.models.flow.choices import forces_by_axis
from simjax.models.flow.fourier.random_forcing import Band
from simjax.models.fluid_outputs import velocity_outputs
from simjax.models.sides import require_domain
from simjax.models.spectral.base import Force, SpectralModel, periodic_layout, precision_of
from simjax.notebook import all_in_a_line
from simjax.schema.kinds import Integer, ListOf, Real, key
from simjax.schema.model_schema import FieldSchema


class Params(eqx.Module):
    """viscosity nu: length^2 / time. drag alpha: 1 / time. hyperviscosity eta: length^(2p) / time, None without it.

    injection: mean rate at which random forcing feeds kinetic energy, length^2 / time^3, None without it. seed: of
    the random forcing, a whole number; None is zero.
    """

    viscosity: Array
    drag: Array
    hyperviscosity: Array | None = None
    injection: Array | None = None
    seed: Array | None = None

    __repr__ = all_in_a_line

    def __check_init__(self):
        names = ("viscosity", "drag", "hyperviscosity", "injection")
        require_at_least("Params", {name: getattr(self, name) for name in names})


def check_forcing(config: Any) -> Iterable[tuple[str, str]]:
    """Sentences about initial fields and random forcing that do not go together."""
    physics = config.physics
    if not config.initial:
        yield "initial", f"initial is empty: model={config.model} needs initial.velocity or initial.vorticity"
    varied = {variation.path for variation in config.ensemble.vary}
    if physics.forcing_band is None and (physics.injection > 0 or "physics.injection" in varied):
        yield (
            "physics.forcing_band",
            f"physics.injection = {physics.injection:g} but physics.forcing_band is missing: expected the lowest and "
            "highest wavenumber that random forcing feeds, such as [3, 5]",
        )
    if physics.forcing_band is not None and physics.forcing_band[0] > physics.forcing_band[1]:
        yield "physics.forcing_band", f"physics.forcing_band = {list(physics.forcing_band)}: expected [lowest, highest]"
    if physics.forcing_seed != int(physics.forcing_seed):
        yield "physics.forcing_seed", f"physics.forcing_seed = {physics.forcing_seed:g}: expected a whole number"


def falling_energy(config: Any) -> tuple[tuple[str, str], ...]:
    """Energy only falls where nothing feeds it; without viscosity its changes are those of the time steps."""
    fed = config.forcing or config.physics.forcing_band is not None
    return (("kinetic_energy", "enstrophy"),) if not fed and config.physics.viscosity > 0 else ()


VELOCITY = FieldSchema("velocity", vector=True, units="m s-1", default=None)


class SpectralFlow(SpectralModel):
    """du/dt + (u . grad) u = -grad(p) + nu lap(u) - eta (-lap)^p u - alpha u + f, div(u) = 0, in a periodic box.

    nu viscosity, eta hyperviscosity of `order` p, alpha linear drag, f body force per unit mass: one of `forces` per
    component. `band` are the wavenumbers of the random forcing: isotropic, white in time, independent of the flow, so
    that the energy it feeds per time is `Params.injection` in the mean.
    """

    @dataclass(frozen=True)
    class Keys:
        viscosity: float = key(Real(low=0.0), units="m2 s-1", about="kinematic viscosity nu")
        drag: float = key(Real(low=0.0), 0.0, units="s-1", about="linear drag alpha")
        hyperviscosity: float = key(Real(low=0.0), 0.0, about="hyperviscosity eta, in m^(2 order) s-1")
        hyperviscosity_order: int = key(Integer(2, 16), 2, about="power of the Laplacian that eta multiplies")
        injection: float = key(Real(low=0.0), 0.0, units="m2 s-3", about="energy per time from random forcing")
        forcing_band: tuple[float, float] | None = key(
            ListOf(Real(above=0.0), 2, 2, optional=True, noun="wavenumbers"),
            None,
            units="m-1",
            about="lowest and highest wavenumber, radians per length, of the random forcing",
        )
        forcing_seed: float = key(Real(low=0.0), 0.0, about="seed of the random forcing, a whole number")

    domain: Domain
    forces: dict[str, Force]
    order: int = eqx.field(static=True)
    band: Band | None

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]] | None = None,
        forces: Sequence[Force | None] | None = None,
        *,
        order: int = 2,
        band: Band | None = None,
    ):
        name = type(self).__name__
        require_domain(name, domain)
        parts = forces_by_axis(name, forces, domain.grid.ndim) if forces else ()
        super().__init__(domain, sides, dict(zip(AXES, parts, strict=False)))
        self.order, self.band = order, band
        if band is not None:
            band.check(self.basis)

    @classmethod
    def declared(cls):
        """Steps are limited by the velocity, which may be forced."""
        own = {"limited": True, "forced": (VELOCITY,), "check": check_forcing, "falling": falling_energy}
        return super().declared() | own

    @classmethod
    def configured(cls, setup):
        keys, values = setup.keys, setup.values

        def given(name: str):
            return values[name] if getattr(keys, name) > 0 or setup.varies(name) else None

        injection = given("injection")
        band = None if injection is None else Band(*keys.forcing_band)
        seed = None if injection is None else given("forcing_seed")
        params = Params(values["viscosity"], values["drag"], given("hyperviscosity"), injection, seed)
        forces = setup.forces("velocity")
        return cls(setup.domain, setup.sides, forces, order=keys.hyperviscosity_order, band=band), params

    @abc.abstractmethod
    def velocity(self, k: tuple[Array, ...], state) -> tuple[Array, ...]:
        """Coefficients of the velocity components, the mean included."""

    def decay(self, k: tuple[Array, ...], params: Params) -> Array:
        """Rate at which viscosity, hyperviscosity and drag damp a wave."""
        square = square_of(k)
        rate = params.viscosity * square + params.drag
        if params.hyperviscosity is not None:
            rate = rate + params.hyperviscosity * square**self.order
        return rate

    def constrain(self, t, dt, state, params):
        """Nothing to restore: what rounding puts where no real field has a coefficient only decays."""
        return state

    def beside_tendency(self, params):
        return "" if self.band is None or params.injection is None else "random forcing, drawn anew in each step,"

    def forcing_noise(self, step, dt, params: Params, components: int, dtype) -> tuple[Array, tuple[Array, ...]]:
        """The increment of |u_k| in a step per unit of complex Gaussian noise and component, and the noise."""
        assert self.band is not None and params.injection is not None
        seed = 0 if params.seed is None else jnp.round(params.seed).astype(jnp.int32)
        energy = 2 * dt * params.injection / self.band.check(self.basis)
        # The derivative of a square root at zero is infinite.
        size = jnp.where(energy > 0, jnp.sqrt(jnp.where(energy > 0, energy, 1)), 0)
        return size, self.band.noise(self.basis, seed, step, components, dtype)

    def explicit_stable_dt(self, state, params):
        """1 / sum over axes of max |u_i| K_i, K_i the largest wavenumber kept: an inverse transform per component."""
        k = self.basis.wavenumbers(precision_of(state))
        rate = 0.0
        for axis, u in enumerate(self.velocity(k, state)):
            largest = 2 * jnp.pi / self.domain.grid.lengths[axis] * self.basis.cutoff[axis]
            rate = rate + largest * jnp.abs(jax.lax.stop_gradient(self.to_grid(u)))
        return 1 / jnp.max(rate)

    # ------------------------------------------------------------------ diagnostics

    def energies(self, k: tuple[Array, ...], state) -> Array:
        """|u_k|^2 / 2, counted twice where a coefficient stands for two: the sum is the mean kinetic energy."""
        velocity = self.velocity(k, state)
        total = sum(u.real * u.real + u.imag * u.imag for u in velocity)
        return 0.5 * self.basis.weights(velocity[0].real.dtype) * total

    def energy_spectrum(self, state, params) -> Array:
        """Mean kinetic energy in the shells j - 1/2 <= |k| < j + 1/2, j = 0, 1, ..., |k| in units of 2 pi over the
        longest side of the box."""
        return self.basis.shell_sums(self.energies(self.basis.wavenumbers(precision_of(state)), state))

    def diagnostics(self, t, state, params):
        """Means over the box. kinetic_energy: |u|^2 / 2. enstrophy: |curl u|^2 / 2. dissipation: the energy that
        viscosity, hyperviscosity and drag take per time. energy_injection: what forces feed per time. integral_scale:
        2 pi sum(E_k / k) / sum(E_k). energy_octave_j: in shells 2^j to 2^(j+1) - 1 of `energy_spectrum`.
        """
        dtype, domain = precision_of(state), self.domain
        k = self.basis.wavenumbers(dtype)
        energies, square = self.energies(k, state), square_of(k)
        moving = jnp.where(square > 0, energies, 0)
        total = domain.sum(moving)
        inverse = 1 / jnp.sqrt(jnp.where(square > 0, square, 1))
        result = {
            "kinetic_energy": domain.sum(energies),
            "enstrophy": domain.sum(square * energies),
            "dissipation": domain.sum(2 * self.decay(k, params) * energies),
            "energy_injection": self._injection(t, k, state, params, dtype),
            "integral_scale": 2 * jnp.pi * domain.sum(inverse * moving) / jnp.where(total > 0, total, 1),
        }
        shells = self.energy_spectrum(state, params)
        edges = [2**j for j in range(len(shells).bit_length()) if 2**j < len(shells)]
        for j, edge in enumerate(edges):
            result[f"energy_octave_{j}"] = jnp.sum(shells[edge : 2 * edge])
        return result

    def measures(self):
        named = {
            "kinetic_energy": Measure("m2 s-2", "mean kinetic energy", shown="energy"),
            "enstrophy": Measure("s-2", "mean enstrophy", shown="enstrophy"),
            "dissipation": Measure("m2 s-3", "mean dissipation"),
            "energy_injection": Measure("m2 s-3", "energy fed by forces"),
            "integral_scale": Measure("m", "integral scale"),
        }
        octaves = range(max(self.domain.grid.shape).bit_length())
        return named | {f"energy_octave_{j}": Measure("m2 s-2", f"energy in octave {j}") for j in octaves}

    def _injection(self, t, k, state, params, dtype) -> Array:
        """Mean of u . f, and the rate of the random forcing."""
        sources = self.sources(t, params, dtype)
        pairs = [(u, sources[axis]) for axis, u in zip(AXES, self.velocity(k, state), strict=False) if axis in sources]
        powers = [self.mean_product(u, force) for u, force in pairs]
        power = sum(powers, jnp.zeros((), dtype))
        if self.band is None or params.injection is None:
            return power
        # As a sum over the grid, which is the same on all devices by its type as well.
        rate = jnp.asarray(params.injection, dtype)
        return power + self.domain.sum(jnp.where(square_of(self.basis.indices()) == 0, rate, 0))

    # ------------------------------------------------------------------ fields

    def velocity_layouts(self):
        return (periodic_layout(self.domain, "m s-1"),) * self.domain.grid.ndim

    def velocity_outputs(self) -> tuple[Output, ...]:
        ndim = self.domain.grid.ndim
        return velocity_outputs(self.domain.grid, [(CENTER,) * ndim] * ndim)


SpectralFlow.Params = Params


def square_of(k: tuple[Array, ...]) -> Array:
    """|k|^2."""
    return sum((v * v for v in k[1:]), k[0] * k[0])
