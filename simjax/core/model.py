"""The interface of a model: pure functions of time, state and parameters over one domain."""

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from simjax.core.boundary import FieldLayout
from simjax.core.domain import Domain
from simjax.core.face_planes import ModeOnPlane, WaveProduct
from simjax.core.measure_checks import MeasureCheck
from simjax.core.white_noise import WhiteNoise
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.notebook import box_picture, card
from simjax.schema.model_schema import ModelSchema
from simjax.schema.troubles import Trouble

PALETTES = (
    "diverging",
    "algae",
    "amp",
    "deep",
    "dense",
    "gray",
    "haline",
    "ice",
    "matter",
    "rain",
    "solar",
    "speed",
    "tempo",
    "thermal",
    "turbid",
)
"""Colour maps of pictures: one symmetric about zero, and those of cmocean that run from one end to the other."""


@dataclass(frozen=True)
class Output:
    """A variable that a model writes: its name in the file, where in the cell it lives, and its CF attributes.

    offset: place in the cell in units of the spacing, 0.5 at its centre and 0 on its lower face. units, long_name,
    standard_name: as CF has them. vector, component: the vector that it is a component of, and which.

    How pictures have it; of a component it says how they have the magnitude of its vector. palette: one of `PALETTES`;
    "diverging" is symmetric about zero once a value is negative, "" follows from the values. rank: what has the lowest
    is drawn first. singular: it may grow without bounds at sides, as a vorticity does at the corners of a lid, so that
    colours follow the values off them.

    Raises:
        ConfigurationError: there is no such palette.

    Examples:
        >>> model = sj.Incompressible(sj.Domain(sj.Grid((16, 16))), [(sj.PeriodicSide(), sj.PeriodicSide())] * 2)
        >>> [output.name for output in model.outputs()]
        ['velocity_x', 'velocity_y', 'vorticity', 'pressure']
    """

    name: str
    offset: tuple[float, ...]
    units: str = "1"
    long_name: str = ""
    standard_name: str = ""
    vector: str = ""
    component: int = -1
    palette: str = ""
    rank: int = 1
    singular: bool = False

    def __post_init__(self):
        if self.palette and self.palette not in PALETTES:
            raise ConfigurationError(
                f"output {self.name!r} has the palette {self.palette!r}; expected one of {', '.join(PALETTES)}, or '' "
                "for one that follows from the values."
            )


@dataclass(frozen=True)
class Measure:
    """The description of a number recorded at every output time: its units and its meaning in words.

    units: as UDUNITS writes them, "1" for a plain number. long_name: what reports and axes of pictures say. shown: its
    label in the progress line. Where some have one, the line has these alone, beside those of the time steps, and the
    report draws them first. check: what must hold of it in every run, `Conserved` or `Falling`, which the report tells;
    what holds in some configurations is said by `conserved` and `falling` of `sj.model`.

    Examples:
        >>> sj.Measure("m2 s-2", "mean kinetic energy").units
        'm2 s-2'
    """

    units: str = "1"
    long_name: str = ""
    shown: str = ""
    check: MeasureCheck | None = None


class Rounding(NamedTuple):
    """The change by one relative rounding of a diagnostic that would vanish in exact numbers.

    computed: where it is of the numbers that a step computes with. stored: of the fields that it leaves, where they are
    kept in fewer digits.
    """

    computed: jax.Array
    stored: jax.Array


class Model(eqx.Module):
    """Equations on a domain: pure functions, written once, that know neither devices nor time stepping.

    A model is abstract or final. `state` and `params` are pytrees (usually `eqx.Module`s); every spatial field
    in `state` has the spatial axes last. How a model advances in time is said by the abstract classes below.

    Examples:
        >>> issubclass(sj.Gravity, sj.Model), issubclass(sj.Acoustic, sj.Model)
        (True, True)
    """

    Params: ClassVar[type]
    """The class of `params`, as in `Incompressible.Params(viscosity, drag)`; dict if parameters are numbers by name."""

    State: ClassVar[type]
    """The class of `state`; dict if fields stand by name."""

    Keys: ClassVar[type]
    """The dataclass of what a configuration of the model says in the section `physics`."""

    declarations: ClassVar[Mapping[str, ModelSchema]] = {}
    """Declarations of the class by the names of models in configurations; see `models.declaration.model`."""

    domain: eqx.AbstractVar[Domain]

    def __repr__(self) -> str:
        """The class and its grid; `equinox.tree_pformat` shows all of a model."""
        return f"{type(self).__name__} on {self.domain.grid}"

    @classmethod
    def declared(cls) -> dict[str, Any]:
        """The properties of a declaration that follow from the class; see `models.declaration.model`."""
        return {}

    @classmethod
    def restated(cls) -> dict[str, Any]:
        """The properties of a declaration that follow from the class whatever a base of it declares."""
        return {}

    @classmethod
    def configured(cls, setup) -> tuple[Any, Any]:
        """The model and its parameters from a `models.declaration.Setup`.

        Raises:
            ConfigurationError: the class does not say how; it is for configurations alone, and may be left out.
        """
        raise ConfigurationError(
            f"{cls.__name__}.configured is missing: expected a class method that returns the model and its parameters "
            "for a Setup; docs/own-models.md shows one."
        )

    def constrain(self, t, dt, state, params) -> Any:
        """`state` brought back to what must hold at time `t` (walls, divergence); called after each stage."""
        return state

    def perturb(self, step, t, dt, state, params) -> Any:
        """Apply changes made once at the end of a step whatever the scheme, such as random forcing.

        `step` counts the steps since the start, int32; it depends neither on the decomposition nor on how a run is
        cut into pieces. `t` and `dt` are the step's beginning and length.
        """
        return state

    def unphysical(self, state, params) -> dict[str, jax.Array]:
        """Cells of this block whose state is unphysical, by the reason, such as "pressure <= 0"."""
        return {}

    def fault(self, t, params) -> jax.Array | None:
        """Bits of `status` for errors at time `t` that do not depend on the state; None if there can be none.

        They are the same on all devices.
        """
        return None

    def explain(self, t, params) -> str:
        """Describe, on the host, the fault found at time `t`, with its numbers; "" if there is none."""
        return ""

    def beside_tendency(self, params) -> str:
        """Name, as a subject, what changes the state beside the tendency; "" if the tendency is the whole law.

        Rounding that `constrain` cleans up does not count.
        """
        plain = type(self).constrain is Model.constrain and type(self).perturb is Model.perturb
        return "" if plain else f"what {type(self).__name__} does to the state after each stage or step"

    def irreversible(self, params) -> str:
        """Name, as a subject, what keeps a step back in time from restoring the state; "" if nothing does."""
        return f"what {type(self).__name__} does in a step"

    @abc.abstractmethod
    def stable_dt(self, state, params) -> jax.Array:
        """The time step at Courant number one: a scalar or a field; `simulate` takes the global minimum."""

    def diagnostics(self, t, state, params) -> dict[str, jax.Array]:
        """Global scalars worth following, each reduced through `domain`."""
        return {}

    def notes(self) -> list[str]:
        """Sentences for the log on choices that the model made by itself."""
        return []

    def measures(self) -> dict[str, Measure]:
        """Units and meanings of `diagnostics`, by name; those of `receiver_0`, ... stand under `receiver`."""
        return {}

    def partition_specs(self, state, params) -> tuple[Any, Any]:
        """Partition of every leaf of `state` and `params`: fields are cut like the grid, the rest replicated.

        A model with field-valued parameters overrides this; nothing is guessed from shapes of parameters.
        """
        replicated = jax.sharding.PartitionSpec()
        ndim = self.domain.grid.ndim
        state_specs = jax.tree.map(lambda u: self.domain.spec(u.ndim) if u.ndim >= ndim else replicated, state)
        return state_specs, jax.tree.map(lambda _: replicated, params)


class GridModel(Model):
    """A model of fields on the cells of a grid."""

    troubles: ClassVar[tuple[Trouble, ...]] = ()
    """Indicators of cells in which something may go wrong; see `trouble`."""
    taken_through: ClassVar[str] = "what the model imposes"
    """Name, as what something is changed by, of what initial fields go through."""

    def _repr_html_(self) -> str:
        lead = (type(self).__doc__ or "").strip().splitlines()
        grid, sides = self.domain.grid, self._sides()
        rows = [
            ("grid", f"{' × '.join(map(str, grid.shape))} cells"),
            ("writes", ", ".join(f"{out.name} [{out.units}]" for out in self.outputs())),
            ("periodic", ", ".join(axis for axis, periodic in sides if periodic)),
            ("bounded", ", ".join(axis for axis, periodic in sides if not periodic)),
        ]
        return card(type(self).__name__, rows, box_picture(grid.lengths, grid.shape), lead[0] if lead else "")

    def _sides(self) -> list[tuple[str, bool]]:
        """The axes, and whether each is periodic."""
        layout = next((parts[0] for parts in self.component_layouts().values()), None)
        axes = AXES[: self.domain.grid.ndim]
        return [] if layout is None else [(axis, layout.is_periodic(number)) for number, axis in enumerate(axes)]

    @abc.abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """Description of the variables that `observe` returns."""

    @abc.abstractmethod
    def observe(self, t, state, params) -> dict[str, jax.Array]:
        """The variables to write, by name, on this block."""

    def trouble(self, name: str, t, state, params) -> jax.Array:
        """One of its `troubles` in each cell of this block, by name: truth values, or numbers, the larger the worse."""
        return next(one for one in self.troubles if one.name == name).find(self, t, state, params)

    @abc.abstractmethod
    def component_layouts(self) -> dict[str, tuple[FieldLayout, ...]]:
        """Layouts of the components of every field that has an initial condition, by field."""

    @abc.abstractmethod
    def state_from(self, fields: dict[str, tuple[jax.Array, ...]], params) -> Any:
        """The state with the given components of every field of `component_layouts`."""

    def fields_from(self, names: Collection[str], state, params) -> dict[str, tuple[jax.Array, ...]]:
        """Initial fields as a state has them, components by field: the way back of `state_from`.

        names: of the fields that it was made of. By default those that the state has under their own names. Fields are
        left out of which no way leads back, or which the model takes as they are.
        """
        by_name = state if isinstance(state, dict) else {name: getattr(state, name, None) for name in names}
        found = {name: u for name in names if (u := by_name.get(name)) is not None}
        return {name: u if isinstance(u, tuple) else (u,) for name, u in found.items()}

    def roundings(self, t, dt, state, params, tendency: Callable[[], Any]) -> dict[str, Rounding]:
        """The `diagnostics` that would vanish in exact numbers, with what roundings of the last step leave.

        dt: length of that step. tendency: function that returns d(state)/dt, all forces on the model included.
        """
        return {}

    def mean_products(self, a, b) -> Any:
        """Means over the box of the products of two trees like the state: one for each component of each field."""
        ndim = self.domain.grid.ndim

        def mean_product(u, v):
            product = jnp.real(u * jnp.conj(v))
            if u.ndim < ndim:  # the same on all devices
                return product
            return self.domain.total(jnp.sum(product, axis=tuple(range(-ndim, 0)))) / self.domain.grid.cells

        return jax.tree.map(mean_product, a, b)

    def condensed(self, state) -> Any:
        """The state as loops over steps carry it: of fields that are zero but for some lines these lines alone."""
        return state

    def expanded(self, condensed, state) -> Any:
        """The whole state again, with what `condensed` left out of the given one."""
        return condensed

    def with_shot(self, params, shot) -> tuple[Any, Callable[[Any], jax.Array]]:
        """The parameters with the sources of a shot, and what this block of a state adds at receivers: (receivers,).

        shot: a `Shots` without the axis of shots.

        Raises:
            ConfigurationError: the model has no point sources.
        """
        raise ConfigurationError(
            f"shots: expected a model with point sources and receivers, such as acoustic or maxwell_tm; "
            f"{type(self).__name__} has none. Leave shots out."
        )

    def along_bodies(self, t, state, params, points) -> dict[str, jax.Array]:
        """Readings along the surface of bodies, `(points,)` by name; see `instruments.body_surface`.

        Raises:
            ConfigurationError: there are no bodies.
        """
        raise ConfigurationError(
            f"{type(self).__name__}.along_bodies: the model has no bodies; look at it with a probe, line or slice."
        )

    def readings_along_bodies(self) -> Mapping[str, tuple[str, str]]:
        """Units and meanings of those readings of `along_bodies` that a model of another kind has in other units."""
        return {}

    def energy_flux_along(self, axis: int) -> tuple[WaveProduct, ...]:
        """The products of two variables that make the energy flux of linear waves along an axis; none of others."""
        return ()

    def guided_modes(
        self, params, axis: int, place: float, frequency: float, dt: float, count: int, ends: tuple
    ) -> Sequence[ModeOnPlane]:
        """The first modes of a waveguide on faces across an axis, of steps of a length; ends: of their line, or None.

        Raises:
            ConfigurationError: the model has no waveguides, or not so many modes.
        """
        raise ConfigurationError(f"{type(self).__name__} has no waveguides; use maxwell_tm or maxwell_te.")

    def marks(self, params) -> dict[str, jax.Array]:
        """Places `(count, axes)` to mark in pictures, by kind: sources, receivers."""
        return {}

    def body_distance(self, params) -> Callable[[Mapping[str, jax.Array]], jax.Array] | None:
        """The distance from a body at centres, as a function of the diagnostics that say where it is; None: no body."""
        return None

    def free_faces(self, t, state, params) -> dict[str, jax.Array]:
        """Upper wall faces that are unknowns of their own, by the name of the output that lies on such faces.

        Each is an array like the output that is zero but for its last line along the faces' axis.
        """
        return {}

    def constant_parts(self, params) -> Any:
        """Form what steps need and time does not change, if it costs much: once, for all programs of a run."""
        return None

    def parts_at_start(self, params) -> Any:
        """Form what holds at the start of a run alone, for `with_parts`, if it costs much: once, for `constrain` there
        and for `constant_parts`."""
        return None

    def with_parts(self, parts) -> Any:
        """The model with its `constant_parts`; a model without them forms them where it needs them."""
        return self


class SelfSteppingModel(Model):
    """A model that takes its own steps, of a fixed length, on an arrangement that serves several of them.

    Particles are sorted into cells, and the pairs that may come near each other listed, once in
    `steps_per_arrangement` steps. An arrangement is formed from the state alone: it is never stored with one.
    """

    steps_per_arrangement: eqx.AbstractVar[int]

    @abc.abstractmethod
    def arrange(self, state, params) -> tuple[Any, Any, jax.Array]:
        """`state` rearranged, what the next `steps_per_arrangement` steps need of it, and bits of `status`.

        The bits say what went wrong on any device; they are the same on all.
        """

    @abc.abstractmethod
    def step(self, number, t, dt, state, params, arrangement) -> Any:
        """`state` at t + dt. `number` counts the steps since the start, int32."""

    @abc.abstractmethod
    def skin_used(self, state, arrangement) -> jax.Array:
        """Share of what the arrangement allows that is used up on this device: beyond 1 it no longer serves."""


class ExplicitModel(GridModel):
    """A model given by its tendency, d(state)/dt = rhs(t, state, params).

    `rhs` returns a tree like `state`, in the units of the state per time; `stable_dt(state, params)` the step at
    Courant number one.

    Examples:
        >>> issubclass(sj.Incompressible, sj.ExplicitModel)
        True
    """

    @property
    def loops_over_stages(self) -> bool:
        """True if Runge-Kutta methods take their stages in a loop, so that the program holds the tendency once.

        Compilation takes that much less time; a loop of short stages would copy its state for nothing.
        """
        return False

    @abc.abstractmethod
    def rhs(self, t, state, params) -> Any:
        """The tendency d(state)/dt, a tree like `state`."""

    def white_noise(self, t, state, params) -> WhiteNoise | None:
        """White noise beside the tendency, for `sj.stochastic` schemes; None: there is none."""
        return None


class SemiImplicitModel(ExplicitModel):
    """A tendency in two parts, one of which (stiff and linear) can be taken implicitly: rhs = explicit + implicit."""

    @abc.abstractmethod
    def explicit_rhs(self, t, state, params) -> Any:
        """The part of the tendency that is always taken explicitly."""

    @abc.abstractmethod
    def implicit_rhs(self, t, state, params) -> Any:
        """The part of the tendency that may be taken implicitly."""

    @abc.abstractmethod
    def implicit_solve(self, t, dt, right, params, prepared) -> Any:
        """The state with state - dt implicit_rhs(t, state) = `right`; `prepared` is what `prepare` returned."""

    @abc.abstractmethod
    def explicit_stable_dt(self, state, params) -> jax.Array:
        """`stable_dt` of the explicit part alone."""

    def prepare(self, params) -> Any:
        """Compute time-independent coefficients of implicit solves, once before the steps."""
        return None

    def rhs(self, t, state, params) -> Any:
        return jax.tree.map(jnp.add, self.explicit_rhs(t, state, params), self.implicit_rhs(t, state, params))


class SemilinearModel(SemiImplicitModel):
    """d(state)/dt = L state + N(t, state) with L diagonal in the state's own basis."""

    @abc.abstractmethod
    def linear(self, params) -> Any:
        """The diagonal of L, a tree like the state of arrays that broadcast against it."""

    def implicit_rhs(self, t, state, params):
        return jax.tree.map(jnp.multiply, self.linear(params), state)

    def implicit_solve(self, t, dt, right, params, prepared):
        return jax.tree.map(lambda symbol, u: u / (1 - dt * symbol), self.linear(params), right)


class SplitModel(GridModel):
    """A model in two parts that each advance one half of the state while the other half is fixed.

    The half that `kick` advances (velocity) may lag behind the other; see `integrators.splitting.Leapfrog`.
    """

    @abc.abstractmethod
    def prepare(self, params) -> Any:
        """Compute time-independent coefficients of both parts, once before the steps."""

    @abc.abstractmethod
    def kick(self, t, dt, state, params, prepared) -> Any:
        """The state after the first half changed for `dt` under the second half at time `t`."""

    @abc.abstractmethod
    def drift(self, t, dt, state, params, prepared) -> Any:
        """The state after the second half changed for `dt` under the first half at time `t`."""
