"""Declaration of a registered model as configurations see it. Importing it does not import jax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from simjax.schema.exclusions import Exclusions
from simjax.schema.expressions import Expression
from simjax.schema.troubles import Trouble

AXES = ("x", "y", "z")

RUNGE_KUTTA = ("kutta3", "euler", "midpoint", "heun", "ssprk2", "ssprk3", "williamson3", "rk4")
IMEX = ("ars222", "imex_euler", "ars343", "ars443")
EXPONENTIAL = ("etdrk2", "etdrk1", "etdrk3", "etdrk4")
SEMILINEAR = ("etdrk4", "etdrk1", "etdrk2", "etdrk3", *IMEX)  # for a stiff linear part that is diagonal
SPLITTING = ("leapfrog",)
STOCHASTIC = ("euler_maruyama", "shark")  # for models with noise
INTEGRATORS = (*RUNGE_KUTTA, *IMEX, *EXPONENTIAL, *SPLITTING)
FIELDS, PARTICLES = "fields", "particles"
"""Families of models: those on a grid, and those in a box."""
ERROR_CONTROLLED = ("tsit5", "bosh3", "dopri8", "kvaerno5", "kencarp4")


Claims = tuple[str | tuple[str, ...], ...]
"""Diagnostics that are checked after a run, by name, or each with the names of those that it is measured by."""


@dataclass(frozen=True)
class FieldSchema:
    """A field given by formulas or a file: an initial condition, or a coefficient of the equation.

    A scalar has one component, a `vector` one per axis (three if it is `whole`), a `free` field as many as are given.
    `default` is what stands where it is left out; without one (None) it must be given, unless it is `optional`.
    Components of a `staggered` vector lie on the faces normal to them, everything else at cell centres (for
    coefficients; initial fields lie where the model has them; `at_corners`: this scalar is not at cell centres).
    A `distance` from the surface of bodies may also be given by shapes.

    Examples:
        >>> sj.FieldSchema("velocity", vector=True, units="m s-1").components(2)
        ('velocity_x', 'velocity_y')
    """

    name: str
    vector: bool = False
    units: str = "1"
    default: float | str | None = 0.0
    staggered: bool = False
    optional: bool = False
    free: bool = False
    whole: bool = False
    at_corners: bool = False
    distance: bool = False

    def components(self, ndim: int, count: int = 0) -> tuple[str, ...]:
        """Names of the variables in the file: `velocity_x`, ...; a scalar is its own; `count` of a free field."""
        if self.free:
            return tuple(f"{self.name}_{number}" for number in range(count))
        axes = AXES if self.whole else AXES[:ndim]
        return tuple(f"{self.name}_{axis}" for axis in axes) if self.vector else (self.name,)

    def offset(self, ndim: int, component: int) -> tuple[float, ...]:
        """Place of a coefficient's component in its cell."""
        return tuple(0.0 if self.staggered and axis == component else 0.5 for axis in range(ndim))


SPEED = "speed"


def magnitude_of(vector: str) -> str:
    """The name of the magnitude of a vector: of a velocity it is a speed, whatever model has it."""
    return SPEED if vector == "velocity" else f"{vector}_magnitude"


@dataclass(frozen=True)
class Derived:
    """A variable that can be written beside the model's own: the magnitude of some of these, or one at cell centres."""

    components: tuple[str, ...]
    centered: bool = False
    long_name: str = ""
    vector: str = ""
    component: int = -1


@dataclass(frozen=True)
class ModelSchema:
    """Declaration of a registered model: every key, field, side and scheme that a configuration may name.

    It is that of a model of fields on a grid; `schema.particle_model_schema.ParticleModelSchema` says what is other for
    particles in a box. `family` is the word for this. needed: the sections that say where it is. draws: whether a run
    draws from the seed whatever its formulas say. noise_at_start: whether formulas of initial fields may call noise.
    instrument_example: an entry of `outputs` in a hint. REFUSED: what no model of the family takes, and what is
    expected instead.

    physics: dataclass of its keys. fields: what has an initial condition. coefficients: fields of the equation. sides:
    those that it takes beside the periodic one, as `schema.side_declarations.sides_of` names them. diagnosed: further
    variables that can be written, by dimension. integrators: the schemes that fit, the default first; none where the
    model takes its own steps. limited: whether a Courant number makes sense. stretched, axisymmetric: whether it takes
    such grids. forced: fields that take a forcing (None: all). check: sentences about a `Config` that is otherwise
    valid, each with its key path. conserved: diagnostics that stay as they are in a `Config`, each by itself or with
    those by the largest of which its rounding is measured. falling: those that never rise, each by itself or with the
    mean of half the square of a rate, by which the error of steps is measured. balanced: quantities that have balances,
    by dimension and counts of free fields. passing: those of which fluxes through faces are known. along_bodies: what
    can be read along the surface of its bodies. troubles: where in a state something may go wrong. particles: of a
    model of particles, which has a box and not a grid, the dataclass of the section that says where they start; its
    `fields` are formulas at their places. given_at_start: vectors of particles that may be arrays by number, such as
    "position". dimensionless: lengths and times are numbers, not metres and seconds. functions: coefficients of a
    `Config` that are read at places other than cells, so that they cannot be arrays. exclusions: its features that
    exclude each other, which `check` and its constructor refuse. configured: makes the model and its parameters from a
    `models.declaration.Setup`, or a family of particles from a `Config`. summary: its name and equation, in a line.
    expressions: fields that a configuration makes of those of the model, by their names.
    """

    name: str
    physics: type
    fields: tuple[FieldSchema, ...]
    sides: tuple[str, ...] = ()
    diagnosed: Callable[[int], tuple[str, ...]] = lambda ndim: ()
    least_axes: int = 1
    most_axes: int = 3
    coefficients: tuple[FieldSchema, ...] = ()
    integrators: tuple[str, ...] = RUNGE_KUTTA
    limited: bool = True
    stretched: bool = False
    axisymmetric: bool = False
    forced: tuple[FieldSchema, ...] | None = None
    check: Callable[[Any], Iterable[tuple[str, str]]] = lambda config: ()
    conserved: Claims | Callable[[Any], Claims] = ()
    falling: Claims | Callable[[Any], Claims] = ()
    balanced: Callable[[int, Mapping[str, int]], tuple[str, ...]] = lambda ndim, counts: ()
    passing: Callable[[int, Mapping[str, int]], tuple[str, ...]] = lambda ndim, counts: ()
    along_bodies: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    particles: type | None = None
    given_at_start: tuple[str, ...] = ()
    dimensionless: bool = False
    functions: Callable[[Any], tuple[str, ...]] = lambda config: ()
    exclusions: Exclusions | None = None
    configured: Callable[[Any], Any] | None = None
    summary: str = ""
    expressions: tuple[tuple[str, Expression], ...] = ()

    family: ClassVar[str] = FIELDS
    needed: ClassVar[tuple[str, ...]] = ("grid",)
    draws: ClassVar[bool] = False
    noise_at_start: ClassVar[bool] = True
    instrument_example: ClassVar[str] = "such as {probe: {points: [[0.2, 0.3]]}, of: [pressure], every: 0.01}"
    REFUSED: ClassVar[Mapping[str, str]] = {
        "output.particles": "expected none for a model of fields; write fewer of them with output.fields",
    }

    def refusal(self, what: str) -> str | None:
        """Tell what is expected instead of a key or a feature that the family does not take; None where it does."""
        expected = self.REFUSED.get(what)
        return None if expected is None else expected.format(model=self.name)

    def claimed(self, what: str, config: Any) -> list[tuple[str, ...]]:
        """Name what is `conserved` or `falling` in a configuration: a diagnostic, and those that it is measured by."""
        given: Any = getattr(self, what)
        claims: Any = given(config) if callable(given) else given
        return [(one,) if isinstance(one, str) else tuple(one) for one in claims]

    def axes_refusals(self, path: str, sizes: Sequence[float]) -> Iterator[tuple[str, str]]:
        """A sentence on a grid or a box of other axes than the model takes, with the key path of its `sizes`."""
        least, most, count = self.least_axes, self.most_axes, len(sizes)
        if not least <= count <= most:
            axes = f"at least {least} axes" if count < least else f"at most {most} axes"
            write = f"{least} to {most}" if least < most else f"{least}"
            yield path, f"{path} = {list(sizes)}: expected {axes} for model={self.name}; write {write} numbers"

    @property
    def of_particles(self) -> bool:
        """Tell whether the model has particles in a box rather than fields on a grid."""
        return self.family == PARTICLES

    @property
    def noisy(self) -> bool:
        """Tell whether it has white noise."""
        return self.integrators == STOCHASTIC

    @property
    def time_units(self) -> str:
        """Units of times."""
        return "1" if self.dimensionless else "s"

    @property
    def length_units(self) -> str:
        """Units of lengths."""
        return "1" if self.dimensionless else "m"

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of modules that may be in the model: what has a tendency takes a closure."""
        return () if self.integrators in (SPLITTING, ()) else ("closure",)

    @property
    def error_controlled(self) -> tuple[str, ...]:
        """The schemes for steps under a tolerance, the default first; none without a tendency."""
        if self.integrators in (SPLITTING, STOCHASTIC, ()):
            return ()
        explicit = tuple(name for name in ERROR_CONTROLLED if name != "kencarp4")
        if not {*self.integrators} & {*IMEX}:
            return explicit
        return (*explicit, "kencarp4") if self.integrators[0] in RUNGE_KUTTA else ("kencarp4", *explicit)

    def field(self, name: str) -> FieldSchema:
        return next(field for field in self.fields if field.name == name)

    def variables(self, ndim: int, counts: Mapping[str, int] | None = None) -> tuple[str, ...]:
        """Variables that a run can write: components of fields (`counts` of free ones), then diagnosed variables."""
        counts = {} if counts is None else counts
        names = (name for field in self.fields for name in field.components(ndim, counts.get(field.name, 0)))
        return tuple(names) + self.diagnosed(ndim)

    def derived(self, ndim: int) -> dict[str, Derived]:
        """List the variables derived from vectors: components at cell centres, and the magnitude.

        Of `velocity` in a plane `velocity_centered_x`, `velocity_centered_y` and `speed`; of another vector such as
        `magnetic` `magnetic_centered_x`, ... and `magnetic_magnitude`.
        """
        found: dict[str, Derived] = {}
        for field in self.fields:
            parts = field.components(ndim)
            if not field.vector:
                if field.at_corners:
                    found[f"{field.name}_centered"] = Derived(parts, centered=True)
                continue
            name = f"{field.name}_centered"
            for number, part in enumerate(parts):
                found[f"{name}{part.removeprefix(field.name)}"] = Derived((part,), True, "", name, number)
            size = magnitude_of(field.name)
            found[size] = Derived(parts, long_name=size.replace("_", " "))
        own = self.variables(ndim)
        return {name: derived for name, derived in found.items() if name not in own}

    def written(self, ndim: int, counts: Mapping[str, int] | None = None) -> dict[str, tuple[str, ...]]:
        """Names that `output.fields` takes, each with its variables: one of these, a field with all components, or a
        trouble."""
        counts, derived = counts or {}, self.derived(ndim)
        names: dict[str, tuple[str, ...]] = {name: (name,) for name in (*self.variables(ndim, counts), *derived)}
        for field in self.fields:
            if field.vector or field.free:
                names[field.name] = field.components(ndim, counts.get(field.name, 0))
        for name, one in derived.items():
            if one.vector:
                names[one.vector] = (*names.get(one.vector, ()), name)
        names |= {name: (name,) for name, _ in self.expressions}
        return {**{one.name: (one.name,) for one in self.troubles if not one.lowest}, **names}

    def vectors(self, ndim: int) -> dict[str, tuple[str, ...]]:
        """Names of vectors with a component for each axis, each with these."""
        found = self.written(ndim)
        return {name: parts for name, parts in found.items() if parts == tuple(f"{name}_{a}" for a in AXES[:ndim])}

    def trouble(self, name: str) -> Trouble | None:
        """The trouble of this name, if it is one."""
        return next((one for one in self.troubles if one.name == name), None)

    def averaged(self, ndim: int, counts: Mapping[str, int]) -> dict[str, tuple[str, ...]] | None:
        """Names that `statistics` take, each with its variables; None where they are known with the programs alone."""
        return self.written(ndim, counts)

    def source_of(self, config: Any, section: str, name: str) -> Any:
        """The formulas or the file of a field of `initial` or `coefficients`; None where it is not given."""
        return getattr(config, section).get(name)

    def array_paths(self, config: Any) -> list[str]:
        """Paths of the fields of a `Config` that a run can be given as arrays."""
        return [f"{section}.{name}" for section in ("initial", "coefficients") for name in getattr(config, section)]
