"""Declaration of a model of particles, where it is other than that of a model of fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from simjax.schema.model_schema import PARTICLES, Derived, ModelSchema


@dataclass(frozen=True)
class ParticleModelSchema(ModelSchema):
    """Declaration of a model of particles in a box: its variables are those of each particle, in the user's units."""

    family: ClassVar[str] = PARTICLES
    needed: ClassVar[tuple[str, ...]] = ("box", "particles")
    draws: ClassVar[bool] = True  # velocities, places and random forces
    noise_at_start: ClassVar[bool] = False
    instrument_example: ClassVar[str] = "such as {radial_distribution: [0.9, 1.0, 1.1], width: 0.05, every: 1.0}"
    REFUSED: ClassVar[Mapping[str, str]] = {
        "boundaries": "model={model} has none; write box.periodic, one value per axis",
        "exact": "expected a model of fields, model={model} has particles; leave it out",
        "events": "expected a model of fields, model={model} has particles",
        "storage": "expected a model of fields, model={model} has particles",
        "every=step": "model={model} takes several steps at a time",
        "ensemble.statistics": "expected null with a model of particles: statistics are of fields on a grid, and "
        "diagnostics are written of every member",
        "inverse.shooting.windows": "expected 1 for particles; see inverse.experiments",
        "fields from files": "formulas; particles and their velocities come from a particles.file",
        "single steps": "expected a model of fields, as particles of {model} are arranged once for several steps; "
        "write what=rollout with a short time.end.",
        "closure": "expected a model of fields, which takes a closure.",
    }

    @property
    def time_units(self) -> str:
        """Units of times: the user's own."""
        return "1"

    @property
    def length_units(self) -> str:
        """Units of lengths: the user's own."""
        return "1"

    def variables(self, ndim: int, counts: Mapping[str, int] | None = None) -> tuple[str, ...]:
        """Variables of each particle that a run can write."""
        return self.diagnosed(ndim)

    def derived(self, ndim: int) -> dict[str, Derived]:
        """List no variables: none of particles are derived from vectors."""
        return {}

    def written(self, ndim: int, counts: Mapping[str, int] | None = None) -> dict[str, tuple[str, ...]]:
        """Names that `output.fields` takes: the variables."""
        return {name: (name,) for name in self.variables(ndim)}

    def averaged(self, ndim: int, counts: Mapping[str, int]) -> None:
        """Nothing is known before the programs are made: quantities are diagnostics of the model."""
        return None

    def source_of(self, config: Any, section: str, name: str) -> Any:
        """The section `particles`, from which positions and velocities follow."""
        return config.particles

    def array_paths(self, config: Any) -> list[str]:
        """Paths of the vectors of particles that may be arrays."""
        return [f"initial.{name}" for name in self.given_at_start]
