"""Valid configurations: typed, frozen, and free of anything that could still be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.devices import AUTO, AutoMesh, DistributedConfig, MeshConfig
from simjax.schema.ensemble_section import EnsembleConfig, EnsembleKeys
from simjax.schema.expressions import Expression
from simjax.schema.formula import Formula
from simjax.schema.instruments import Instruments
from simjax.schema.inverse import InverseConfig
from simjax.schema.kinds import (
    Choice,
    Flag,
    Integer,
    IntegerOr,
    ListOf,
    Nested,
    NestedOr,
    Real,
    Table,
    Text,
    key,
    write,
)
from simjax.schema.model_schema import AXES, FieldSchema, ModelSchema
from simjax.schema.output_section import CheckpointConfig, OutputConfig
from simjax.schema.particles import BoxConfig, NeighborListConfig, ParticlesSection
from simjax.schema.points_in_time import Moment
from simjax.schema.schema_number import SCHEMA
from simjax.schema.sponge_section import SpongeConfig
from simjax.schema.storage_section import StorageConfig
from simjax.schema.stretch import StretchConfig
from simjax.schema.time_statistics import TimeStatistics
from simjax.schema.triggers import EVENTS, EventConfig, StopConfig
from simjax.schema.troubles import Trouble

IMPLEMENTATIONS = ("xla", "pallas", AUTO)
PRECISIONS = ("float32", "float64")
DEFAULT_COURANT = 0.5
NAME = r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}"


@dataclass(frozen=True)
class GridConfig:
    """The section `grid`: cells and the box they fill."""

    shape: tuple[int, ...] = key(ListOf(Integer(1, 2**20), 1, 3, noun="cell counts"), about="cells along each axis")
    lower: tuple[float, ...] | None = key(
        ListOf(Real(formula=True), 1, 3, optional=True, noun="numbers"),
        None,
        units="m",
        about="lower corner of the box; null: zero",
    )
    upper: tuple[float, ...] | None = key(
        ListOf(Real(formula=True), 1, 3, optional=True, noun="numbers"),
        None,
        units="m",
        about="upper corner of the box; null: one",
    )
    stretch: StretchConfig | None = key(
        Nested(StretchConfig, optional=True), None, about="axes along which cells differ in width; null: none"
    )
    axisymmetric: bool = key(
        Flag(), False, about="whether x is the distance r from an axis of symmetry and y the position z along it"
    )

    def with_numbers(self, values: Mapping[str, float]) -> GridConfig:
        """The section with numbers in the place of the formulas of its stretching."""
        return self if self.stretch is None else dataclasses.replace(self, stretch=self.stretch.with_numbers(values))


@dataclass(frozen=True)
class TimeConfig:
    """One of `dt`, `courant` and `tolerance` is given; an `integrator` that is left out is the model's own default."""

    end: float = key(Real(low=0.0, formula=True), units="s", about="time at which the run ends")
    output_every: float = key(Real(above=0.0, formula=True), units="s", about="time between two frames")
    dt: float | None = key(
        Real(above=0.0, optional=True), None, units="s", about="length of every step; null: by courant or tolerance"
    )
    courant: float | None = key(
        Real(low=1e-6, high=10.0, optional=True),
        None,
        about="step over the model's largest one; the rates of all axes add up, so that in a gas 0.3 in a cube is 0.1 "
        "per axis",
    )
    tolerance: float | None = key(
        Real(above=0.0, high=0.1, optional=True),
        None,
        about="error of a step over the root mean square of each field, which chooses its length; null: another key",
    )
    absolute_tolerance: float | None = key(
        Real(above=0.0, optional=True),
        None,
        about="error of a step in each field's own units, beside that of tolerance; null: the number of tolerance",
    )
    integrator: str = key(
        Text(optional=True, described="a scheme of the model"),
        None,
        about="scheme in time; null: the first of the model",
    )

    @property
    def frames(self) -> int | None:
        """Number of frames to the end; None where there is no end or the last frame is shorter."""
        every = min(self.output_every, self.end)
        count = round(self.end / every) if every > 0.0 else 0
        return count if count and abs(self.end - count * every) <= 1e-9 * every else None


@dataclass(frozen=True)
class VerifyConfig:
    """The section `verify`: how much of a run is computed twice, to find what a machine computes wrong."""

    every: int = key(Integer(1), about="calls of the device of which one is computed twice, and its bits compared")


@dataclass(frozen=True)
class LimitsConfig:
    """The section `limits`: what a run may use before it stops by itself."""

    wall_clock: float | None = key(
        Real(above=0.0, optional=True),
        None,
        units="s",
        about="time from the start of Python after which a run stops with a checkpoint; null: none",
    )
    until: str | None = key(Moment(), None, about="date and time at which a job ends: a run stops before; null: none")
    memory: float | None = key(Real(above=0.0, optional=True), None, units="GiB", about="per device")
    step_shrink: float | None = key(
        Real(above=0.0, high=0.1, optional=True), 1e-6, about="least Courant-limited step, of the first one"
    )
    start_change: float | None = key(
        Real(above=0.0, high=1.0, optional=True),
        None,
        about="most that a model may change of an initial field, as a share of its L2 norm; null: any share",
    )


@dataclass(frozen=True)
class SideSpec:
    """One side of an axis: its kind, and the components of what it prescribes by key, one for keys in `single`."""

    kind: str
    fields: Mapping[str, tuple[Formula, ...]] = field(default_factory=dict)
    single: tuple[str, ...] = ()

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        written = {name: write(formulas) for name, formulas in self.fields.items()}
        return {"kind": self.kind} | {name: v[0] if name in self.single else v for name, v in written.items()}


@dataclass(frozen=True)
class AxisBoundary:
    """The walls at both ends of an axis."""

    lower: SideSpec
    upper: SideSpec

    @property
    def periodic(self) -> bool:
        return self.lower.kind == "periodic"

    def write(self) -> Any:
        """The plain YAML value."""
        return "periodic" if self.periodic else {"lower": self.lower.write(), "upper": self.upper.write()}


class Boundaries(tuple[AxisBoundary, ...]):
    """The sides of every axis, in the order x, y, z."""

    def write(self) -> dict[str, Any]:
        """The plain YAML value, by axis."""
        return {axis: boundary.write() for axis, boundary in zip(AXES, self, strict=False)}


@dataclass(frozen=True)
class FileSource:
    """Initial values from a file: a variable per component, at one time and member where it has several."""

    file: Path
    variables: tuple[str, ...]
    time: int | None = None
    member: int | None = None
    order: tuple[str, ...] | None = None

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        optional = {"time": self.time, "member": self.member, "order": write(self.order)}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"file": str(self.file), "variable": list(self.variables), **given}


@dataclass(frozen=True)
class BodyFile(FileSource):
    """The distance from a body whose shape a file has: an image, a closed outline of points, or a closed surface.

    An image fills the box of the grid, and is solid where it is dark, or light, as `inside` says. Other shapes are
    scaled, turned by `angle` (radians, counterclockwise, about the origin of the file) and moved to `at`.
    """

    scale: float = 1.0
    angle: float = 0.0
    at: tuple[float, ...] = ()
    inside: str = "dark"

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        if self.file.suffix.lower() == ".png":
            return {"file": str(self.file), "inside": self.inside}
        turned = {} if self.file.suffix.lower() == ".stl" else {"angle": self.angle}
        return {"file": str(self.file), "scale": self.scale, "at": list(self.at), **turned}


@dataclass(frozen=True)
class Given:
    """Initial values or coefficients that are arguments of a program: an array for each of `count` components."""

    count: int


FieldSource = tuple[Formula, ...] | FileSource | Given


def component_count(source: FieldSource) -> int:
    """Return the number of components of a field."""
    if isinstance(source, Given):
        return source.count
    return len(source if isinstance(source, tuple) else source.variables)


@dataclass(frozen=True)
class Config:
    """A valid configuration; `write` is the whole of it as plain values, which validate to an equal one.

    A model of fields has a `grid`, one of particles a `box` and `particles`; the others are None.
    """

    experiment_name: str
    title: str
    precision: str
    storage: StorageConfig | None
    implementation: str
    steps_per_exchange: int | str
    seed: int
    model: str
    physics: Any
    parameters: Mapping[str, float]
    grid: GridConfig | None
    box: BoxConfig | None
    particles: ParticlesSection | None
    neighbor_list: NeighborListConfig
    boundaries: Boundaries
    initial: Mapping[str, FieldSource]
    coefficients: Mapping[str, FieldSource]
    forcing: Mapping[str, tuple[Formula, ...]]
    closure: Mapping[str, tuple[Formula, ...]]
    exact: Mapping[str, Formula]
    time: TimeConfig
    mesh: MeshConfig
    distributed: DistributedConfig | str | None
    ensemble: EnsembleConfig
    output: OutputConfig
    checkpoint: CheckpointConfig
    resume: str | None
    limits: LimitsConfig
    overrides: tuple[str, ...] = field(compare=False, default=())
    description: str = field(compare=False, default="")
    notes: tuple[str, ...] = field(compare=False, default=())  # sentences about how it was composed
    inverse: InverseConfig | None = None
    objective: str | None = None
    profile: bool = False
    verify: VerifyConfig | None = None
    outputs: Instruments = Instruments()
    statistics: TimeStatistics = TimeStatistics()
    stop: StopConfig | None = None
    events: tuple[EventConfig, ...] | None = None
    sponge: SpongeConfig | None = None
    expressions: Mapping[str, Expression] = field(default_factory=dict)

    def write(self) -> dict[str, Any]:
        """The configuration as plain YAML values by key, every default filled in."""
        return {"schema": SCHEMA} | {field.name: write(getattr(self, field.name)) for field in dataclasses.fields(Keys)}

    @property
    def schema(self) -> ModelSchema:
        schema = MODELS[self.model]
        return dataclasses.replace(schema, expressions=(*self.expressions.items(),)) if self.expressions else schema

    @property
    def fields(self) -> tuple[FieldSchema, ...]:
        return self.schema.fields

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The troubles of the model that diagnostics tell of."""
        return tuple(one for one in self.schema.troubles if one.name in (self.output.troubles or ()))

    @property
    def ndim(self) -> int:
        if self.grid is not None:
            return len(self.grid.shape)
        assert self.box is not None
        return len(self.box.upper)

    def grid_of_fields(self) -> GridConfig:
        """The grid, its formulas evaluated; ConfigurationError where the model is one of particles."""
        return self.grid_as_written().with_numbers(self.parameters)

    def grid_as_written(self) -> GridConfig:
        """The grid; ConfigurationError where the model is one of particles."""
        if self.grid is None:
            raise ConfigurationError(
                f"model={self.model} has particles in a box; expected a model of fields on a grid."
            )
        return self.grid

    @property
    def counts(self) -> dict[str, int]:
        """Number of components of every initial field."""
        return {name: component_count(source) for name, source in self.initial.items()}

    @property
    def periodic(self) -> bool:
        """Tell whether every axis is periodic."""
        return all(axis.periodic for axis in self.boundaries)

    @property
    def walls_at_rest(self) -> bool:
        """Tell whether nothing is prescribed at any wall but zero, so that none feeds energy."""
        walls = [wall for axis in self.boundaries for wall in (axis.lower, axis.upper)]
        return all(value.constant == 0 for wall in walls for values in wall.fields.values() for value in values)

    def variables(self) -> tuple[str, ...]:
        """Names of the variables that a run can write."""
        return self.schema.variables(self.ndim, self.counts)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of a configuration file, in its order, before those that depend on each other are read together."""

    output: OutputConfig = key(Nested(OutputConfig), OutputConfig(), about="where a run writes, and what")
    experiment_name: str = key(
        Text(pattern=NAME, described="a name of letters, digits, _ . -"), "experiment", about="name of the run's folder"
    )
    title: str = key(Text(), "", about="title of pictures and report")
    precision: str = key(Choice(PRECISIONS), "float32", about="precision of all fields")
    storage: StorageConfig | None = key(
        Nested(StorageConfig, optional=True), None, about="16-bit fields between steps; null: those of precision"
    )
    implementation: str = key(
        Choice(IMPLEMENTATIONS), "xla", about="stencils by XLA or as Pallas kernels; auto: the faster one, measured"
    )
    steps_per_exchange: int | str = key(
        IntegerOr(Integer(0, 64), AUTO),
        0,
        about="steps between exchanges, and in a kernel; 0: each stencil; auto: measured",
    )
    seed: int = key(Integer(0, 2**32 - 1), 0, about="seed of noise, random places and random forces")
    model: str = key(Choice(MODELS.keys()), about="equations")  # a view: user models register later
    physics: Mapping[str, Any] = key(Table("the model's keys"), None, about="numbers and choices of the model")
    parameters: Mapping[str, Any] = key(
        Table("names with numbers"), None, about="numbers of your own, by name, for formulas"
    )
    grid: GridConfig | None = key(
        Nested(GridConfig, optional=True), None, about="cells and the box they fill, for models of fields"
    )
    box: BoxConfig | None = key(Nested(BoxConfig, optional=True), None, about="box of a model of particles")
    particles: Mapping[str, Any] | None = key(
        Table("the model's keys of where particles start", optional=True), None, about="where particles start"
    )
    neighbor_list: NeighborListConfig = key(
        Nested(NeighborListConfig), NeighborListConfig(), about="how particles are kept sorted"
    )
    boundaries: Mapping[str, Any] = key(
        Table("axes with their walls"), None, about="sides of each axis; left out: periodic"
    )
    initial: Mapping[str, Any] = key(Table("fields with formulas or a file"), None, about="fields at the start")
    coefficients: Mapping[str, Any] = key(
        Table("coefficients with formulas or a file"), None, about="fields of the equation"
    )
    forcing: Mapping[str, Any] | None = key(
        Table("fields with formulas", optional=True), None, about="terms added to the equations of fields"
    )
    closure: Mapping[str, Any] | None = key(
        Table("fields with formulas of the fields", optional=True), None, about="terms of the fields themselves"
    )
    sponge: Mapping[str, Any] | None = key(
        Table("axes with layers, and towards with fields", optional=True),
        None,
        about="layers beside sides in which fields are drawn towards given values; null: none",
    )
    exact: Mapping[str, Any] | None = key(
        Table("variables with formulas", optional=True), None, about="solutions with which a run is compared"
    )
    expressions: Mapping[str, Any] | None = key(
        Table("names with formulas of fields", optional=True), None, about="fields made of those of the run, by name"
    )
    time: TimeConfig = key(Nested(TimeConfig), about="time steps and frames")
    mesh: MeshConfig = key(
        NestedOr(MeshConfig, word=AUTO, meaning=AutoMesh()), MeshConfig(), about="devices along each axis; auto: chosen"
    )
    distributed: DistributedConfig | str | None = key(
        NestedOr(DistributedConfig, optional=True, word=AUTO),
        None,
        about="processes that carry out a run together; auto: as SLURM, a TPU pod, Kubernetes or Open MPI started them",
    )
    ensemble: EnsembleKeys = key(Nested(EnsembleKeys), EnsembleKeys(), about="members that run together")
    checkpoint: CheckpointConfig = key(
        Nested(CheckpointConfig), CheckpointConfig(), about="how often the state is saved"
    )
    resume: str | None = key(
        Text(optional=True, described="a run's folder or auto"),
        None,
        about="earlier run to go on with; auto: the newest of this experiment",
    )
    limits: LimitsConfig = key(Nested(LimitsConfig), LimitsConfig(), about="what a run may use")
    verify: VerifyConfig | None = key(
        Nested(VerifyConfig, optional=True), None, about="how much is computed twice; null: nothing"
    )
    outputs: tuple[Mapping[str, Any], ...] | None = key(
        ListOf(
            Table("an instrument such as {slice: {z: 0.5}, of: [pressure], every: 0.1}"),
            0,
            1000,
            optional=True,
            noun="instruments",
        ),
        None,
        about="slices, probes, averages and others, each with a cadence of its own; null: none",
    )
    statistics: tuple[Mapping[str, Any], ...] | None = key(
        ListOf(
            Table("statistics such as {of: [velocity], kinds: [mean, variance], from: 2.0}"),
            0,
            100,
            optional=True,
            noun="statistics",
        ),
        None,
        about="means, variances, covariances, third moments, extremes and Fourier integrals in time; null: none",
    )
    stop: StopConfig | None = key(
        Nested(StopConfig, optional=True), None, about="conditions on quantities that end the run; null: none"
    )
    events: tuple[EventConfig, ...] | None = key(
        EVENTS, None, about="conditions on quantities that write a frame; null: none"
    )
    inverse: Mapping[str, Any] | None = key(
        Table("unknowns and observations", optional=True), None, about="what is sought, and what was measured"
    )
    objective: str | None = key(
        Text(optional=True, described="the name of a diagnostic"), None, about="what a search by hydra/sweeper looks at"
    )
    profile: bool = key(
        Flag(), False, about="whether steps after the first frame are traced, and the time of their parts is told"
    )
