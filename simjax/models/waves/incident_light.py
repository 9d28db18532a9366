"""Light that enters a box as a plane wave."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE
from simjax.models.waves.incident import IncidentBox, Line, Speed, shared

VARIES = "a medium that varies, conducts or has poles at the sides of the box of an incident wave"


class WithIncidentWave(eqx.Module):
    """The incident wave of `models.waves.maxwell.Maxwell`, whose class has the fields and their curls."""

    incident: eqx.AbstractVar[IncidentBox | None]

    def speed_of_incident(self: Any, params, impermittivity, impermeability) -> Speed | None:
        """Numbers of the wave from the medium where its box begins; None without a wave."""
        box = self.incident
        if (box is None) != (params.incident is None):
            raise ConfigurationError(
                "Maxwell has a box for an incident wave and Params no signal of it, or the other way round: expected "
                "Maxwell(..., incident=...) with Params(..., incident=...)."
            )
        if box is None:
            return None
        electric = box.corner(self.domain, impermittivity[box.electric])
        magnetic = box.corner(self.domain, impermeability[box.magnetic])
        rate = jnp.sqrt(electric * magnetic) / self.domain.grid.mean_spacing[box.axis]
        return Speed(rate, box.sign * jnp.sqrt(magnetic / electric))

    def line_kicked(self: Any, dt, state, prepared) -> Line | None:
        """The wave's own line after its magnetic field changed."""
        if self.incident is None:
            return None
        return self.incident.kicked(dt, state.incident, shared(self.domain, prepared.incident.rate))

    def line_drifted(self: Any, t, dt, state, params, prepared) -> Line | None:
        """The wave's own line after its electric field changed for dt about t."""
        if self.incident is None:
            return None
        line = state.incident
        signal = jnp.asarray(params.incident(t + 0.5 * dt), line.electric.dtype)
        numbers = shared(self.domain, jnp.stack([prepared.incident.rate, signal]))
        return self.incident.drifted(dt, line, numbers[0], numbers[1])

    def lacking_of_electric(self: Any, state) -> list[list[Array]]:
        """Amounts that each component of the curl of E lacks at the sides of the box."""
        box = self.incident
        if box is None:
            return [[] for _ in self.magnetic_layouts]
        return [
            box.added(self.domain, layout, curl, box.electric, state.incident.electric, FACE)
            for layout, curl in zip(self.magnetic_layouts, self.curls_of_electric, strict=True)
        ]

    def lacking_of_magnetic(self: Any, state, prepared) -> list[list[Array]]:
        """Amounts that each component of the curl of H lacks there."""
        box = self.incident
        if box is None:
            return [[] for _ in self.electric_layouts]
        wave = prepared.incident.admittance * state.incident.magnetic
        return [
            box.added(self.domain, layout, curl, box.magnetic, wave, CENTER)
            for layout, curl in zip(self.electric_layouts, self.curls_of_magnetic, strict=True)
        ]

    def on_sides_of_incident(self: Any, params) -> dict[str, Array]:
        """Cells beside the sides of the box where the medium is not the one in which the wave goes."""
        box = self.incident
        if box is None:
            return {}
        beside = box.sides(self.domain, self.medium_layout)
        properties = [*self.at_edges(params.permittivity), *self.inverse_at_faces(params.permeability)]
        wrong = [u != box.corner(self.domain, u) for u in properties] + self.lossy(params)
        return {VARIES: beside & sum(wrong[1:], wrong[0])}
