"""Interface of a family of particle models to a run: starts, room, model, what is written."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.core.model import Measure, SelfSteppingModel
from simjax.models.capacities import Bounds, Capacities, bounds_of
from simjax.models.formulas import FormulaValue, Values
from simjax.models.placement import Start, place
from simjax.particles.cells import Cells
from simjax.schema.config import Config
from simjax.schema.formula import Formula
from simjax.schema.particle_model_schema import ParticleModelSchema
from simjax.schema.parts import summary_of

Files = Mapping[str, Array]
"""What is given of every particle, `(..., particles)`: position, species, and the family's own."""


Family = TypeVar("Family", bound="type[ParticleFamily]")


def particle_model(name: str, **properties: Any) -> Callable[[Family], Family]:
    """Declare a family as the model that configurations call `name`; `properties` are those of `ModelSchema`.

    It has `Keys`, the dataclass of the section `physics`, and `Section`, that of the section `particles`.
    """

    def declare(cls: Family) -> Family:
        common = {
            "diagnosed": lambda ndim: ("position", "velocity", "image"),
            "sides": (),
            "integrators": (),
            "limited": False,
            "forced": (),
            "summary": summary_of(cls.Keys),
        }
        schema = ParticleModelSchema(name, cls.Keys, particles=cls.Section, configured=cls, **{**common, **properties})
        cls.declarations = {name: schema}
        return cls

    return declare


class ParticleFamily(abc.ABC):
    """One family for one configuration.

    units: of the speed of a run. seconds: a first guess of what a step of a particle takes, on a CPU and elsewhere.
    advice: what to try where a run fails; at_start: where it does so at the start. on_mesh: whether a field on a mesh
    moves the particles. species: their names. scalars: variables with one number per particle. mass_keys: numbers that
    all masses are proportional to.
    """

    Keys: ClassVar[type]
    Section: ClassVar[type]
    declarations: ClassVar[Mapping[str, ParticleModelSchema]]

    units: ClassVar[str] = "particle-steps/s"
    seconds: ClassVar[tuple[float, float]] = (1e-6, 1e-9)
    advice: ClassVar[str] = "Try a smaller time.dt, or another start."
    at_start: ClassVar[str] = "check the formulas in initial"
    on_mesh: bool = False
    species: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    mass_keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config):
        self.config = config

    @property
    @abc.abstractmethod
    def measures(self) -> Mapping[str, Measure]:
        """Units and meanings of its diagnostics, those on the display, and what is checked of them."""

    @property
    def bounds(self) -> Bounds:
        """Box in which particles can be."""
        return bounds_of(self.config)

    def start(self) -> Start:
        """The particles before anything moves.

        Raises:
            ConfigurationError: they do not fit.
        """
        return place(self.config)

    @abc.abstractmethod
    def first_capacities(self, start: Start, parameters: Mapping[str, np.ndarray], blocks: Sequence[int]) -> Capacities:
        """Capacities for particles as they start, on so many `blocks` of devices along each axis.

        parameters: named numbers.

        Raises:
            ConfigurationError: the box, or a device's block of it, is too thin.
        """

    def diameters(self) -> tuple[float, ...] | None:
        """Sizes of the species relative to each other, for pictures; None: they are alike."""
        return None

    @abc.abstractmethod
    def mass(self, start: Start) -> np.ndarray:
        """Mass of every particle, `(particles,)`."""

    def charge(self, start: Start) -> np.ndarray | None:
        """Charge of every particle, `(particles,)`, where they have any."""
        return None

    def energy_of_jumps(self, parameters: Mapping[str, np.ndarray]) -> float:
        """Energy that a right run may gain or lose where forces leave out a jump of the potential.

        parameters: named numbers.
        """
        return 0.0

    @abc.abstractmethod
    def model(self, cells: Cells, capacities: Capacities, values: Values) -> tuple[SelfSteppingModel, Any]:
        """The model and its parameters, with `values` (perhaps traced)."""

    @abc.abstractmethod
    def state(self, model: Any, params: Any, values: Values, files: Files, member: Array) -> tuple[Any, Array, Array]:
        """The first state, how many particles found no place, and bits of `status` where there was no room."""

    # ------------------------------------------------------------------ to be differentiated

    def fewer(self, most: int) -> Config:
        """The configuration with about `most` particles, which show the same sooner; as it is if there are no more."""
        particles: Any = self.config.particles
        if particles.file is not None or particles.count <= most:
            return self.config
        return dataclasses.replace(self.config, particles=dataclasses.replace(particles, count=most))

    def smooth(self) -> tuple[Config, str]:
        """The configuration without forces that have a step, and what is in the place of them; "" if nothing is."""
        return self.config, ""

    def differentiable(self, name: str, value: float) -> bool:
        """Tell whether a run has a derivative in a number at this value."""
        return True

    def moving(self, start: Start) -> np.ndarray:
        """Numbers of the particles whose places and velocities at the start are free, int32."""
        return np.arange(start.count, dtype=np.int32)

    # ------------------------------------------------------------------ what is written

    def seen(self, model: Any, state: Any, params: Any) -> Any:
        """The state as it is written: everything at one time."""
        return state

    def arrays(self, model: Any, state: Any, params: Any) -> dict[str, Array]:
        """Written of a `seen` state beside positions: `(components, *cells.shape)`; of scalars `cells.shape`."""
        return {"velocity": state.velocity}

    def formula(self, name: str, values: Values, position: Array) -> Array | None:
        """A field of the section `initial` at places `(ndim, particles)`: `(components, particles)`; None without."""
        formulas = self.config.initial.get(name)
        if formulas is None:
            return None
        assert isinstance(formulas, tuple)
        return evaluated(formulas, values, position)


def evaluated(formulas: Sequence[Formula], values: Values, position: Array) -> Array:
    """Formulas at places `(ndim, particles)` at the start: `(components, particles)`."""
    start = jnp.zeros((), position.dtype)
    found = [FormulaValue(formula, dict(values))(start, *position) for formula in formulas]
    return jnp.stack([jnp.broadcast_to(jnp.asarray(u, position.dtype), position.shape[1:]) for u in found])


def standard_normals(config: Config, shape: tuple[int, int], dtype, member: Array | int) -> Array:
    """Normal random numbers `(components, particles)`: a particle's follow from the seed, the member and its number."""
    key = jax.random.key(config.seed)
    if config.ensemble.noise == "per_member":
        key = jax.random.fold_in(key, member)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(shape[1], dtype=jnp.int32))
    return jax.vmap(lambda key: jax.random.normal(key, shape[:1], dtype))(keys).T


def family_of(config: Config) -> ParticleFamily:
    """The family of a configuration of particles."""
    assert config.schema.configured is not None
    return config.schema.configured(config)
