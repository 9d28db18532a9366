"""Modes of waveguides that go out from a plane across a guide, one way."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from simjax.core.domain import Domain
from simjax.errors import ConfigurationError
from simjax.grid import CENTER, FACE
from simjax.jaxpr.varying import cast_varying
from simjax.models.waves.guided_modes import GuidedMode, Section, Window, guided_mode
from simjax.models.waves.incident import places
from simjax.models.waves.staggered_waves import Terms

VARIES = "a medium that varies along the guide, conducts or has poles at a mode source"
STAYS = "a mode that does not go on at its frequency"
LEAVES = "a mode that is not guided, but reaches the absorbing layers"


@dataclass(frozen=True)
class ModePlane:
    """A plane from which a mode goes out: in front of it, where the wave goes, fields have the mode.

    axis, upwards: where the wave goes. face: number of the faces in the plane. window: its part across the guide.
    absorbs: whether the ends of the window lie in absorbing layers. frequency, number: of the mode. electric, magnetic:
    numbers of the components of E and H across the guide among those of the model. along: the number of the component
    along the guide, of the field that has two. sign: of that H over E.
    """

    axis: int
    upwards: bool
    face: int
    window: Window
    absorbs: bool
    frequency: float
    number: int
    electric: int
    magnetic: int
    along: int
    sign: int

    def section(self, domain: Domain, electric: tuple[Array, ...], magnetic: tuple[Array, ...]) -> Section:
        """The medium in the plane, from 1/permittivity and 1/permeability at the components of E and H."""
        own, others, number = (
            (electric, magnetic, self.magnetic) if self.window.at_faces else (magnetic, electric, self.electric)
        )
        lines = [whole_line(domain, u, self.axis, self.face) for u in (own[0], others[self.along], others[number])]
        return Section(1 / lines[0], lines[1], lines[2])

    def mode(self, domain: Domain, electric: tuple[Array, ...], magnetic: tuple[Array, ...]) -> GuidedMode:
        """The mode in this plane of that medium."""
        h = domain.grid.mean_spacing
        section = self.section(domain, electric, magnetic)
        return guided_mode(section, self.window, (h[self.axis], h[1 - self.axis]), self.frequency, self.number)

    def added(self, domain: Domain, terms: Terms, number: int, wave: Array, offset: float) -> list[Array]:
        """Amounts that the curl's terms lack in each cell: one array, or none.

        wave: the mode's E (offset FACE) or H (CENTER) on the line across the guide. number: of that component.
        """
        for axis, field, sign in terms:
            if field != number or axis != self.axis:
                continue
            # Behind the plane, at centres, E in it has too much of the mode; in it H behind has too little.
            at = self.face - 1 if offset == FACE and self.upwards else self.face
            direction = -1 if self.upwards else 1
            value = along_block(domain, wave, 1 - axis) * (direction * sign / domain.grid.mean_spacing[axis])
            return [jnp.where(places(domain, axis) == at, value, 0.0)]
        return []


class ModeShape(eqx.Module):
    """A mode on the line across its guide, (n,), and the time in which it passes half a cell."""

    electric: Array
    magnetic: Array
    delay: Array


class WithModeSources(eqx.Module):
    """The mode sources of `models.waves.maxwell.Maxwell`, whose class has the fields and their curls."""

    mode_sources: eqx.AbstractVar[tuple[ModePlane, ...]]

    def formed_modes(self: Any, params) -> tuple[ModeShape, ...]:
        """The modes of the sources."""
        if len(self.mode_sources) != len(params.mode_signals):
            raise ConfigurationError(
                f"Maxwell has {len(self.mode_sources)} mode source(s) and Params {len(params.mode_signals)} signal(s) "
                "of them: expected Maxwell(..., mode_sources=...) with as many Params(..., mode_signals=...)."
            )
        if not self.mode_sources:
            return ()
        found, medium = [], self.medium_of_modes(params)
        for plane in self.mode_sources:
            mode = plane.mode(self.domain, *medium)
            half, omega = 0.5 * self.domain.grid.mean_spacing[plane.axis], 2 * jnp.pi * plane.frequency
            found.append(ModeShape(mode.electric, plane.sign * mode.magnetic, mode.wavenumber * half / omega))
        return tuple(found)

    def medium_of_modes(self: Any, params) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """1/permittivity where the components of E are, and 1/permeability where those of H are."""
        averaged = self.averaged(params)
        return tuple(1 / e for e in self.at_edges(averaged.permittivity)), self.inverse_at_faces(averaged.permeability)

    def modes_lack_electric(self: Any, t, params, prepared) -> list[list[Array]]:
        """Amounts that each component of the curl of E lacks at the planes of mode sources at time t."""
        found: list[list[Array]] = [[] for _ in self.magnetic_layouts]
        for plane, signal, shape in zip(self.mode_sources, params.mode_signals, prepared.modes, strict=True):
            wave = shape.electric * jnp.asarray(signal(t), shape.electric.dtype)
            for own, curl in zip(found, self.curls_of_electric, strict=True):
                own.extend(plane.added(self.domain, curl, plane.electric, wave, FACE))
        return found

    def modes_lack_magnetic(self: Any, t, params, prepared) -> list[list[Array]]:
        """Amounts that each component of the curl of H lacks there."""
        found: list[list[Array]] = [[] for _ in self.electric_layouts]
        for plane, signal, shape in zip(self.mode_sources, params.mode_signals, prepared.modes, strict=True):
            # Half a cell behind the plane the wave is where it will be in the plane by then.
            wave = shape.magnetic * jnp.asarray(signal(t + shape.delay), shape.magnetic.dtype)
            for own, curl in zip(found, self.curls_of_magnetic, strict=True):
                own.extend(plane.added(self.domain, curl, plane.magnetic, wave, CENTER))
        return found

    def at_mode_sources(self: Any, params) -> dict[str, Array]:
        """Cells where a mode source cannot be, by what is wrong."""
        found: dict[str, Array] = {}
        if not self.mode_sources:
            return found
        electric, magnetic = self.medium_of_modes(params)
        for plane in self.mode_sources:
            domain, number, wrong = self.domain, places(self.domain, plane.axis), self.lossy(params)
            for u in (*electric, *magnetic):
                line = along_block(domain, whole_line(domain, u, plane.axis, plane.face), 1 - plane.axis)
                wrong.append(abs(u - line) > 4 * jnp.finfo(line.dtype).eps * line)
            beside = (number >= plane.face - 1) & (number <= plane.face)
            if plane.window.first is not None and plane.window.last is not None:
                across = places(domain, 1 - plane.axis)
                beside = beside & (across >= plane.window.first) & (across < plane.window.last)
            found[VARIES] = found.get(VARIES, False) | beside & sum(wrong[1:], wrong[0])
            section = plane.section(domain, electric, magnetic)
            mode = plane.mode(domain, electric, magnetic)
            found[STAYS] = found.get(STAYS, False) | beside & ~(mode.square > 0)
            if plane.absorbs:
                outside = (2 * jnp.pi * plane.frequency) ** 2 * (section.own / section.along)
                ends = jnp.maximum(outside[plane.window.first or 0], outside[(plane.window.last or 0) - 1])
                found[LEAVES] = found.get(LEAVES, False) | beside & ~(mode.square > ends)
        return found


def joined(*lists: list[list[Array]]) -> list[list[Array]]:
    """Amounts that each component lacks, from several lists of them."""
    return [sum(own, []) for own in zip(*lists, strict=True)]


def whole_line(domain: Domain, u: Array, axis: int, number: int) -> Array:
    """The values of a field, or of a number, in the cells with one number along an axis of a plane, on every device."""
    across = 1 - axis
    n, own = domain.grid.shape[across], domain.block_shape
    block = jnp.broadcast_to(u, own)
    line = jnp.sum(jnp.where(places(domain, axis) == number, block, jnp.zeros_like(block)), axis=axis)
    if not domain.names:
        return line
    line = cast_varying(line, domain.names)
    whole = lax.dynamic_update_slice_in_dim(
        cast_varying(jnp.zeros(n, line.dtype), domain.names), line, domain.first_index(across), axis=0
    )
    return domain.total(whole)


def along_block(domain: Domain, line: Array, across: int) -> Array:
    """The part of a line along an axis of a plane that lies beside this block, shaped to broadcast."""
    count = domain.block_shape[across]
    part = lax.dynamic_slice_in_dim(line, domain.first_index(across), count) if domain.names else line
    return part.reshape([count if axis == across else 1 for axis in range(2)])
