"""Declarations of model classes: names in configurations, keys and fields, and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from jax import Array

from simjax.core.boundary import Side
from simjax.core.domain import Domain
from simjax.core.model import Model
from simjax.models.formulas import FormulaForce, Values, forces_of
from simjax.schema.model_schema import ModelSchema
from simjax.schema.parts import summary_of

if TYPE_CHECKING:
    from simjax.schema.config import Config

CLAIMS = ("conserved", "falling", "balanced", "passing")
Declared = TypeVar("Declared", bound=type[Model])


@dataclass(frozen=True)
class Setup:
    """The parts that a model is built from.

    sides: a pair for each axis. values: every number that formulas and keys know by name, traced. coefficients: this
    block's arrays, components by field.

    Examples:
        >>> class Doubled(sj.AdvectionDiffusion):
        ...     "Advection-diffusion with twice the diffusivity that is written."
        ...
        ...     @classmethod
        ...     def configured(cls, setup):
        ...         model, params = super().configured(setup)
        ...         return model, cls.Params(2 * setup.values["diffusivity"], params.velocity)
        >>> numbers, time = {"diffusivity": 0.1, "velocity": [0.0]}, {"end": 0.1, "output_every": 0.1}
        >>> run = sj.configure(Doubled, grid={"shape": [8]}, physics=numbers, initial={"concentration": "x"}, time=time)
        >>> float(run.params.diffusivity)
        0.2...
    """

    config: Config
    domain: Domain
    sides: Sequence[tuple[Side, Side]]
    values: Values
    coefficients: Mapping[str, tuple[Array, ...]]

    @property
    def keys(self) -> Any:
        """The section `physics`: the model's `Keys`."""
        return self.config.physics

    def varies(self, name: str) -> bool:
        """Tell whether a number of the physics differs between members."""
        return any(variation.path == f"physics.{name}" for variation in self.config.ensemble.vary)

    def forces(self, field: str) -> tuple[FormulaForce | None, ...]:
        """One function per component of a forced field, None where it vanishes; empty where the field is not forced."""
        return forces_of(self.config.forcing.get(field, ()), self.values)

    def source(self, field: str) -> FormulaForce | None:
        """The function that forces a scalar field, if any."""
        return next(iter(self.forces(field)), None)


def model(name: str, **properties: Any) -> Callable[[Declared], Declared]:
    """Declare a class as the model that configurations call `name`.

    The class has `Keys`, a dataclass of what stands in the section `physics`, and `configured(setup)`, a class method
    that returns the model and its parameters for a `Setup`. `properties` are those of `ModelSchema`; those that are
    left out are as a declared base class has them, but for what it conserves, which another equation has to say anew;
    else as the class method `declared` has them. A class that is several models is declared once for each.
    `models.registry` says where the class is.

    Examples:
        >>> @sj.model("plain_heat", sides=("scalar.neumann",))
        ... class PlainHeat(sj.AdvectionDiffusion):
        ...     "Heat conduction between insulated walls."
        >>> PlainHeat.declarations["plain_heat"].sides
        ('scalar.neumann',)
    """

    def declare(cls: Declared) -> Declared:
        own = vars(cls).get("declarations", {})
        bases = [] if own else [*cls.declarations.values()]
        inherited = {f.name: getattr(base, f.name) for base in bases[:1] for f in fields(base) if f.name not in CLAIMS}
        inherited = inherited or cls.declared()
        stated = {"name": name, "physics": cls.Keys, "configured": cls.configured, "summary": summary_of(cls) or name}
        stated |= {"troubles": getattr(cls, "troubles", ())} | cls.restated()
        cls.declarations = {**own, name: ModelSchema(**{**inherited, **stated, **properties})}
        return cls

    return declare
