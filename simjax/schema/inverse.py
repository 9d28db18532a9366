"""The validated section `inverse`: unknowns, measurements, and the method of fitting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simjax.schema.formula import Formula
from simjax.schema.instruments import FRAME, InstrumentConfig
from simjax.schema.kinds import Choice, Integer, ListOf, Real, Text, key, write
from simjax.schema.model_schema import AXES
from simjax.schema.numbers import number_name

MOST_DRAWN = 10**6
"""Members of an ensemble, and starts and samples of a search: each is drawn and kept before anything is computed."""
WITHOUT_LINE_SEARCH = ("adam", "sgd", "adamw")
SOLVERS = ("lbfgs", *WITHOUT_LINE_SEARCH, "gauss_newton", "ensemble_kalman")
NORMAL_95 = 1.959963984540054
"""Standard deviations on each side of the mean that hold 95 % of a normal distribution."""
# What one of several experiments may have of its own, besides observations.
EXPERIMENT_SECTIONS = ("physics", "parameters", "particles", "boundaries", "initial", "coefficients", "forcing", "time")


def value_name(path: str) -> str:
    """The name of a number among those of the run: keys of the section particles begin with `start_` there."""
    section, _, below = path.partition(".")
    return f"start_{number_name(below)}" if section == "particles" else number_name(below)


@dataclass(frozen=True)
class Gaussian:
    """A prior of independent normal numbers."""

    mean: float = key(Real(), about="mean")
    deviation: float = key(Real(above=0.0), about="standard deviation")


@dataclass(frozen=True)
class Matern:
    """A prior of smooth random fields: their deviation, correlation length and mean."""

    deviation: float = key(Real(above=0.0), about="standard deviation")
    length: float = key(Real(above=0.0), units="m", about="correlation length")
    mean: float = key(Real(), 0.0, about="mean")


@dataclass(frozen=True)
class TotalVariation:
    """A prior of fields with few edges; `rounding` is the slope below which it is a square."""

    weight: float = key(Real(above=0.0), about="weight of the sum of slopes")
    rounding: float = key(Real(above=0.0), about="slope below which it is a square")


PRIORS: dict[str, type] = {"gaussian": Gaussian, "matern": Matern, "total_variation": TotalVariation}


@dataclass(frozen=True)
class NetworkConfig:
    """A perceptron of what a cell and its neighbours up to `width` hold; of all `fields` where none are named."""

    hidden: tuple[int, ...] = key(ListOf(Integer(1, 4096), 1, 20, noun="sizes"), about="sizes of its layers")
    width: int = key(Integer(0, 8), 0, about="neighbours on each side that it sees")
    fields: tuple[str, ...] = key(ListOf(Text(), 0, 20, noun="fields"), (), about="fields that it sees; none: all")


@dataclass(frozen=True)
class UnknownConfig:
    """A number, a field or a learned module that is sought.

    path: "physics.KEY", "physics.KEY.PART.KEY", "parameters.NAME", "particles.KEY", "initial.FIELD",
    "coefficients.FIELD" or "modules.NAME".
    guess: where the search starts, one formula per component (one for a number); None: the configuration's own value.
    transforms: from the latent array to the physical one in the order in which they are applied, each with its numbers:
    ("scaled", (scale, 0)), ("smooth", (length,)), ("symmetric", (axis, sign)), ("positive", ()), ("bounded", (lower,
    upper)). prior: ("gaussian", (mean, deviation)), ("matern", (deviation, length, mean)), ("total_variation", (weight,
    rounding)) or None. network: what a module is; None: given in Python.
    """

    path: str
    guess: tuple[Formula, ...] | None
    transforms: tuple[tuple[str, tuple[float, ...]], ...]
    prior: tuple[str, tuple[float, ...]] | None
    network: NetworkConfig | None = None

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        return self.path.partition(".")[2]

    @property
    def value_name(self) -> str:
        """Its name among the run's numbers, where it is one."""
        return value_name(self.path)

    def write(self) -> dict[str, Any]:
        """Section that reads as this, without what was left out."""
        written: dict[str, Any] = {}
        if self.guess is not None:
            written["guess"] = self.guess[0] if len(self.guess) == 1 else self.guess
        for kind, numbers in self.transforms:
            match kind:
                case "scaled":
                    written["scale"] = numbers[0]
                case "symmetric":
                    written["symmetric"] = {"axis": AXES[int(numbers[0])], "sign": numbers[1]}
                case "bounded":
                    written["bounds"] = numbers
                case "smooth":
                    written["smooth"] = numbers[0]
                case "positive":
                    written["positive"] = True
        if self.network is not None:
            written["network"] = self.network
        if self.prior is not None:
            kind, numbers = self.prior
            names = (field.name for field in dataclasses.fields(PRIORS[kind]))
            written["prior"] = {kind: dict(zip(names, numbers, strict=True))}
        return write(written)


TABLE = ".csv"
"""Ending of a table of readings, each with its variable, place and time."""


@dataclass(frozen=True)
class MeasuredFile:
    """The file that an observation's measurements lie in, and the names of variables in it.

    variable: of the values; None: that of what is observed. mask: of what counts, 1 where it was measured. deviation:
    of the standard deviations. member: the number of the one that is read, where the file has several. order: axes of
    a snapshot without names.
    """

    path: Path
    variable: str | None = None
    mask: str | None = None
    deviation: str | None = None
    member: int | None = None
    order: tuple[str, ...] | None = None

    @property
    def is_table(self) -> bool:
        """Tell whether it is a table of readings, each with its variable, place and time."""
        return self.path.suffix.lower() == TABLE

    def write(self) -> dict[str, Any]:
        """The keys of the observation that it stands for."""
        given = {
            "variable": self.variable,
            "mask": self.mask,
            "deviation": self.deviation,
            "member": self.member,
            "order": write(self.order),
        }
        return {"file": str(self.path), **{key: value for key, value in given.items() if value is not None}}


@dataclass(frozen=True)
class ObservationConfig:
    """Measurements of what an output reads, or what that is wanted to be.

    instrument: an entry of `outputs`, or one that stands for what every run writes. variable: of those that it reads;
    None: all of which a table has readings. times: when it is measured; None: each `every`, a time or `FRAME`.
    deviation: of the measurement errors in the variable's units; fraction: of the measured values' root mean square, in
    place of it. noise: ("student", degrees), ("huber", threshold) or None for Gaussian errors. target: what is wanted,
    in place of what was measured. data: where the measurements are read; None: they are made in the configuration's own
    run.
    """

    instrument: InstrumentConfig
    variable: str | None
    times: tuple[float, ...] | None = None
    every: float | str = FRAME
    deviation: float | None = None
    fraction: float | None = None
    noise: tuple[str, float] | None = None
    target: Formula | None = None
    data: MeasuredFile | None = None

    def write(self) -> dict[str, Any]:
        """Section that reads as this, without what was left out."""
        when = {"every": self.every} if self.times is None and self.data is None else {"times": self.times}
        given = {"of": self.variable, **when, "target": self.target}
        given |= {"deviation": self.deviation, "fraction": self.fraction}
        written = {"output": self.instrument.name, **{key: one for key, one in given.items() if one is not None}}
        written |= {} if self.data is None else self.data.write()
        return write(written | {"noise": "gaussian" if self.noise is None else {self.noise[0]: self.noise[1]}})


@dataclass(frozen=True)
class SolverConfig:
    """The section `inverse.solver`; a `learning_rate` of None is the solver's own."""

    name: str = key(Choice(SOLVERS), "lbfgs", about="method")
    iterations: int = key(Integer(1), 50, about="most iterations")
    learning_rate: float | None = key(
        Real(above=0.0, optional=True), None, about="step of adam, adamw and sgd; null: the solver's own"
    )
    tolerance: float = key(Real(low=0.0), 1e-8, about="relative change at which it stops")
    members: int = key(Integer(2, MOST_DRAWN), 32, about="members of ensemble_kalman")
    starts: int = key(Integer(1, MOST_DRAWN), 1, about="searches from guesses that are scattered")
    spread: float = key(Real(above=0.0), 1.0, about="deviation of the members and of the starts, in latent numbers")
    damping: float = key(Real(low=0.0), 1e-3, about="damping of gauss_newton at its start")
    cg_iterations: int = key(Integer(1), 20, about="most iterations of gauss_newton's linear solves")


@dataclass(frozen=True)
class ShootingConfig:
    """The section `inverse.shooting`: windows in time with states of their own, and the weight of the gaps between."""

    windows: int = key(Integer(1), 1, about="windows in time, each with a state of its own")
    weight: float = key(Real(above=0.0), 1.0, about="weight of the gaps between windows")


@dataclass(frozen=True)
class ExperimentConfig:
    """One of several experiments that are fitted together.

    keys: by section what it changes. sections: these sections of the configuration as they are in this run. observes:
    whether its observations are its own.
    """

    name: str
    keys: Mapping[str, tuple[str, ...]]
    sections: Mapping[str, Any]
    observations: tuple[ObservationConfig, ...]
    observes: bool

    def write(self) -> dict[str, Any]:
        """The changed keys as plain YAML."""
        plain = {section: write(self.sections[section]) for section in self.keys}
        changes: dict[str, Any] = {section: {k: plain[section][k] for k in keys} for section, keys in self.keys.items()}
        return {**changes, "observations": write(self.observations)} if self.observes else changes

    def of(self, config):
        """The configuration of this experiment: `config` with the experiment's changes."""
        return dataclasses.replace(config, **self.sections)


@dataclass(frozen=True)
class InverseConfig:
    """The section `inverse`.

    horizons: the ends of the runs that are fitted in turn, in s; none: all of the run at once. checkpoint: what
    reverse mode keeps, a plan's name and 0, ("binomial", states) or ("budget", bytes). samples: how
    many fields are drawn from the posterior. experiments: what each of several runs changes; none: the configuration
    itself is the one run.
    """

    unknowns: tuple[UnknownConfig, ...]
    observations: tuple[ObservationConfig, ...]
    solver: SolverConfig
    shooting: ShootingConfig
    horizons: tuple[float, ...]
    checkpoint: tuple[str, int]
    samples: int
    experiments: tuple[ExperimentConfig, ...] = ()

    def write(self) -> dict[str, Any]:
        """Write the section as plain YAML values."""
        plan, size = self.checkpoint
        section = {
            "unknowns": {unknown.path: unknown for unknown in self.unknowns},
            **({"observations": self.observations} if self.observations else {}),
            **({"experiments": {e.name: e for e in self.experiments}} if self.experiments else {}),
            "solver": self.solver,
            "shooting": self.shooting,
            "horizons": self.horizons or None,
            "checkpoint": {plan: size} if size else plan,
            "uncertainty": {"samples": self.samples},
        }
        return write(section)
