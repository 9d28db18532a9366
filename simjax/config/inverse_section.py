"""The section `inverse` read as a whole: its keys, and what they ask of the rest of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simjax.config.observations import read_observations
from simjax.config.sections import Context
from simjax.config.unknowns import find_candidates, read_unknowns
from simjax.schema.config import TimeConfig
from simjax.schema.ensemble_section import EnsembleConfig
from simjax.schema.inverse import MOST_DRAWN, WITHOUT_LINE_SEARCH, InverseConfig, ShootingConfig, SolverConfig
from simjax.schema.kinds import Integer, ListOf, Nested, OneOf, Real, Table, key, read_entries

BACKWARDS_ONLY = ("binomial", "budget", "reverse")


@dataclass(frozen=True)
class UncertaintyKeys:
    """The section `inverse.uncertainty`."""

    samples: int = key(Integer(0, MOST_DRAWN), 0, about="fields drawn from the posterior")


@dataclass(frozen=True, kw_only=True)
class SharedKeys:
    """The section `inverse` as it is written, before what depends on other sections is read.

    What is observed is left out where every experiment says it by itself.
    """

    unknowns: Mapping[str, Any] = key(Table("keys such as physics.viscosity: {guess: 0.1}"), about="what is sought")
    solver: SolverConfig = key(Nested(SolverConfig), SolverConfig(), about="how the loss is made small")
    shooting: ShootingConfig = key(
        Nested(ShootingConfig), ShootingConfig(), about="windows in time with states of their own, for chaotic runs"
    )
    horizons: tuple[float, ...] | None = key(
        ListOf(Real(above=0.0, formula=True), 1, optional=True, noun="times"),
        None,
        units="s",
        about="ends of the runs that are fitted in turn; null: all of the run at once",
    )
    checkpoint: tuple[str, float | None] = key(
        OneOf(
            {"binomial": Integer(1), "budget": Real(low=1.0)},
            words=("auto", "none", "every_few", "every_stage", "every_step", "two_level", "reverse"),
        ),
        ("auto", None),
        about="what reverse mode keeps: states, or bytes",
    )
    uncertainty: UncertaintyKeys = key(Nested(UncertaintyKeys), UncertaintyKeys(), about="what is drawn at the end")
    experiments: Mapping[str, Any] = key(
        Table("names of runs with what differs in each", optional=True), None, about="several runs with one loss"
    )


@dataclass(frozen=True, kw_only=True)
class InverseKeys(SharedKeys):
    """The section `inverse` of one experiment, or of several that are observed alike."""

    observations: tuple[Mapping[str, Any], ...] = key(
        ListOf(Table("keys such as output and deviation"), 1, noun="observations"), about="what was measured"
    )


def read_inverse(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> InverseConfig | None:
    """Read the section `inverse`, if there is one. `keys`: all sections as written; `found`: what they were read as."""
    if keys["inverse"] is None:
        return None
    problems, before = context.problems, len(context.problems)
    if keys["verify"] is not None:
        problems.say("verify", "verify: expected null, as the runs of a search are not computed twice; leave it out")
    observed_apart = "observations" not in keys["inverse"] and _each_observes(keys["inverse"].get("experiments"))
    own = read_entries(SharedKeys if observed_apart else InverseKeys, "inverse", keys["inverse"], problems)
    unknowns = ()
    if own["unknowns"] is not None:
        unknowns = read_unknowns(own["unknowns"], find_candidates(keys, found, context), context)
    observations = [
        one
        for i, value in enumerate(own.get("observations") or ())
        for one in read_observations(f"inverse.observations[{i}]", value, found, context)
    ]
    shooting = own["shooting"]
    path = "inverse.shooting.windows"
    if shooting is not None and shooting.windows > 1 and (refusal := context.schema.refusal(path)):
        problems.say(path, f"{path} = {shooting.windows}: {refusal}")
    for path, sentence in _misfits(own, found["time"], found["ensemble"]):
        problems.say(path, sentence)
    if len(problems) > before:
        return None
    plan, size = own["checkpoint"]
    return InverseConfig(
        unknowns=unknowns,
        observations=tuple(observations),
        solver=own["solver"],
        shooting=own["shooting"],
        horizons=own["horizons"] or (),
        checkpoint=(plan, int(size or 0)),
        samples=own["uncertainty"].samples,
    )


def _each_observes(experiments: Any) -> bool:
    each = list(experiments.values()) if isinstance(experiments, Mapping) else []
    return bool(each) and all(isinstance(changes, Mapping) and "observations" in changes for changes in each)


def _misfits(
    own: Mapping[str, Any], time: TimeConfig | None, ensemble: EnsembleConfig | None
) -> Iterator[tuple[str, str]]:
    """Find combinations of keys that exclude each other, among the keys that could be read."""
    solver, plan = own["solver"], own["checkpoint"]
    if solver is not None and solver.starts > 1 and solver.name not in WITHOUT_LINE_SEARCH:
        path = "inverse.solver.starts"
        several = ", ".join(WITHOUT_LINE_SEARCH)
        yield path, f"{path} = {solver.starts}: expected 1 with {solver.name}; several starts are for {several}"
    if solver is not None and plan is not None and solver.name == "gauss_newton" and plan[0] in BACKWARDS_ONLY:
        path, (word, size) = "inverse.checkpoint", plan
        written = word if size is None else f"{{{word}: {size:g}}}"
        yield (
            path,
            f"{path} = {written}: expected auto, none, every_few, every_stage, every_step or two_level with "
            "gauss_newton, which also differentiates forwards",
        )
    shooting = own["shooting"]
    if own["experiments"] and shooting is not None and shooting.windows > 1:
        path = "inverse.shooting.windows"
        yield path, f"{path} = {shooting.windows}: expected 1 with experiments, whose pieces would not begin alike"
    if time is not None:
        yield from _misfits_in_time(own, time)
    if ensemble is not None and ensemble.size > 1:
        path = "ensemble.size"
        yield path, f"{path} = {ensemble.size}: expected 1 with an inverse problem, which is posed on one run"
    elif ensemble is not None and ensemble.vary:
        path = f"ensemble.vary.{ensemble.vary[0].path}"
        yield path, f"{path}: expected nothing that varies with an inverse problem, which is posed on one run"


def _misfits_in_time(own: Mapping[str, Any], time: TimeConfig) -> Iterator[tuple[str, str]]:
    shooting, horizons = own["shooting"], own["horizons"] or ()
    if time.frames is None:
        whole = max(1, round(time.end / time.output_every)) * time.output_every
        yield (
            "time.end",
            f"time.end = {time.end:g}: expected a multiple of time.output_every={time.output_every:g} with an inverse "
            f"problem, such as {whole:g}",
        )
    elif shooting is not None and time.frames % shooting.windows:
        path = "inverse.shooting.windows"
        fewer = max(n for n in range(1, min(shooting.windows, time.frames + 1)) if time.frames % n == 0)
        yield path, f"{path} = {shooting.windows}: expected a divisor of the {time.frames} frames, such as {fewer}"
    for i, horizon in enumerate(horizons):
        path = f"inverse.horizons[{i}]"
        if i and horizon <= horizons[i - 1]:
            yield path, f"{path} = {horizon:g}: expected a time after horizons[{i - 1}]={horizons[i - 1]:g}"
        if horizon > time.end:
            yield path, f"{path} = {horizon:g}: expected a time up to time.end={time.end:g}"
