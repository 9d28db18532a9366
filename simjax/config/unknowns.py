"""The unknowns of an inverse problem: which there can be in a configuration, and how each is written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simjax.config.sections import Context, read_components
from simjax.schema.config_errors import ConfigErrors
from simjax.schema.formula import Formula
from simjax.schema.inverse import PRIORS, NetworkConfig, UnknownConfig
from simjax.schema.kinds import Choice, Flag, ListOf, Nested, OneOf, Plain, Real, Unread, key, read_section
from simjax.schema.model_schema import AXES
from simjax.schema.numbers import leads_to_some, numbers_of

FIELDS = ("initial", "coefficients")
SECTIONS = ("physics", "parameters", "particles", *FIELDS, "modules")
OF_FIELDS_ONLY = ("smooth", "symmetric")
NOT_OF_MODULES = ("guess", "positive", "bounds")
ROOT = "inverse.unknowns"


@dataclass(frozen=True)
class Sign(Plain):
    """Effect of a mirror on a field."""

    allowed: str = "1 or -1"

    def read(self, path: str, value: Any, problems: ConfigErrors) -> float | None:
        if isinstance(value, bool) or value not in (1, -1):
            problems.add(path, value, self.allowed)
            return None
        return float(value)


@dataclass(frozen=True)
class SymmetricKeys:
    """A mirror in the middle of an axis."""

    axis: str = key(Choice(AXES), about="axis of the mirror")
    sign: float = key(Sign(), about="what the mirror does to the field")


@dataclass(frozen=True)
class UnknownKeys:
    """Keys of an unknown of an inverse problem."""

    guess: Any = key(
        Unread("a number, a formula, or one formula per component"),
        None,
        about="where the search starts; left out: the configuration's own value",
    )
    positive: bool = key(Flag(), False, about="whether all values are above zero")
    bounds: tuple[float, ...] | None = key(
        ListOf(Real(formula=True), 2, 2, optional=True, noun="numbers, lower and upper"),
        None,
        about="values lie between these",
    )
    smooth: float | None = key(
        Real(above=0.0, optional=True), None, units="m", about="length over which the field is smoothed"
    )
    symmetric: SymmetricKeys | None = key(
        Nested(SymmetricKeys, optional=True), None, about="mirror in the middle of an axis that the field has"
    )
    scale: float | None = key(Real(above=0.0, optional=True), None, about="size of the latent unit")
    prior: tuple[str, Any] | None = key(
        OneOf({name: Nested(prior) for name, prior in PRIORS.items()}, optional=True),
        None,
        about="what is known before anything is measured",
    )
    network: NetworkConfig | None = key(Nested(NetworkConfig, optional=True), None, about="what a module is")


@dataclass(frozen=True)
class Candidate:
    """Quantity that may be unknown: a number with its range, a field with its components, or a learned module.

    on_grid: whether the components are fields, not vectors of particles. given: whether the configuration says what it
    is. constants: its values there, as far as they are plain numbers.
    """

    path: str
    range: Real | None = None
    components: int = 0
    on_grid: bool = True
    given: bool = True
    constants: tuple[float, ...] = ()


def find_candidates(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> dict[str, Candidate]:
    """Parameters and fields that an inverse problem may seek, by key path. `keys`: what was written; `found`: what it
    was read as."""
    schema, ndim = context.schema, context.ndim
    candidates = _numbers("physics", found["physics"] or schema.physics, ndim)
    for name, value in found["parameters"].items():
        constants = (value,) if math.isfinite(value) else ()
        candidates.append(Candidate(f"parameters.{name}", Real(), constants=constants))
    if schema.particles is not None:
        candidates += _numbers("particles", found["particles"] or schema.particles, ndim)
        candidates += [Candidate(f"initial.{name}", None, ndim, on_grid=False) for name in schema.given_at_start]
        return {candidate.path: candidate for candidate in candidates}
    for section, fields in (("initial", schema.fields), ("coefficients", schema.coefficients)):
        for field in fields:
            count = len(field.components(ndim, context.counts.get(field.name, 0)))
            given = not field.optional or (keys[section] or {}).get(field.name) is not None
            source = found[section].get(field.name)
            numbers = [formula.constant for formula in source] if isinstance(source, tuple) else []
            constants = tuple(number for number in numbers if number is not None)
            path = f"{section}.{field.name}"
            candidates.append(Candidate(path, None, count, given=given, constants=constants))
    candidates += [Candidate(f"modules.{name}") for name in schema.modules]
    return {candidate.path: candidate for candidate in candidates}


def _numbers(section: str, keys: Any, ndim: int) -> list[Candidate]:
    """Numbers of a section, a dataclass or an instance of one, on which no shape depends."""
    found = []
    for number in numbers_of(keys, ndim):
        if not number.fixed:
            known = () if number.value is None else (number.value,)
            given = isinstance(keys, type) or bool(known)
            found.append(Candidate(f"{section}.{number.path}", number.kind, given=given, constants=known))
    return found


def read_unknowns(
    value: Mapping[str, Any], candidates: Mapping[str, Candidate], context: Context
) -> tuple[UnknownConfig, ...]:
    """`inverse.unknowns`, its paths nested or dotted."""
    if not value:
        context.problems.say(ROOT, f"{ROOT}: expected at least one, such as {{{next(iter(candidates))}: {{}}}}")
    unknowns = []
    for path, options in _by_path(value, candidates).items():
        if path not in candidates:
            context.problems.unknown(ROOT, path, candidates)
            continue
        unknown = _read_unknown(f"{ROOT}.{path}", options, candidates[path], context)
        if unknown is not None:
            unknowns.append(unknown)
    return tuple(unknowns)


def _by_path(value: Mapping[str, Any], candidates: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested and dotted keys; nested ones win, as the command line writes them."""
    dotted: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for path, item in value.items():
        if isinstance(item, Mapping) and (path in SECTIONS or leads_to_some(path, candidates)):
            below = {f"{path}.{name}": options for name, options in item.items()}
            nested |= _by_path(below, candidates)
        else:
            dotted[str(path)] = item
    return _merged(dotted, nested)


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{key: _merged(below.get(key), item) for key, item in above.items()}}


def _read_unknown(where: str, options: Any, candidate: Candidate, context: Context) -> UnknownConfig | None:
    problems, before = context.problems, len(context.problems)
    if not candidate.given:
        problems.say(where, f"{where}: {candidate.path} is not given; write {candidate.path}=... to have it sought")
    keys = read_section(UnknownKeys, where, options, problems)
    if keys is None:
        return None
    _check_fit(where, keys, candidate, problems)
    if keys.bounds is not None:
        _check_bounds(where, keys, keys.bounds, candidate, problems)
    if keys.symmetric is not None:
        Choice(context.axes).read(f"{where}.symmetric.axis", keys.symmetric.axis, problems)
    guess = _read_guess(f"{where}.guess", keys.guess, candidate, context)
    if len(problems) == before:
        _check_start(f"{where}.guess", keys, guess, candidate, problems)
    prior = None if keys.prior is None else (keys.prior[0], dataclasses.astuple(keys.prior[1]))
    if keys.network is not None:
        known = Choice([field.name for field in context.schema.fields])
        for i, name in enumerate(keys.network.fields):
            known.read(f"{where}.network.fields[{i}]", name, problems)
    unknown = UnknownConfig(candidate.path, guess, _list_transforms(keys), prior, keys.network)
    return unknown if len(problems) == before else None


def _check_fit(where: str, keys: UnknownKeys, candidate: Candidate, problems: ConfigErrors) -> None:
    """Refuse keys of an unknown that its kind (number, field or module) does not take."""
    is_module = candidate.range is None and not candidate.components
    is_field = candidate.components > 0 and candidate.on_grid
    refused = [] if is_field else [key for key in OF_FIELDS_ONLY if getattr(keys, key) is not None]
    if keys.prior is not None and keys.prior[0] != "gaussian" and not is_field:
        refused.append(f"prior.{keys.prior[0]}")
    if keys.network is not None and not is_module:
        path = f"{where}.network"
        problems.say(path, f"{path}: expected at a module, modules.NAME, only")
    for name in refused:
        problems.say(
            f"{where}.{name}", f"{where}.{name}: expected at a field on a grid, initial.NAME or coefficients.NAME, only"
        )
    for name in NOT_OF_MODULES if is_module else ():
        if getattr(keys, name) not in (None, False):
            problems.say(f"{where}.{name}", f"{where}.{name}: a module starts from its own weights, which are free")


def _check_bounds(
    where: str, keys: UnknownKeys, bounds: tuple[float, ...], candidate: Candidate, problems: ConfigErrors
) -> None:
    lower, upper = bounds
    if keys.positive:
        problems.say(
            where, f"{where}: positive=true and bounds={list(bounds)}: expected one of them; bounds may start at 0"
        )
    if not lower < upper:
        problems.add(f"{where}.bounds", list(bounds), "the lower number first")
    elif candidate.range is not None:
        # Values lie strictly between the bounds: these may be the numbers that the values must be above.
        kind = candidate.range
        low = kind.low if kind.above is None else max(kind.low, kind.above)
        ListOf(Real(low, kind.high), 2, 2).read(f"{where}.bounds", bounds, problems)


def _read_guess(path: str, value: Any, candidate: Candidate, context: Context) -> tuple[Formula, ...] | None:
    if value is None:
        return None
    if candidate.components:
        return read_components(path, value, candidate.components, context, noise=candidate.on_grid)
    if candidate.range is None:
        return None
    kind = dataclasses.replace(candidate.range, optional=False, formula=True)
    return None if kind.read(path, value, context.problems) is None else (Formula(value),)


def _check_start(
    path: str, keys: UnknownKeys, guess: tuple[Formula, ...] | None, candidate: Candidate, problems: ConfigErrors
) -> None:
    """Check that the search starts strictly inside of what is allowed: the latent number of a bound is infinite."""
    if keys.positive:
        lower, upper, inside = 0.0, math.inf, "a number > 0, as positive=true says"
    elif keys.bounds is not None:
        (lower, upper) = keys.bounds
        inside = f"a number > {lower:g} and < {upper:g}, as bounds={list(keys.bounds)} says"
    else:
        return
    if guess is None:
        outside = [number for number in candidate.constants if not lower < number < upper]
        if outside:
            problems.say(path, f"{path} is missing: {candidate.path} is {outside[0]:g} itself; expected {inside}")
        return
    for i, formula in enumerate(guess):
        if formula.constant is not None and not lower < formula.constant < upper:
            problems.add(path if len(guess) == 1 else f"{path}[{i}]", formula.constant, inside)


def _list_transforms(keys: UnknownKeys) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """List the transforms in the order in which they are applied to the latent array."""
    transforms: list[tuple[str, tuple[float, ...]]] = []
    if keys.scale is not None:
        transforms.append(("scaled", (keys.scale, 0.0)))
    if keys.smooth is not None:
        transforms.append(("smooth", (keys.smooth,)))
    if keys.symmetric is not None:
        transforms.append(("symmetric", (float(AXES.index(keys.symmetric.axis)), keys.symmetric.sign)))
    if keys.positive:
        transforms.append(("positive", ()))
    elif keys.bounds is not None:
        transforms.append(("bounded", keys.bounds))
    return tuple(transforms)
