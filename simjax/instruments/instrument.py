"""An instrument of a run: what a configuration says of its kind, what it reads, and how the file has that."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from simjax.core.domain import Domain
from simjax.core.face_planes import FacePlane, Flux
from simjax.core.model import Output
from simjax.grid import Grid
from simjax.particles.cells import Cells
from simjax.schema.instrument_declarations import KEYS
from simjax.schema.instruments import InstrumentConfig
from simjax.schema.kinds import Kind
from simjax.schema.site import Refusal, Site, bound

Places = tuple[tuple[float, ...], ...]
"""One tuple of coordinates per point, in units of the domain."""


class View(NamedTuple):
    """A state of a run as instruments look at it, on this device.

    variables: this block of every field, or `(..., particles)` by number. diagnostics: the model's numbers, when they
    are asked for. offsets: where each field lies in its cell. cells, particles, start: of a run of particles, how
    they are sorted, the state, and where each was at the start, `(axes, particles)` by number. balances: what
    is written of the balances of conserved quantities. surface: what there is at points on the surface of bodies.
    fluxes: of quantities through faces in a plane. conductivities: of those that are conducted by one number. wall:
    density and kinematic viscosity at a wall.
    """

    domain: Domain
    periodic: tuple[bool, ...]
    variables: Mapping[str, Array]
    diagnostics: Callable[[], Mapping[str, Array]]
    offsets: Mapping[str, tuple[float, ...]] = {}
    cells: Cells | None = None
    particles: Any = None
    start: Array | None = None
    balances: Callable[[], Mapping[str, Array]] = dict
    surface: Callable[[Any], Mapping[str, Array]] = lambda points: {}
    fluxes: Callable[[FacePlane], Mapping[str, Flux]] = lambda plane: {}
    conductivities: Callable[[], Mapping[str, Array]] = dict
    wall: Callable[[FacePlane], tuple[Array, Array]] | None = None


class Coordinate(NamedTuple):
    """A coordinate of a file of samples: its dimensions, its values, and its attributes as CF has them.

    Examples:
        >>> sj.Coordinate("power", ("power",), np.arange(3), {"units": "1"}).dims
        ('power',)
    """

    name: str
    dims: tuple[str, ...]
    values: np.ndarray
    attributes: Mapping[str, Any]


class Layout(NamedTuple):
    """The dimensions of a reading in a file, beside members and time, slowest first, and their coordinates.

    attributes: further ones of the variable.

    Examples:
        >>> sj.Layout(attributes={"cell_methods": "area: mean"}).dims
        ()
    """

    dims: tuple[str, ...] = ()
    coordinates: tuple[Coordinate, ...] = ()
    attributes: Mapping[str, Any] = {}


@dataclass(frozen=True)
class NoKeys:
    """The keys of a kind that has none."""


class Instrument(eqx.Module):
    """A function of a run's state: the same on all devices, or cut by `spec`.

    A class that is declared with `@simjax.instrument`, or named MODULE.CLASS in `outputs`, is a kind of instrument. An
    object of it reads one variable of the instrument's file.

    variable: name of what is read. Keys: dataclass of the keys of the kind. at_kind: what stands at the kind in
    `outputs`: "keys", with the names that are looked at in `of`; "of", these names, with the keys beside; or the name
    of one key. noun: word for what is named. fitted: whether it can be compared with measurements. at_given_places:
    whether it reads at the same places however wide cells are. accounts: whether it reads balances, which are then
    kept. of_fields: whether the names are those of `output.fields`. whole: whether it reads all of a field, and with a
    file of measurements where these were made.

    Examples:
        >>> import dataclasses
        >>> import equinox as eqx
        >>> class Above(sj.FieldInstrument):
        ...     '''The share of the volume in which a field is above a threshold.'''
        ...
        ...     @dataclasses.dataclass(frozen=True)
        ...     class Keys:
        ...         threshold: float = sj.key(sj.Real(), about="value above which a cell counts")
        ...
        ...     threshold: float = eqx.field(static=True)
        ...
        ...     def measure(self, domain, field, offset, periodic):
        ...         return domain.mean((field > self.threshold).astype(field.dtype))
        >>> Above("density", 0.5).shape(sj.Grid((8, 8)))
        ()
    """

    variable: eqx.AbstractVar[str]

    Keys: ClassVar[type] = NoKeys
    at_kind: ClassVar[str] = KEYS
    noun: ClassVar[str] = "variables"
    fitted: ClassVar[bool] = True
    at_given_places: ClassVar[bool] = False
    accounts: ClassVar[bool] = False
    of_fields: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    # ------------------------------------------------------------------ what it reads

    @abc.abstractmethod
    def read(self, view: View) -> Array:
        """The reading, of `shape(view.domain.grid)`."""

    def check(self, grid: Grid) -> None:
        """Raise ConfigurationError if the instrument does not fit the grid."""
        return

    def shape(self, grid: Grid) -> tuple[int, ...]:
        """Shape of what `read` returns, of all devices together."""
        return ()

    def spec(self, domain: Domain) -> PartitionSpec:
        """Partition of what `read` returns."""
        return PartitionSpec()

    def nearest(self, measured: Array, reading: Array) -> Array:
        """Measured values; of equivalent values (such as angles a turn apart) the nearest to the `reading`."""
        return measured

    def layout(self, source: InstrumentConfig, output: Output, grid: Grid, units: str) -> Layout:
        """The layout of the reading in the file, where `output` describes it; units: of lengths."""
        return Layout()

    # ------------------------------------------------------------------ what there is of it by frequency

    def amplitudes(self, output: Output, fields: Mapping[str, Output]) -> dict[str, tuple["Instrument", Output]]:
        """The readings of which Fourier integrals in time are formed, with their descriptions: this one, which `output`
        describes, or the fields that it is a product of; fields: the model's own."""
        return {self.variable: (self, output)}

    def spectra(self, output: Output, time_units: str) -> tuple[Output, ...]:
        """Descriptions of what `by_frequency` makes."""
        return ()

    def by_frequency(self, domain: Domain, integrals: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        """Numbers `(..., frequencies)` that are made of the real and imaginary parts of Fourier integrals of the
        `amplitudes`, `(..., frequencies, *shape)`, on this device or, of a domain that is not cut, on the host."""
        return {}

    # ------------------------------------------------------------------ what a configuration says of its kind

    @classmethod
    def unavailable(cls, site: Site) -> str:
        """Say why there is no such instrument in this run and what to write; "" where there is."""
        return ""

    @classmethod
    def names(cls, site: Site) -> Sequence[str] | None:
        """Names that it may look at; none where it takes no `of`, None where they are known with the programs alone."""
        return tuple(site.written) if cls.of_fields else ()

    @classmethod
    def default_names(cls, site: Site) -> Sequence[str]:
        """Names that it looks at where none are given; none where they must be."""
        return ()

    @classmethod
    def keys_for(cls, given: Mapping[str, Any], site: Site) -> Mapping[str, Kind] | str:
        """Kinds of its keys, of which some are `given`; or what is expected in place of these."""
        return {field.name: bound(field.metadata["kind"], site) for field in fields(cls.Keys)}

    @classmethod
    def completed(cls, given: Mapping[str, Any], site: Site) -> Mapping[str, Any]:
        """The keys that were read, with what follows from the site where they leave it out."""
        return given

    @classmethod
    def refusals(cls, of: Sequence[str], given: Mapping[str, Any], site: Site) -> Iterator[Refusal]:
        """Say what does not go together of keys that were read."""
        yield from ()

    @classmethod
    def readings(cls, source: InstrumentConfig, written: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """The variables of its file, each with those of the run that it is read from.

        written: the names that `of` takes, each with its variables.
        """
        return {variable: (variable,) for name in source.of for variable in written[name]}

    @classmethod
    def along_cells(cls, source: InstrumentConfig, ndim: int) -> tuple[int, ...]:
        """The axes along which it has a value for each cell."""
        return ()

    # ------------------------------------------------------------------ from a configuration to what reads

    @classmethod
    def seen(cls, source: InstrumentConfig, run: Any) -> tuple[Output, ...]:
        """The variables of a run that it looks at; run: its `CompiledRun`."""
        return run.outputs_named(source.of) if cls.of_fields else ()

    @classmethod
    def made(cls, source: InstrumentConfig, run: Any) -> dict[str, tuple["Instrument", Output]]:
        """The instrument and the description of each of the `readings` in a run; run: its `CompiledRun`."""
        return {one.name: (cls(one.name, **source.given), cls.described(one)) for one in cls.seen(source, run)}

    @classmethod
    def described(cls, variable: Output) -> Output:
        """The description of a reading of a variable."""
        return variable


class FieldInstrument(Instrument):
    """A linear or nonlinear function of one variable's field.

    Examples:
        >>> class RootMeanSquare(sj.FieldInstrument):
        ...     def measure(self, domain, field, offset, periodic):
        ...         return jnp.sqrt(domain.mean(field**2))
        >>> RootMeanSquare("pressure").variable
        'pressure'
    """

    variable: str = eqx.field(static=True)

    def read(self, view):
        field, offset = view.variables[self.variable], view.offsets[self.variable]
        return self.measure(view.domain, field, offset, view.periodic)

    @abc.abstractmethod
    def measure(self, domain: Domain, field: Array, offset: Sequence[float], periodic: Sequence[bool]) -> Array:
        """Reading of the instrument.

        Args:
            domain: the grid and its decomposition.
            field: this block of the variable, of the spatial axes alone.
            offset: where in its cell the field lives, 0.5 (centre) or 0.0 (face) per axis.
            periodic: whether the field wraps, per axis.

        Returns:
            An array of `shape(domain.grid)`, the same on all devices unless `spec` says otherwise.
        """
