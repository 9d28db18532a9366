"""Units and meanings of numbers that several models record at every output time."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from simjax.core.measure_checks import Conserved, Falling, MeasureCheck, PairMomentum, SmallDrift
from simjax.core.model import Measure, Model
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.schema.units import squared

OF_FIELDS = ("mean", "variance", "minimum", "maximum")

PARTICLES = {
    "kinetic_energy": Measure("1", "kinetic energy"),
    "potential_energy": Measure("1", "potential energy"),
    "field_energy": Measure("1", "energy of the electric field"),
    "electric_energy": Measure("1", "energy of the electric field"),
    "magnetic_energy": Measure("1", "energy of the magnetic field"),
    "energy": Measure("1", "energy"),
    "conserved_energy": Measure("1", "energy with that of the thermostat"),
    "temperature": Measure("1", "temperature"),
    "pressure": Measure("1", "pressure"),
    "charge": Measure("1", "total charge"),
    "gauss": Measure("1", "largest excess in Gauss's law"),
    "particles": Measure("1", "number of particles"),
    "scale": Measure("1", "length of the box over that at the start"),
    "volume": Measure("1", "volume of the box"),
    "scale_factor": Measure("1", "scale factor of the background"),
    "fluid_mass": Measure("1", "mass of the fluid"),
    "density_deviation": Measure("1", "largest relative deviation of the density"),
    "largest_force": Measure("1", "largest force"),
    **{f"pressure_{a}{b}": Measure("1", f"pressure tensor, {a}{b}") for a in AXES for b in AXES},
    **{f"momentum_{a}": Measure("1", f"{a}-momentum") for a in AXES},
    **{f"angular_momentum_{a}": Measure("1", f"{a}-angular momentum") for a in AXES},
    **{f"front_{a}": Measure("1", f"how far the fluid reaches along {a}") for a in AXES},
}
"""Of models of particles, whose units are those that the user chose."""

CHECKS_OF_PARTICLES = {
    "energy": SmallDrift(share_of="kinetic_energy"),
    "conserved_energy": SmallDrift(share_of="kinetic_energy"),
    "momentum": PairMomentum(kinetic_energy="kinetic_energy", energy="energy"),
}


def of_particles(shown: Mapping[str, str], steady: Collection[str]) -> dict[str, Measure]:
    """The numbers of a model of particles.

    shown: labels on the display by name, in its order. steady: what stays as it is, some of `CHECKS_OF_PARTICLES`.
    """
    found = {name: PARTICLES[name] for name in (*shown, *PARTICLES)}

    def check(name: str) -> MeasureCheck | None:
        of_vector = name.rpartition("_")[0] if name[-1] in AXES else ""
        return next((CHECKS_OF_PARTICLES[one] for one in (name, of_vector) if one in steady), None)

    return {name: replace(one, shown=shown.get(name, ""), check=check(name)) for name, one in found.items()}


def of_field(name: str, units: str, kinds: Sequence[str] = OF_FIELDS) -> dict[str, Measure]:
    """Statistics of a field, such as `mean_concentration`."""
    return {
        f"{kind}_{name}": Measure(squared(units) if kind == "variance" else units, f"{kind} of {name}")
        for kind in kinds
    }


def of_fields(names: Iterable[str], units: str) -> dict[str, Measure]:
    """Statistics of fields with the same units."""
    return {key: measure for name in names for key, measure in of_field(name, units).items()}


def times_volume(units: str, ndim: int) -> str:
    """Units of the integral over a line, a plane or a box of a density in `units` per m3: in a plane `kg m-1`."""
    power = ndim - 3
    return units if power == 0 else f"{units} m{power}"


def length_power(power: int) -> str:
    """Units of a length to a power: `m`, `m2`, `m3`."""
    return "m" if power == 1 else f"m{power}"


def total_measure(name: str, units: str, ndim: int) -> Measure:
    """The integral of a field in `units`."""
    integrated = " ".join(part for part in (units, length_power(ndim)) if part != "1")
    return Measure(integrated, f"integral of {name}")


def by_component(found: object, owner: str, ndim: int) -> dict[str, jax.Array]:
    """Diagnostics as scalars by name: the vector `centre`, `(ndim,)`, becomes `centre_x`, `centre_y`, ...

    owner: the class that computed them, for errors.

    Raises:
        ConfigurationError: `found` is no dict, or one of them is neither a scalar nor such a vector.
    """
    if not isinstance(found, Mapping):
        raise ConfigurationError(
            f"{owner}.diagnostics: expected a dict of numbers by name, got a {type(found).__name__}."
        )
    numbers: dict[str, jax.Array] = {}
    for name, value in found.items():
        if jnp.shape(value) == (ndim,):
            numbers |= {f"{name}_{axis}": jnp.asarray(value)[k] for k, axis in enumerate(AXES[:ndim])}
        elif jnp.shape(value) == ():
            numbers[name] = jnp.asarray(value)
        else:
            raise ConfigurationError(
                f"{owner}.diagnostics: {name} has the shape {jnp.shape(value)}; expected a scalar, or a vector of "
                f"shape ({ndim},); reduce a field with self.domain.mean, sum, min or max."
            )
    return numbers


def checked_measures(model: Model) -> Mapping[str, Measure]:
    """The `measures` of a model.

    Raises:
        ConfigurationError: a check is measured by a number that is none of them.
    """
    measures = model.measures()
    for name, measure in measures.items():
        check, by = measure.check, ()
        if isinstance(check, Conserved):
            by = check.measured_by
        elif isinstance(check, Falling):
            by = (check.rate,) if check.rate else ()
        unknown = [one for one in by if measure_of(measures, one) is None]
        if unknown:
            raise ConfigurationError(
                f"{type(model).__name__}.measures: the check of {name} is measured by {', '.join(unknown)}; expected "
                f"names of measures, {', '.join(measures)}."
            )
    return measures


def measure_of(measures: Mapping[str, Measure], name: str) -> Measure | None:
    """Units and meaning of a diagnostic: its own, or those of the vector or the group that it belongs to, such as
    `receiver` of `receiver_0`."""
    group, _, last = name.rpartition("_")
    if name in measures or group not in measures:
        return measures.get(name)
    whole = measures[group]
    named = whole.long_name if last not in AXES else f"{whole.long_name or group.replace('_', ' ')}, {last}"
    return replace(whole, long_name=named, shown=f"{whole.shown} {last}" if whole.shown else "")


def in_order(diagnostics: Mapping[str, float], measures: Mapping[str, Measure]) -> dict[str, float]:
    """Sort diagnostics: first those that `measures` names first. Compiled functions return them by the alphabet."""
    places = {name: place for place, name in enumerate(measures)}

    def place(name: str) -> int:
        return places.get(name, places.get(name.rpartition("_")[0], len(places)))

    return {name: diagnostics[name] for name in sorted(diagnostics, key=place)}
