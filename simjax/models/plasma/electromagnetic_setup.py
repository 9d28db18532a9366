"""Plasmas of particles whose currents radiate, from a configuration."""

import jax.numpy as jnp

from simjax.models.plasma.boris import boosted, lorentz_factor
from simjax.models.plasma.electromagnetic import ElectromagneticPlasma, Params, light_speed
from simjax.models.plasma.electromagnetic_keys import RadiatingParticlesConfig
from simjax.models.plasma.setup import ChargedFamily


class ElectromagneticFamily(ChargedFamily):
    """Electromagnetic plasmas in a plane."""

    seconds = (1e-6, 1e-9)
    shown = ("magnetic_energy", "energy_drift")

    @property
    def _components(self):
        return 3

    def _steps(self, cell):
        return 1

    def model(self, cells, room, values):
        charge, mass, permittivity, magnetic = self._charged(values)
        permeability = 1 / (permittivity * values["speed_of_light"] ** 2)
        # Its domain is a property, which the checker of types takes for a field.
        model = ElectromagneticPlasma(cells, self._finer(cells))  # pyright: ignore[reportCallIssue]
        return model, Params(charge, mass, permittivity, magnetic, permeability=permeability)

    def state(self, model, params, values, files, member):
        particles, species = self._particles, files["species"]
        assert isinstance(particles, RadiatingParticlesConfig)
        place, moving = self._disturbed(values, files["position"])
        drift = jnp.asarray(self._of_each(particles.drift), place.dtype)
        frame = drift[species].T + moving
        velocity = boosted(self._warm(files, member), frame, values["speed_of_light"])
        state, lost = model.state_from(place, velocity, species, params)
        return state, lost, jnp.zeros((), jnp.int32)

    def seen(self, model, state, params):
        return model.synchronised(state, params)

    def arrays(self, model, state, params):
        return {"velocity": state.velocity / lorentz_factor(state.velocity, light_speed(params))[None]}
