"""The variables of fields that are written: as programs return them, and as files have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.model import Output
from simjax.errors import ConfigurationError
from simjax.grid import AXES, CENTER, Grid
from simjax.io.segments import Ranges
from simjax.models import faces
from simjax.models.field_expressions import field_of_formula
from simjax.models.troubles import field_of
from simjax.parallel import region
from simjax.schema.config import Config
from simjax.schema.formula_units import units_of
from simjax.schema.model_schema import ModelSchema
from simjax.schema.numbers import numbers_of


@dataclass(frozen=True)
class WrittenFields:
    """Variables of a model on a grid.

    observed: they, in their order. layouts: where the model's own lie, by name. periodic: whether fields wrap, by axis.
    """

    schema: ModelSchema
    grid: Grid
    observed: tuple[Output, ...]
    layouts: Mapping[str, Any]
    periodic: tuple[bool, ...]

    @property
    def walled(self) -> dict[str, tuple[int, ...]]:
        """Axes along which a variable lies on faces, the upper wall's among them, by its name."""
        return {o.name: faces.walled_faces(o, self.layouts[o.name]) for o in self.observed if o.name in self.layouts}

    def of_block(self, model, fields: Mapping[str, Array], t, state, params, values) -> dict[str, Array]:
        """The variables on this block, with what lies on upper wall faces beside them; `fields` are the model's own,
        `values` the numbers of the run by name."""
        layouts, free, walled = faces.output_layouts(model), model.free_faces(t, state, params), self.walled
        result = {}
        for output in self.observed:
            name = output.name
            if name not in fields:
                result[name] = self.derived(name, model, fields, free, t, state, params, values)
                continue
            result[name] = fields[name]
            if walled.get(name):
                beyond = faces.upper_faces(model.domain, fields[name], layouts[name], walled[name], free.get(name), t)
                result |= {_beyond(name, axes): piece for axes, piece in beyond.items()}
        return result

    def derived(self, name: str, model, fields: Mapping[str, Array], free, t, state, params, values) -> Array:
        """A variable at cell centres that is made of the model's own `fields`, or is a trouble, on this block."""
        expression = dict(self.schema.expressions).get(name)
        if expression is not None:

            def centred(part: str) -> Array:
                if part in fields:
                    return faces.centered_components(model, fields, free, (part,), t)[0]
                return self.derived(part, model, fields, free, t, state, params, values)

            vectors = self.schema.vectors(self.grid.ndim)
            return field_of_formula(expression.formula, model.domain, self.periodic, centred, vectors, values, t)
        one = self.schema.trouble(name)
        if one is not None:
            return field_of(model, one, t, state, params, jnp.result_type(*fields.values()))
        how = self.schema.derived(self.grid.ndim)[name]
        parts = faces.centered_components(model, fields, free, how.components, t)
        return parts[0] if how.centered else faces.magnitude(parts)

    def arranged(
        self, fields: Mapping[str, Array], ranges: Ranges, ahead: Sequence[tuple[str, int]]
    ) -> dict[str, np.ndarray]:
        """Variables of a file within `ranges`, from the arrays that `of_block` gave on all devices.

        ahead: names and sizes of the axes before those of space.
        """
        axes_of = [*ahead, *zip(AXES, self.grid.shape, strict=False)]
        cells = [ranges.get(name, (0, size)) for name, size in axes_of]
        first = len(axes_of) - self.grid.ndim
        result = {o.name: region(fields[o.name], cells) for o in self.observed if o.name in fields}
        for name, axes in self.walled.items():
            above = tuple(axis for axis in axes if cells[first + axis][1] == self.grid.shape[axis])
            above = above if name in result else ()
            if above:
                u = result[name]
                whole = np.empty([n + (k - first in above) for k, n in enumerate(u.shape)], u.dtype)
                whole[tuple(slice(n) for n in u.shape)] = u
                for beyond in faces.subsets(above):
                    piece, at, of = fields[_beyond(name, beyond)], [slice(n) for n in u.shape], list(cells)
                    for axis in (first + axis for axis in beyond):
                        at[axis], of[axis] = slice(-1, None), (piece.shape[axis] - 1, piece.shape[axis])
                    whole[tuple(at)] = region(piece, of)
                result[name] = whole
        return result


def described(config: Config, own: Sequence[Output], chosen: Sequence[str]) -> tuple[Output, ...]:
    """Descriptions of variables by the names that `output.fields` takes: a model's `own`, what is derived from these,
    its troubles, and expressions.

    Raises:
        ConfigurationError: the units of an expression do not follow from its formula.
    """
    schema, ndim = config.schema, config.ndim
    written, outputs = schema.written(ndim, config.counts), {output.name: output for output in own}
    names = {variable for name in chosen for variable in written[name]}
    found = {name: output for name, output in outputs.items() if name in names}
    centre = (CENTER,) * ndim
    for name, source in schema.derived(ndim).items():
        like = outputs[source.components[0]]
        text = source.long_name or f"{like.long_name} at cell centres"
        of_vector = {"vector": source.vector, "component": source.component, "standard_name": ""}
        outputs.setdefault(name, replace(like, name=name, offset=centre, long_name=text, **of_vector))
    for one in schema.troubles:
        outputs.setdefault(one.name, Output(one.name, centre, one.units, one.long_name, palette="amp"))
    if names & {*dict(schema.expressions)}:
        outputs |= _described_expressions(config, outputs)
    return tuple(found.values()) + tuple(output for name, output in outputs.items() if name in names - {*found})


def _described_expressions(config: Config, outputs: Mapping[str, Output]) -> dict[str, Output]:
    """Descriptions of all expressions; units are worked out where they are not given."""
    schema, ndim, found = config.schema, config.ndim, {}
    units = {name: output.units for name, output in outputs.items()}
    units |= {name: units[parts[0]] for name, parts in schema.vectors(ndim).items() if parts[0] in units}
    units |= {number.name: number.units for number in numbers_of(config.physics, ndim)}
    units |= dict.fromkeys(AXES[:ndim], schema.length_units) | {"t": schema.time_units}
    for name, one in schema.expressions:
        try:
            units[name] = one.units or units_of(one.formula, units, schema.length_units)
        except ConfigurationError as error:
            raise ConfigurationError(f"expressions.{name}: {error}") from None
        found[name] = Output(name, (CENTER,) * ndim, units[name], one.long_name or one.formula.text)
    return found


def _beyond(name: str, axes: tuple[int, ...]) -> str:
    """The name, among what is observed, of a variable's values on upper wall faces of `axes`."""
    return f"{name} beyond {''.join(AXES[axis] for axis in axes)}"
