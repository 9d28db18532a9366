"""A base for one's own equations of cell-centred scalar fields: write `rhs` and `stable_dt`, the rest is here."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from simjax.core.boundary import FieldLayout, Side, center_layout
from simjax.core.domain import Domain
from simjax.core.model import ExplicitModel, Output
from simjax.core.tendency import call_own
from simjax.core.white_noise import WhiteNoise, check_seed
from simjax.errors import ConfigurationError
from simjax.models.axisymmetric_grid import ring_volumes
from simjax.models.declaration import Setup
from simjax.models.measures import of_fields
from simjax.models.sides import SCALAR_SIDES, check_sides
from simjax.schema.model_schema import STOCHASTIC, FieldSchema
from simjax.schema.parts import NoKeys, state_keys_and_parameters


class CenteredModel(ExplicitModel):
    """Equations of scalar fields at cell centres; state and params are dicts by name.

    A subclass names its `fields` and the default values of its `parameters`, and defines `rhs` and `stable_dt`.
    The first line of its docstring is the title of its runs. `units` are those of the fields; with `dimensionless`
    lengths and times are numbers, not metres and seconds. With a method `noise` it is a stochastic equation in Ito's
    sense, stepped by a scheme of `sj.stochastic`, whose paths follow from `seed`.

    Examples:
        >>> from simjax.ops.difference import laplacian
        >>> class Heat(sj.CenteredModel):
        ...     "Heat conduction: du/dt = D lap(u)."
        ...
        ...     fields, parameters = ("u",), {"D": 0.1}
        ...
        ...     def rhs(self, t, state, params):
        ...         h = self.domain.grid.spacing
        ...         return {"u": params["D"] * self.apply(lambda u: laplacian(u, h), state, t=t)}
        ...
        ...     def stable_dt(self, state, params):
        ...         return 1 / (2 * params["D"] * sum(1 / h**2 for h in self.domain.grid.spacing))
        >>> start = {"u": "cos(2*pi*x)"}
        >>> heat = sj.configure(Heat, grid={"shape": [16]}, initial=start, time={"end": 0.1, "output_every": 0.1})
        >>> heat.run().ds.u.shape
        (2, 16)
    """

    Params = State = dict

    fields: ClassVar[Sequence[str]] = ()
    parameters: ClassVar[Mapping[str, float]] = {}
    Keys: ClassVar[type] = NoKeys
    units: ClassVar[str] = "1"
    dimensionless: ClassVar[bool] = False

    domain: Domain
    layout: FieldLayout
    seed: Any
    """A whole number, or several, from which noise is drawn."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        state_keys_and_parameters(cls)

    @classmethod
    def declared(cls):
        """Scalars with any sides, not forced."""
        fields = tuple(FieldSchema(field, units=cls.units) for field in cls.fields)
        return {"fields": fields, "sides": SCALAR_SIDES, "forced": (), "dimensionless": cls.dimensionless}

    @classmethod
    def restated(cls):
        """The schemes that draw noise, where it has some."""
        return {"integrators": STOCHASTIC} if cls._is_noisy() else {}

    @classmethod
    def _is_noisy(cls) -> bool:
        return cls.noise is not CenteredModel.noise

    @classmethod
    def configured(cls, setup: Setup):
        """The model and its parameters, numbers by name."""
        return cls(setup.domain, setup.sides), {name: setup.values[name] for name in cls.parameters}

    def __init__(self, domain: Domain, sides: Sequence[tuple[Side, Side]], seed: Any = 0):
        check_sides(domain, sides, SCALAR_SIDES, type(self).__name__)
        check_seed(type(self).__name__, seed)
        self.domain, self.seed = domain, seed
        self.layout = center_layout([tuple(side.scalar_boundary() for side in pair) for pair in sides], self.units)

    def apply(self, stencil, state: dict[str, jax.Array], width: int = 1, t=0.0):
        """`stencil(field, ...)` of all fields in the order of `fields`, padded by `width`; see `Domain.apply`."""
        return self.domain.apply(stencil, tuple(state[name] for name in self.fields), self._layouts(), width, t)

    def _layouts(self) -> tuple[FieldLayout, ...]:
        return (self.layout,) * len(self.fields)

    def noise(self, t, state, params) -> Mapping[str, Any]:
        """Amplitudes of white noise in space and time by field, numbers or arrays of the shape of a field's block.

        du = rhs dt + sigma dW in Ito's sense, with E[dW(x) dW(x')] = delta(x - x') dt: the increment of a cell of
        volume V has the standard deviation sigma sqrt(dt / V). sigma has the units of the field times
        length^(ndim / 2) / time^(1 / 2). A field that is left out has no noise.
        """
        return {}

    def white_noise(self, t, state, params):
        """The noise of cells, from `noise`.

        Raises:
            ConfigurationError: `noise` does not return amplitudes by field.
        """
        if not self._is_noisy():
            return None
        given = call_own(self, "noise", t, state, params)
        name = f"{type(self).__name__}.noise"
        if not isinstance(given, Mapping) or not given or not {*given} <= {*self.fields}:
            got = ", ".join(map(str, given)) or "none" if isinstance(given, Mapping) else type(given).__name__
            raise ConfigurationError(
                f"{name}: expected a dict of amplitudes of some of {', '.join(self.fields)}; got {got}."
            )
        for field, amplitude in given.items():
            shape, block = jnp.shape(amplitude), state[field].shape
            if shape not in ((), block):
                raise ConfigurationError(
                    f"{name}: the amplitude of {field}: expected a number or an array of shape {block}, got an array "
                    f"of shape {shape}."
                )
        like = state[self.fields[0]]
        widths = self.domain.spacing(self.layout, 0, like.dtype)
        root = ring_volumes(math.prod(widths), self.domain, self.layout, like.dtype) ** -0.5
        amplitudes = {field: jnp.asarray(sigma, state[field].dtype) * root for field, sigma in given.items()}
        return WhiteNoise(self.seed, {field: amplitudes.get(field) for field in state})

    def beside_tendency(self, params):
        return f"the noise of {type(self).__name__}" if self._is_noisy() else super().beside_tendency(params)

    def diagnostics(self, t, state, params):
        """Mean, minimum and maximum of every field."""
        domain, result = self.domain, {}
        for name in self.fields:
            result[f"mean_{name}"] = domain.mean(state[name])
            result[f"minimum_{name}"] = domain.min(state[name])
            result[f"maximum_{name}"] = domain.max(state[name])
        return result

    def measures(self):
        return of_fields(self.fields, self.layout.units)

    def component_layouts(self):
        return {name: (self.layout,) for name in self.fields}

    def state_from(self, fields, params):
        return {name: components[0] for name, components in fields.items()}

    def outputs(self):
        return tuple(Output(name, self.layout.offset, self.layout.units, name) for name in self.fields)

    def observe(self, t, state, params):
        return {name: state[name] for name in self.fields}
