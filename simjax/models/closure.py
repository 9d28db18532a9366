"""Terms that are not known: a module that is learned, or any function of the fields, added to a model's tendency."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_count, require_one_of, shown
from simjax.core.boundary import Extrapolated, FieldLayout
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, GridModel, SemiImplicitModel, SemilinearModel
from simjax.errors import ConfigurationError
from simjax.grid import AXES
from simjax.jaxpr.varying import match_varying
from simjax.notebook import all_in_a_line
from simjax.ops import staggered


class Closure(eqx.Module):
    """A term of an equation: d(field)/dt = what the model says + module(fields), the same function at every cell.

    module: any Equinox module, or function, from padded fields to one tendency for each (one array, or a tuple),
    called as `module(*fields)`. A field is one component, `(..., n + 2 width, ...)`; the tendency is on the interior,
    in units of the field per time. fields: names of initial fields of the model, in the order in which the module
    takes and returns them, a vector with all of its components; none: all of them in the model's order. width: ghost
    cells on every side; 0: each cell by itself. coordinates: some of "x", "y", "z" and "t", which the module is given
    by these names too: `module(*fields, x=..., t=...)`, positions as padded arrays like the fields (along a periodic
    axis those of the same place inside the box), the time as a scalar.

    Where components live at several places in the cell, as on a staggered grid, the module is called once for each
    place with all fields and coordinates there, by the mean of neighbours (second order), and of what it returns the
    tendencies of the components that live at this place are taken.

    Parameters of the module are its floating-point arrays. Its own time scale does not enter a Courant limit.

    Examples:
        >>> growth = sj.Closure(lambda c: 0.5 * c * (1 - c), fields=("concentration",))
    """

    module: Callable
    fields: tuple[str, ...] = eqx.field(static=True, default=())
    width: int = eqx.field(static=True, default=0)
    coordinates: tuple[str, ...] = eqx.field(static=True, default=())

    __repr__ = all_in_a_line

    def rate(self) -> Array | None:
        """The largest rate of what it adds, 1 / time, by which Courant-limited steps are shorter; None: not known."""
        return None

    def __check_init__(self):
        for argument, names in (("fields", self.fields), ("coordinates", self.coordinates)):
            if not isinstance(names, tuple) or len({*names}) < len(names):
                raise ConfigurationError(
                    f"Closure.{argument}={names!r}: expected a tuple of different names, such as ('u',)."
                )
        if not {*self.coordinates} <= {*AXES, "t"}:
            raise ConfigurationError(f"Closure.coordinates={self.coordinates!r}: expected some of x, y, z and t.")
        if not isinstance(self.width, int) or self.width < 0:
            raise ConfigurationError(f"Closure.width={shown(self.width)}: expected a number of ghost cells, 0 or more.")


def in_precision(closure: Closure, dtype) -> Closure:
    """The closure with its floating-point arrays in the precision of a run."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if eqx.is_inexact_array(leaf) else leaf, closure)


class Closed(eqx.Module):
    """Parameters of a model, and the arrays of the closure around it."""

    own: Any
    weights: Any

    __repr__ = all_in_a_line


def with_closure(model: GridModel, params, closure: Closure) -> tuple[GridModel, Closed]:
    """The model with the tendency of `closure` added, and its parameters.

    Of a semi-implicit model the closure belongs to the explicit part.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params = line.Params(jnp.asarray(0.01), jnp.ones(1))
        >>> growth = sj.Closure(lambda c: 0.5 * c * (1 - c), fields=("concentration",))
        >>> model, params = sj.with_closure(line, params, growth)
    """
    weights, rest = eqx.partition(closure, eqx.is_inexact_array)
    kinds = {
        SemilinearModel: SemilinearWithClosure,
        SemiImplicitModel: SemiImplicitWithClosure,
        ExplicitModel: ExplicitWithClosure,
    }
    for kind, wrapper in kinds.items():
        if isinstance(model, kind):
            return wrapper(model.domain, model, rest), Closed(params, weights)
    raise ConfigurationError(
        f"modules.closure: expected a model with a tendency to add to; {type(model).__name__} advances in two halves; "
        "leave the closure out."
    )


class _WithClosure(GridModel):
    """A model with a closure: everything but the tendency is the model's own."""

    model: eqx.AbstractVar[Any]
    rest: eqx.AbstractVar[Closure]

    def added(self, slope, t, state, params):
        """`slope` and the closure's tendency, as the state has it.

        The model's own map from fields to its state is differentiated in the direction of the fields' tendencies, so
        they may be primitive variables of conserved ones, or samples of a spectrum.
        """
        closure: Closure = eqx.combine(params.weights, self.rest)
        fields = self._fields(t, state, params)
        names = closure.fields or tuple(fields)
        for name in names:
            if name not in fields:
                raise ConfigurationError(
                    f"Closure.fields={list(names)}: expected initial fields of {type(self.model).__name__} that its "
                    f"state tells; write some of {', '.join(fields)}."
                )
        tendencies = self._tendencies(closure, t, {name: fields[name] for name in names})
        direction = {name: tendencies.get(name) or jax.tree.map(jnp.zeros_like, u) for name, u in fields.items()}
        _, added = jax.jvp(lambda fields: self.model.state_from(fields, params.own), (fields,), (direction,))
        return jax.tree.map(jnp.add, slope, added)

    def _tendencies(self, closure: Closure, t, fields: dict[str, tuple[Array, ...]]) -> dict[str, tuple[Array, ...]]:
        """Evaluate the module's tendency of each field, its components at their own places."""
        layouts = self.model.component_layouts()
        kinds = tuple(layout for name in fields for layout in layouts[name])
        read = tuple(u for components in fields.values() for u in components)
        axes = self._axes_of(closure)
        places = tuple(dict.fromkeys(kind.offset for kind in kinds))
        margin = len(places) > 1  # a mean of neighbours takes one ghost cell
        positions = [self._positions(place, axes, kinds[0], read[0]) for place in places]

        def stencil(*blocks: Array) -> tuple[Array, ...]:
            padded, x = blocks[: len(read)], blocks[len(read) :]
            found: dict[int, Array] = {}
            for number, place in enumerate(places):
                own = [(u, kind.offset) for u, kind in zip(padded, kinds, strict=True)]
                own += [(u, place) for u in x[number * len(axes) :][: len(axes)]]
                here = [staggered.mean_at(u, offset, place) if margin else u for u, offset in own]
                named: dict[str, Any] = {AXES[axis]: u for axis, u in zip(axes, here[len(read) :], strict=True)}
                if "t" in closure.coordinates:
                    named["t"] = jnp.asarray(t, read[0].dtype)
                inputs = here[: len(read)]
                told = _as_fields(closure.module(*inputs, **named), inputs, closure.width, self.domain.grid.ndim)
                found |= {k: u for k, (u, kind) in enumerate(zip(told, kinds, strict=True)) if kind.offset == place}
            return tuple(found[k] for k in range(len(read)))

        every = (*read, *(x for coordinates, _ in positions for x in coordinates))
        everywhere = (*kinds, *(layout for _, own in positions for layout in own))
        found = self.domain.apply(stencil, every, everywhere, closure.width + margin, t)
        tendencies = iter(match_varying(found, read))
        return {name: tuple(next(tendencies) for _ in components) for name, components in fields.items()}

    def _axes_of(self, closure: Closure) -> tuple[int, ...]:
        """The axes whose coordinates the module takes."""
        known = AXES[: self.domain.grid.ndim]
        for name in closure.coordinates:
            if name not in (*known, "t"):
                raise ConfigurationError(
                    f"Closure.coordinates={closure.coordinates!r}: a grid of {len(known)} axes has no {name}; write "
                    f"some of {', '.join(known)} and t."
                )
        return tuple(axis for axis, name in enumerate(known) if name in closure.coordinates)

    def _positions(self, place, axes: Sequence[int], kind: FieldLayout, like: Array):
        """Coordinates along some axes at a place in each cell, and their layouts: beyond walls they go on."""
        beyond = tuple(
            pair if kind.is_periodic(axis) else (Extrapolated(), Extrapolated())
            for axis, pair in enumerate(kind.boundaries)
        )
        x = self.domain.coordinates(place, like.dtype) if axes else ()
        positions = [match_varying(jnp.broadcast_to(x[axis], like.shape), like) for axis in axes]
        return positions, [FieldLayout(tuple(place), beyond)] * len(axes)

    def _fields(self, t, state, params) -> dict[str, tuple[Array, ...]]:
        """Components of the fields that have an initial condition, those that are observed where they lie."""
        observed = self.model.observe(t, state, params.own)
        offsets = {output.name: output.offset for output in self.model.outputs()}
        fields = {}
        for name, layouts in self.model.component_layouts().items():
            variables = _variables(self.model, name, len(layouts))
            if all(offsets.get(v) == layout.offset for v, layout in zip(variables, layouts, strict=True)):
                fields[name] = tuple(observed[variable] for variable in variables)
        return fields

    def beside_tendency(self, params):
        return self.model.beside_tendency(params.own)

    def mean_products(self, a, b):
        return self.model.mean_products(a, b)

    def white_noise(self, t, state, params):
        return self.model.white_noise(t, state, params.own)

    def constrain(self, t, dt, state, params):
        return self.model.constrain(t, dt, state, params.own)

    def perturb(self, step, t, dt, state, params):
        return self.model.perturb(step, t, dt, state, params.own)

    def unphysical(self, state, params):
        return self.model.unphysical(state, params.own)

    def fault(self, t, params):
        return self.model.fault(t, params.own)

    def explain(self, t, params):
        return self.model.explain(t, params.own)

    def stable_dt(self, state, params):
        return self._shortened(self.model.stable_dt(state, params.own), params)

    def _shortened(self, limit, params):
        """The longest step where the closure adds its own rate to those of the model."""
        rate = eqx.combine(params.weights, self.rest).rate()
        return limit if rate is None else 1 / (1 / limit + rate)

    def diagnostics(self, t, state, params):
        return self.model.diagnostics(t, state, params.own)

    def roundings(self, t, dt, state, params, tendency):
        return self.model.roundings(t, dt, state, params.own, tendency)

    def notes(self):
        return self.model.notes()

    def measures(self):
        return self.model.measures()

    def free_faces(self, t, state, params):
        return self.model.free_faces(t, state, params.own)

    def outputs(self):
        return self.model.outputs()

    def observe(self, t, state, params):
        return self.model.observe(t, state, params.own)

    def trouble(self, name, t, state, params):
        return self.model.trouble(name, t, state, params.own)

    def fluxes(self, t, state, params, plane):
        return self.model.fluxes(t, state, params.own, plane)

    def flux_measures(self):
        return self.model.flux_measures()

    def flux_offset(self, name):
        return self.model.flux_offset(name)

    def conductivities(self, params):
        return self.model.conductivities(params.own)

    def wall_scales(self, t, state, params, plane):
        return self.model.wall_scales(t, state, params.own, plane)

    def frictionless(self, params):
        return self.model.frictionless(params.own)

    def unknown_fluxes(self, names, plane):
        return self.model.unknown_fluxes(names, plane)

    def along_bodies(self, t, state, params, points):
        return self.model.along_bodies(t, state, params.own, points)

    def component_layouts(self):
        return self.model.component_layouts()

    def state_from(self, fields, params):
        return self.model.state_from(fields, params.own)

    def fields_from(self, names, state, params):
        return self.model.fields_from(names, state, params.own)

    @property
    def taken_through(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.model.taken_through

    def partition_specs(self, state, params):
        states, own = self.model.partition_specs(state, params.own)
        return states, Closed(own, jax.tree.map(lambda _: jax.sharding.PartitionSpec(), params.weights))


class ExplicitWithClosure(_WithClosure, ExplicitModel):
    """An explicit model with a closure; see `with_closure`."""

    domain: Domain
    model: ExplicitModel
    rest: Closure

    @property
    def loops_over_stages(self):
        return True  # a network in every stage of a step would compile as many times as long

    def rhs(self, t, state, params):
        return self.added(self.model.rhs(t, state, params.own), t, state, params)


class _SemiImplicitWithClosure(_WithClosure):
    model: eqx.AbstractVar[Any]
    rest: eqx.AbstractVar[Closure]

    def rhs(self, t, state, params):
        return self.added(self.model.rhs(t, state, params.own), t, state, params)

    def explicit_rhs(self, t, state, params):
        return self.added(self.model.explicit_rhs(t, state, params.own), t, state, params)

    def implicit_rhs(self, t, state, params):
        return self.model.implicit_rhs(t, state, params.own)

    def implicit_solve(self, t, dt, right, params, prepared):
        return self.model.implicit_solve(t, dt, right, params.own, prepared)

    def explicit_stable_dt(self, state, params):
        return self._shortened(self.model.explicit_stable_dt(state, params.own), params)

    def prepare(self, params):
        return self.model.prepare(params.own)


class SemiImplicitWithClosure(_SemiImplicitWithClosure, SemiImplicitModel):
    """A semi-implicit model with a closure in its explicit part; see `with_closure`."""

    domain: Domain
    model: SemiImplicitModel
    rest: Closure


class SemilinearWithClosure(_SemiImplicitWithClosure, SemilinearModel):
    """A semilinear model with a closure in its nonlinear part; see `with_closure`."""

    domain: Domain
    model: SemilinearModel
    rest: Closure

    def linear(self, params):
        return self.model.linear(params.own)


def _variables(model: GridModel, field: str, count: int) -> tuple[str, ...]:
    """The variables that hold the components of an initial field later in the run."""
    components = {o.component: o.name for o in model.outputs() if o.vector == field}
    if components:
        return tuple(components[k] for k in range(count))
    return (field,) if any(o.name == field for o in model.outputs()) else tuple(f"{field}_{k}" for k in range(count))


def _as_fields(found, padded: Sequence[Array], width: int, ndim: int) -> list[Array]:
    """Check that a module returned a tendency on the interior for each padded field, and list them."""
    tendencies = list(found) if isinstance(found, (tuple, list)) else [found]
    shapes = [jnp.shape(u) for u in tendencies]
    inner = [(*u.shape[: u.ndim - ndim], *(n - 2 * width for n in u.shape[u.ndim - ndim :])) for u in padded]
    if shapes != inner:
        raise ConfigurationError(
            f"modules.closure: the module returned {len(shapes)} arrays of shapes {shapes}; expected a tendency for "
            f"each field that it is given, {len(inner)} of shape {inner[0]}, on the interior: return an array, or a "
            "tuple of them."
        )
    return [jnp.asarray(u, like.dtype) for u, like in zip(tendencies, padded, strict=True)]


class LocalNetwork(eqx.Module):
    """A perceptron of what a cell and its neighbours hold: f(u[i + d]) for all |d| <= width along every axis.

    With `gelu` between its layers. It begins as f = 0: the last layer's weights are zero, the others normal with
    variance one over the number of inputs (LeCun et al. 1998).

    Args:
        fields: how many components go in, and how many tendencies come out.
        ndim: number of spatial axes.
        hidden: sizes of the layers in between.
        width: as that of the `Closure` that it is in.
        key: for the first weights.

    Examples:
        >>> network = sj.LocalNetwork(fields=1, ndim=2, hidden=[16, 16], width=1, key=jax.random.key(0))
        >>> learned = sj.Closure(network, fields=("concentration",), width=1)
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    ndim: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    __repr__ = all_in_a_line

    def __init__(self, fields: int, ndim: int, hidden: Sequence[int], *, width: int = 0, key):
        require_count("LocalNetwork: fields", fields)
        require_one_of("LocalNetwork: ndim", ndim, (1, 2, 3))
        if not isinstance(hidden, (tuple, list)):
            raise ConfigurationError(f"LocalNetwork: hidden={shown(hidden)}: expected a list of widths, such as [16].")
        for size in hidden:
            require_count("LocalNetwork: hidden", size)
        if not isinstance(width, int) or width < 0:
            raise ConfigurationError(f"LocalNetwork: width={shown(width)}: expected cells on each side, 0 or more.")
        self.ndim, self.width = ndim, width
        sizes = (fields * (2 * width + 1) ** ndim, *hidden, fields)
        keys = jax.random.split(key, len(hidden))
        inner = [jax.random.normal(k, (m, n)) / n**0.5 for k, n, m in zip(keys, sizes[:-2], sizes[1:-1], strict=True)]
        self.weights = (*inner, jnp.zeros((sizes[-1], sizes[-2])))
        self.biases = tuple(jnp.zeros(m) for m in sizes[1:])

    def __call__(self, *padded: Array) -> tuple[Array, ...]:
        """One tendency for each padded field, on the interior."""
        u = jnp.stack(padded)
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            u = self._first(weight, u) if k == 0 else jnp.tensordot(weight, u, 1)
            u = u + bias.reshape(-1, *(1,) * self.ndim)
            u = jax.nn.gelu(u) if k < len(self.weights) - 1 else u
        return tuple(u)

    def _first(self, weight: Array, u: Array) -> Array:
        """The first layer: a correlation with the cells around each cell, one operation, as many compile slowly."""
        if self.width == 0:
            return jnp.tensordot(weight, u, 1)
        around = weight.reshape(weight.shape[0], len(u), *(2 * self.width + 1,) * self.ndim)
        return jax.lax.conv_general_dilated(u[None], around, (1,) * self.ndim, "VALID")[0]
