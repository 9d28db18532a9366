"""Declarations of instruments: what a configuration calls a kind in `outputs`, and which models take it.

A class of `instruments.instrument.Instrument` is declared with `@instrument` and has one line in `HOMES`. Reading a
configuration, building the programs, the files and the messages ask that class. Importing this module does not import
jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from simjax.errors import ConfigurationError
from simjax.schema.model_schema import FIELDS, PARTICLES

BOTH = (FIELDS, PARTICLES)
HOMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fields": ("everything", (FIELDS,)),
    "particles": ("everything", (PARTICLES,)),
    "probe": ("points", (FIELDS,)),
    "slice": ("planes", (FIELDS,)),
    "line": ("points", (FIELDS,)),
    "receivers": ("receivers", (FIELDS,)),
    "box_mean": ("boxes", (FIELDS,)),
    "spectrum": ("spectra", (FIELDS,)),
    "histogram": ("histogram", (FIELDS,)),
    "surface_integral": ("surfaces", (FIELDS,)),
    "flux": ("fluxes", (FIELDS,)),
    "nusselt": ("fluxes", (FIELDS,)),
    "wall": ("walls", (FIELDS,)),
    "force_coefficients": ("force_coefficients", (FIELDS,)),
    "structure_function": ("two_points", (FIELDS,)),
    "correlation": ("two_points", (FIELDS,)),
    "body_surface": ("body_surface", (FIELDS,)),
    "radial_distribution": ("pair_distances", (PARTICLES,)),
    "mean_square_displacement": ("tracks", (PARTICLES,)),
    "tracks": ("tracks", (PARTICLES,)),
    "density": ("particles_on_mesh", (PARTICLES,)),
    "line_of_sight": ("operators", (FIELDS,)),
    "diagnostic": ("diagnostic", BOTH),
    "balance": ("balance", BOTH),
}
"""Kind -> the module in `instruments` that declares it, and the families of models that take it."""
STANDING: Mapping[str, Mapping[str, str]] = {
    FIELDS: {"fields": "fields", "diagnostics": "diagnostic"},
    PARTICLES: {"particles": "particles", "diagnostics": "diagnostic"},
}
"""Names of all that a run of a family writes without an entry in `outputs`, each with its kind of instrument."""
KEYS, OF = "keys", "of"
"""The value at a kind: its keys, or the names that it looks at."""

Declared = TypeVar("Declared", bound=type)
_DECLARED: dict[str, tuple[Any, tuple[str, ...]]] = {}


def instrument(kind: str, *, family: str | tuple[str, ...] = FIELDS) -> Callable[[Declared], Declared]:
    """Declare a subclass of `simjax.Instrument` as the kind of `outputs` that configurations call `kind`.

    family: "fields", "particles", or both: the models that take it.

    Examples:
        >>> @sj.instrument("rough_mean")
        ... class RoughMean(sj.FieldInstrument):
        ...     def measure(self, domain, field, offset, periodic):
        ...         return domain.mean(field)
        >>> wave = sj.configure(
        ...     "acoustic", grid={"shape": [8]}, initial={"pressure": "1 + sin(2*pi*x)"},
        ...     time={"end": 0.1, "output_every": 0.1}, outputs=[{"rough_mean": None, "of": "pressure"}],
        ... )
    """

    def declare(cls: Declared) -> Declared:
        _DECLARED[kind] = cls, (family,) if isinstance(family, str) else family
        return cls

    return declare


def kinds_of(family: str) -> tuple[str, ...]:
    """The kinds that models of a family take, those of simjax first; nothing is imported for it."""
    known = {kind: families for kind, (_, families) in HOMES.items()}
    known |= {kind: families for kind, (_, families) in _DECLARED.items() if kind not in HOMES}
    return tuple(kind for kind, families in known.items() if family in families)


def instrument_class(kind: str) -> Any:
    """The class that is declared as a kind."""
    if kind not in _DECLARED:
        import_module(f"simjax.instruments.{HOMES[kind][0]}")
    return _DECLARED[kind][0]


def add_own(name: str, cls: Any) -> None:
    """Make a user's class known as the kind `name`.

    Raises:
        ConfigurationError: it is no class of instruments.
    """
    base = import_module("simjax.instruments.instrument").Instrument
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise ConfigurationError(f"{name}: expected a class of an instrument, a subclass of Instrument; got {cls!r}.")
    declared = next((families for known, families in _DECLARED.values() if known is cls), (FIELDS,))
    instrument(name, family=declared)(cls)
