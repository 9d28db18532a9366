"""The medium of light where the components of E and H are: values of cells, functions of place, and their means."""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.boundary import FieldLayout
from simjax.models.waves import wave_surfaces
from simjax.models.waves.mode_sources import ModeShape
from simjax.models.waves.poles import Pole
from simjax.models.waves.yee import POLARISATIONS
from simjax.ops import staggered_wave

Property = Array | tuple[Array, ...] | wave_surfaces.Function
"""A number, a value for each cell, an array for each component of the field, or a function of place."""


class LightParts(NamedTuple):
    """Parts that are formed of the medium once.

    media: arrays for each component in the place of functions of `Params`, by their names, of poles `pole_0`, ...
    modes: of mode sources.
    """

    media: dict[str, tuple[Array, ...]]
    modes: tuple[ModeShape, ...]


class LightMedium(eqx.Module):
    """Permittivity, permeability, conductivity and poles of `models.waves.maxwell.Maxwell`, whose class has the fields.

    parts: None where they are formed when they are needed.
    """

    parts: LightParts | None

    def averaged(self: Any, params):
        """Parameters in which an array for each component stands for every function of place.

        Permittivity and permeability have `surfaces.effective`, with which light at a surface along the grid, or with
        its field along the surface, is of second order; the conductivity and the strengths of poles have plain means.
        These are over 233 places in each cell of a plane, 117 in space: compute them once where `Params` are to serve
        often.
        """
        media = self._means(params) if self.parts is None else self.parts.media
        names = [_pole_name(number) for number in range(len(params.poles))]
        poles = tuple(
            replace(pole, strength=media.get(name, pole.strength))
            for name, pole in zip(names, params.poles, strict=True)
        )
        return replace(params, poles=poles, **{name: of for name, of in media.items() if name not in names})

    def _means(self: Any, params) -> dict[str, tuple[Array, ...]]:
        """The means of the functions in `params`, by name."""
        electric, magnetic = POLARISATIONS[self.polarisation]
        components = {
            "permittivity": [*zip(self.electric_layouts, electric, strict=True)],
            "permeability": [*zip(self.magnetic_layouts, magnetic, strict=True)],
        }
        found = {}
        for name, places in components.items():
            given: Any = getattr(params, name)
            if callable(given):
                found[name] = tuple(
                    wave_surfaces.effective(self.domain, layout, axis, given) for layout, axis in places
                )
        strengths = {_pole_name(number): pole.strength for number, pole in enumerate(params.poles)}
        for name, given in {"conductivity": params.conductivity, **strengths}.items():
            if callable(given):
                found[name] = tuple(wave_surfaces.mean(self.domain, layout, given) for layout in self.electric_layouts)
        return found

    def constant_parts(self: Any, params):
        media = self._means(params)
        modes = self.with_parts(LightParts(media, ())).formed_modes(params) if self.mode_sources else ()
        return LightParts(media, modes) if media or modes else None

    def with_parts(self, parts):
        return eqx.tree_at(lambda model: model.parts, self, parts, is_leaf=lambda leaf: leaf is None)

    def at_edges(self: Any, value: Array | tuple[Array, ...]) -> tuple[Array, ...]:
        """Values where the components of E are: arithmetic means of cells."""
        return value if isinstance(value, tuple) else self._of_cells(value, self.electric_layouts)

    def lossy(self: Any, params) -> list[Array]:
        """Cells where the medium conducts or has a pole, of each of these and each component of E."""
        values = [pole.strength for pole in params.poles]
        values += [] if params.conductivity is None else [params.conductivity]
        return [u != 0 for value in values for u in self.at_edges(value)]

    def over_permittivity(self: Any, pole: Pole, impermittivity: tuple[Array, ...]) -> Pole:
        """A pole with its strength over the permittivity where the components of E are."""
        strengths = zip(self.at_edges(pole.strength), impermittivity, strict=True)
        return replace(pole, strength=tuple(s * e for s, e in strengths))

    def pole_specs(self: Any, pole: Pole, specs: Pole) -> Pole:
        """The partition of a pole's numbers, of which arrays of strengths are cut like the grid."""
        if callable(pole.strength):
            return specs
        cut = jax.tree.map(lambda u: self.domain.spec() if u.ndim else PartitionSpec(), pole.strength)
        return replace(specs, strength=cut)

    def inverse_at_faces(self: Any, value: Array | tuple[Array, ...]) -> tuple[Array, ...]:
        """Inverses where the components of H are: means of those of cells."""
        if isinstance(value, tuple):
            return tuple(1 / one for one in value)
        return self._of_cells(1 / value, self.magnetic_layouts)

    def _of_cells(self: Any, value: Array, layouts: tuple[FieldLayout, ...]) -> tuple[Array, ...]:
        if value.ndim == 0:
            return (value,) * len(layouts)

        def means(padded):
            return tuple(staggered_wave.mean_to(padded, layout.offset) for layout in layouts)

        return self.domain.apply(means, value, self.medium_layout, width=1)


def _pole_name(number: int) -> str:
    return f"pole_{number}"


def least(value: Array | tuple[Array, ...]) -> Array:
    """The least of the components of a property, in every cell."""
    return functools.reduce(jnp.minimum, value) if isinstance(value, tuple) else value
