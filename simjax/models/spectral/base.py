"""A base for semilinear equations in a periodic box: write the linear symbol and the nonlinear term."""

import abc
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from simjax.arguments import require_kind
from simjax.core.boundary import FieldLayout, Periodic, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.given_values import called, require_arguments
from simjax.core.model import Model, Output, SemilinearModel
from simjax.core.tendency import call_own, tendency
from simjax.errors import ConfigurationError
from simjax.grid import CENTER
from simjax.models.declaration import Setup
from simjax.models.measures import of_fields
from simjax.models.sides import check_sides, require_domain
from simjax.ops.scaling import scale_by, scaled, times_i
from simjax.schema.model_schema import SEMILINEAR, FieldSchema
from simjax.schema.parts import NoKeys, state_keys_and_parameters
from simjax.solvers.fourier import FourierBasis

Force = Callable[..., Array]
"""`force(t, coordinates, params)` -> source term on the grid, broadcastable against a block."""


class SpectralModel(SemilinearModel):
    """du/dt = L u + N(t, u) of periodic fields in a Fourier basis, in which L is diagonal.

    The state holds, by field, the coefficients u_k of u(x) = sum over k of u_k exp(i k . x) that dealiasing keeps:
    complex arrays in the layout of `solvers.fourier.FourierBasis`; fields have samples at cell centres. A
    subclass names its `fields` and the default values of its `parameters` and defines `symbol` and `nonlinear`.
    Instead of `parameters` it may have `Keys`, a dataclass whose entries also have ranges and units.
    The first line of its docstring is the title of its runs.

    `dealiasing` is the share of the wavenumbers along each axis that is computed with: 2/3 for quadratic
    nonlinearities, 1/2 for cubic ones. `forces` are source terms by field. `units` are those of the fields; with
    `dimensionless` lengths and times are numbers, not metres and seconds.

    Examples:
        >>> class Diffusion(sj.SpectralModel):
        ...     "Diffusion: du/dt = D lap(u)."
        ...
        ...     parameters = {"D": 0.1}
        ...
        ...     def symbol(self, k, params):
        ...         return {"u": -params["D"] * sum(component**2 for component in k)}
        ...
        ...     def nonlinear(self, t, k, state, params):
        ...         return {"u": 0 * state["u"]}
        >>> time = {"end": 0.1, "output_every": 0.1, "dt": 0.1}
        >>> run = sj.configure(Diffusion, grid={"shape": [16]}, initial={"u": "sin(2*pi*x)"}, time=time).run()
        >>> float(run.ds.u.isel(time=-1).max() / run.ds.u.isel(time=0).max())  # exp(-0.1 (2 pi)^2 0.1)
        0.67...
    """

    Params = State = dict

    fields: ClassVar[Sequence[str]] = ("u",)
    parameters: ClassVar[Mapping[str, float]] = {}
    Keys: ClassVar[type] = NoKeys
    dealiasing: ClassVar[float] = 2 / 3
    units: ClassVar[str] = "1"
    dimensionless: ClassVar[bool] = False

    domain: Domain
    forces: dict[str, Force]

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if hasattr(cls, "noise"):
            raise ConfigurationError(
                f"{cls.__name__}.noise: a SpectralModel draws no noise; derive from sj.CenteredModel, or write another "
                "name for the method."
            )
        state_keys_and_parameters(cls)

    @classmethod
    def declared(cls):
        """Periodic, without a Courant number."""
        return {
            "fields": tuple(FieldSchema(field, units=cls.units) for field in cls.fields),
            "sides": (),
            "integrators": SEMILINEAR,
            "limited": False,
            "dimensionless": cls.dimensionless,
        }

    @classmethod
    def configured(cls, setup: Setup, **options):
        """The model, with the sources of its fields, and its parameters, numbers by name.

        `options` are further ones of the constructor.
        """
        params = {name: setup.values[name] for name in cls.parameters}
        forces = {name: setup.source(name) for name in setup.config.forcing}
        return cls(setup.domain, setup.sides, forces, **options), params

    def __init__(
        self,
        domain: Domain,
        sides: Sequence[tuple[Side, Side]] | None = None,
        forces: Mapping[str, Force | None] | None = None,
    ):
        name = type(self).__name__
        require_domain(name, domain)
        if sides is not None:
            check_sides(domain, sides, (), name)
        expected = "functions by field; write forces={'u': force}"
        require_kind(f"{name}: forces", forces, (Mapping, type(None)), expected)
        self.domain = domain
        self.forces = {field: force for field, force in (forces or {}).items() if force is not None}
        for field, force in self.forces.items():
            require_arguments(f"{name}: forces[{field!r}]", force, "f(t, coordinates, params)", 3)

    # ------------------------------------------------------------------ the equation

    @abc.abstractmethod
    def symbol(self, k: tuple[Array, ...], params) -> dict[str, Array]:
        """Eigenvalues of L by field, real or complex, for wavenumbers `k`, one array per axis, made to broadcast.

        One array serves all components of a field that has several."""

    @abc.abstractmethod
    def nonlinear(self, t, k: tuple[Array, ...], state: dict[str, Array], params) -> dict[str, Array]:
        """Coefficients of N(t, u) by field; see `to_grid`, `to_spectrum` and `derivative`."""

    # ------------------------------------------------------------------ what subclasses compute with

    @property
    def basis(self) -> FourierBasis:
        """The transforms, planned for this domain."""
        return FourierBasis(self.domain, self.dealiasing)

    def to_grid(self, spectrum: Array) -> Array:
        """This block of the field with the coefficients `spectrum`: one inverse transform."""
        return self.basis.inverse(spectrum)

    def to_spectrum(self, field: Array) -> Array:
        """Coefficients of this block of a field, truncated: one transform."""
        return self.basis.forward(field)

    def derivative(self, k: Array, spectrum: Array) -> Array:
        """Coefficients of the derivative along the axis of `k`: i k u_k."""
        return times_i(k, spectrum)

    # ------------------------------------------------------------------ time

    def linear(self, params, dtype=None):
        """Eigenvalues of L by field, in the type of the parameters; of plain numbers, in the real type `dtype`."""
        arrays = [leaf for leaf in jax.tree.leaves(params) if hasattr(leaf, "dtype")]
        dtypes = [leaf.dtype for leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        if dtypes or dtype is None:
            dtype = jnp.finfo(jnp.result_type(*dtypes)).dtype if dtypes else jnp.result_type(float)
        kept = self.basis.kept()
        symbols = call_own(self, "symbol", self.basis.wavenumbers(dtype), params)
        if not isinstance(symbols, dict) or {*symbols} != {*self.fields}:
            got = f"those of {', '.join(symbols)}" if isinstance(symbols, dict) else f"a {type(symbols).__name__}"
            fields = ", ".join(self.fields)
            raise ConfigurationError(
                f"{type(self).__name__}.symbol: expected a dict of eigenvalues of {fields}, got {got}."
            )
        # Nothing is there to be damped beyond the cutoff, or to overflow.
        return jax.tree.map(lambda s: jnp.where(kept, s, 0), symbols)

    def prepare(self, params):
        return self.linear(params)

    def explicit_rhs(self, t, state, params):
        dtype = precision_of(state)
        slopes = tendency(self, "nonlinear", state, t, self.basis.wavenumbers(dtype), state, params)
        for name, source in self.sources(t, params, dtype).items():
            slopes = {**slopes, name: slopes[name] + source}
        return slopes

    def sources(self, t, params, dtype) -> dict[str, Array]:
        """Coefficients of `forces` at time `t`: a transform each; the compiler may move those of steady ones out of
        the loop over steps."""
        positions = self.domain.coordinates((CENTER,) * self.domain.grid.ndim, dtype)
        result = {}
        for name, force in self.forces.items():
            block = self.domain.block_shape
            source = jnp.asarray(called(force, "f(t, coordinates, params)", (t, positions, params), block), dtype)
            result[name] = self.to_spectrum(jnp.broadcast_to(source, block))
        return result

    def implicit_rhs(self, t, state, params):
        return scale_by(self.linear(params, precision_of(state)), state)

    def implicit_solve(self, t, dt, right, params, prepared):
        symbols = self.linear(params, precision_of(right)) if prepared is None else prepared
        return scale_by(jax.tree.map(lambda symbol: 1 / (1 - scaled(dt, symbol)), symbols), right)

    def constrain(self, t, dt, state, params):
        """Coefficients of real fields: rounding must not break their symmetry, which L could amplify."""
        return jax.tree.map(self.basis.make_real, state)

    def beside_tendency(self, params):
        return "" if type(self).perturb is Model.perturb else super().beside_tendency(params)

    def mean_products(self, a, b):
        return jax.tree.map(self.mean_product, a, b)

    def explicit_stable_dt(self, state, params):
        """Infinite unless a subclass knows a limit: the nonlinear term's is set by accuracy."""
        return jnp.asarray(jnp.inf, precision_of(state))

    def stable_dt(self, state, params):
        """With L explicit as well: its largest eigenvalue is held to two."""
        domain = self.domain
        largest = [domain.max(jnp.abs(symbol)) for symbol in jax.tree.leaves(self.linear(params, precision_of(state)))]
        stiff = 0.5 * jnp.max(jnp.stack(largest)).astype(precision_of(state))
        return 1 / (1 / domain.min(self.explicit_stable_dt(state, params)) + stiff)

    # ------------------------------------------------------------------ fields

    def component_layouts(self):
        return {name: (periodic_layout(self.domain, self.units),) for name in self.fields}

    def state_from(self, fields, params):
        return {name: self.to_spectrum(fields[name][0]) for name in self.fields}

    def fields_from(self, names, state, params):
        return {name: (self.to_grid(state[name]),) for name in self.fields}

    @property
    def taken_through(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"dealiasing, which keeps {Fraction(self.dealiasing).limit_denominator(64)} of the wavenumbers"

    def outputs(self):
        offset = (CENTER,) * self.domain.grid.ndim
        return tuple(Output(name, offset, self.units, name) for name in self.fields)

    def observe(self, t, state, params):
        return {name: self.to_grid(state[name]) for name in self.fields}

    def partition_specs(self, state, params) -> tuple[Any, Any]:
        """Fields like the spectrum, parameters replicated."""
        replicated = jax.sharding.PartitionSpec()
        return jax.tree.map(lambda _: self.basis.spec, state), jax.tree.map(lambda _: replicated, params)

    # ------------------------------------------------------------------ diagnostics

    def mean_product(self, a: Array, b: Array) -> Array:
        """Mean over the grid of the product of two fields, from their coefficients (Parseval)."""
        products = a.real * b.real + a.imag * b.imag
        return self.domain.sum(self.basis.weights(products.dtype) * products)

    def mean(self, spectrum: Array) -> Array:
        """Mean of a field over the grid: its coefficient at k = 0."""
        index = self.basis.indices()
        first = sum((i * i for i in index[1:]), index[0] * index[0]) == 0
        return self.domain.sum(jnp.where(first, spectrum.real, 0))

    def diagnostics(self, t, state, params):
        """Mean and variance of every field."""
        result = {}
        for name in self.fields:
            mean = self.mean(state[name])
            result[f"mean_{name}"] = mean
            result[f"variance_{name}"] = self.mean_product(state[name], state[name]) - mean**2
        return result

    def measures(self):
        return of_fields(self.fields, self.units)


def periodic_layout(domain: Domain, units: str) -> FieldLayout:
    """Cell centres of a box that is periodic along every axis."""
    return center_layout([(Periodic(), Periodic())] * domain.grid.ndim, units)


def precision_of(state) -> jnp.dtype:
    """The real type of a state's leaves."""
    return jnp.finfo(jnp.result_type(*jax.tree.leaves(state))).dtype
