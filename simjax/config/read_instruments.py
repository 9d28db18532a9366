"""The section `outputs`: instruments of a run, each with what it looks at, where, and how often."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simjax.config.own_models import find_instrument
from simjax.config.sections import Context
from simjax.errors import ConfigurationError
from simjax.schema.config import NAME, TimeConfig
from simjax.schema.config_errors import ConfigErrors, closest, join, unended
from simjax.schema.instrument_declarations import KEYS, OF, instrument_class, kinds_of
from simjax.schema.instruments import FRAME, STEP, TOLERANCE, InstrumentConfig, Instruments, passed
from simjax.schema.kinds import Choice, Kind, ListOf, Text
from simjax.schema.site import Refusal, Site

MOST_SAMPLES = 2**31 - 1
MOST_NAMES = 100
COMMON = (OF, "every", "name")


def read_instruments(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> Instruments | None:
    """The instruments; `keys`: all sections as written, `found`: what they were read as. None after telling why not."""
    problems, before = context.problems, len(context.problems)
    given, read = keys["outputs"] or (), []
    site = site_of(keys, found, context)
    for number, value in enumerate(given):
        where = f"outputs[{number}]"
        one = _read_one(where, value, site, context)
        if one is not None:
            _check_cadence(where, one, keys, found, problems)
            read.append((where, one))
    if len(problems) > before:
        return None
    return Instruments(_named(read, problems))


def site_of(keys: Mapping[str, Any], found: Mapping[str, Any], context: Context) -> Site:
    """The box, the sides and the sections around the instruments of a configuration."""
    box, boundaries = found["grid"] or found["box"], found["boundaries"]
    of_box, stretch = getattr(found["box"], "periodic", None), getattr(found["grid"], "stretch", None)
    return Site(
        schema=context.schema,
        axes=tuple(context.axes),
        lower=getattr(box, "lower", None),
        upper=getattr(box, "upper", None),
        shape=getattr(found["grid"], "shape", None),
        periodic=tuple(one.periodic for one in boundaries) if boundaries else of_box,
        stretched=tuple(axis for axis in context.axes if getattr(stretch, axis, None) is not None),
        counts=context.counts,
        sections=keys,
    )


def _read_one(where: str, value: Mapping[str, Any], site: Site, context: Context) -> InstrumentConfig | None:
    problems, before = context.problems, len(context.problems)
    kind = _kind_of(where, value, context)
    if kind is None:
        return None
    entry = _Entry(where, kind, value, site, problems)
    if unavailable := entry.cls.unavailable(site):
        problems.say(entry.path, f"{entry.path}: {unavailable}")
        return None
    of, given = entry.read_names(), entry.read_keys()
    if len(problems) == before:
        given = entry.cls.completed(given, site)
        for refusal in entry.cls.refusals(of, given, site):
            entry.tell(refusal)
    every = read_every(join(where, "every"), value.get("every", FRAME), problems)
    name = ""
    if "name" in value:
        name = Text(pattern=NAME, described="a name of letters, digits, _ . -").read(
            join(where, "name"), value["name"], problems
        )
    return InstrumentConfig(kind, name or "", of, every, given) if len(problems) == before else None


def _kind_of(where: str, value: Mapping[str, Any], context: Context) -> str | None:
    """The kind whose key an entry has; a class of the user's own is made known. None after telling why not."""
    schema, problems = context.schema, context.problems
    try:
        for key in value:
            find_instrument(where, key, context.folders)
    except ConfigurationError as error:
        problems.say(where, unended(error))
        return None
    kinds = kinds_of(schema.family)
    named = [kind for kind in kinds if kind in value]
    if len(named) == 1:
        return named[0]
    meant = [closest(str(key), kinds) for key in value if key not in COMMON and not named]
    hint = f"did you mean '{meant[0]}'?" if meant and meant[0] else schema.instrument_example
    problems.add(where, dict(value), f"one of {', '.join(kinds)} with what is looked at", hint)
    return None


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One entry of `outputs` of a kind that is known, while it is read."""

    where: str
    kind: str
    value: Mapping[str, Any]
    site: Site
    problems: ConfigErrors

    @property
    def cls(self) -> Any:
        return instrument_class(self.kind)

    @property
    def path(self) -> str:
        return join(self.where, self.kind)

    def _path_of(self, key: str) -> str:
        """The path of a key of the kind, or of the names."""
        at_kind = self.cls.at_kind
        if key in ("", at_kind):
            return self.path
        return join(self.path if at_kind == KEYS and key != OF else self.where, key)

    def tell(self, refusal: Refusal) -> None:
        """Add a problem with a key."""
        path, hint = self._path_of(refusal.key), f"; {refusal.hint}" if refusal.hint else ""
        if refusal.value is None:
            self.problems.say(path, f"{path}: expected {refusal.expected}{hint}")
        else:
            self.problems.add(path, refusal.value, refusal.expected, refusal.hint)

    def read_names(self) -> tuple[str, ...]:
        """The names that it looks at, each once; none after telling why not."""
        known, noun, path = self.cls.names(self.site), self.cls.noun, self._path_of(OF)
        if known is not None and not known:
            return ()
        given = self.value.get(self.kind if self.cls.at_kind == OF else OF)
        given = [given] if isinstance(given, str) else given
        if given is None or (isinstance(given, (list, tuple)) and not given):
            default = tuple(self.cls.default_names(self.site))
            if not default:
                first = "NAME" if known is None else next(iter(known))
                such = f"{self.kind}: {first}" if self.cls.at_kind == OF else f"of: [{first}]"
                self.problems.say(path, f"{path} is missing: expected {noun}, such as {such}")
            return default
        name = Text(described=f"the name of one of the {noun}") if known is None else Choice(tuple(known))
        most = max(MOST_NAMES, len(known or ()))
        return tuple(dict.fromkeys(ListOf(name, 1, most, noun=noun).read(path, given, self.problems) or ()))

    def read_keys(self) -> dict[str, Any]:
        """The keys of the kind that are given, and the defaults of others but null; after telling what is wrong."""
        given = self._given_keys()
        if given is None:
            return {}
        kinds = self.cls.keys_for(given, self.site)
        if isinstance(kinds, str):
            shown = self.value[self.kind]
            self.problems.add(self.path, dict(shown) if isinstance(shown, Mapping) else shown, kinds)
            return {}
        defaults = {field.name: field.default for field in dataclasses.fields(self.cls.Keys)}
        unknown = [key for key in given if key not in kinds]
        for key in unknown:
            self._tell_unknown(key, kinds)
        if unknown:
            return {}
        found = {}
        for key, kind in kinds.items():
            default, path = defaults.get(key, dataclasses.MISSING), self._path_of(key)
            if key in given and not (given[key] is None and default is None):
                found[key] = kind.read(path, given[key], self.problems)
            elif default is dataclasses.MISSING:
                self.problems.say(path, f"{path} is missing: expected {kind.allowed}")
            elif default not in (None, dataclasses.MISSING):
                found[key] = default
        return found

    def _given_keys(self) -> Mapping[str, Any] | None:
        """The keys of the kind as they are written; None after telling why they are none."""
        beside = {key: given for key, given in self.value.items() if key not in (self.kind, "every", "name", OF)}
        if self.cls.at_kind == OF:
            return beside | ({OF: self.value[OF]} if OF in self.value else {})
        if self.cls.at_kind != KEYS:
            return {self.cls.at_kind: self.value[self.kind], **beside}
        names = self.cls.names(self.site)
        takes = (OF,) if names is None or names else ()
        for key in (*beside, *(() if takes or OF not in self.value else (OF,))):
            self.problems.unknown(self.where, key, (self.kind, *takes, "every", "name"))
        below = self.value[self.kind]
        if below is None or isinstance(below, Mapping):
            return below or {}
        kinds = self.cls.keys_for({}, self.site)
        self.problems.add(self.path, below, kinds if isinstance(kinds, str) else f"keys {', '.join(kinds) or 'none'}")
        return None

    def _tell_unknown(self, key: str, kinds: Mapping[str, Kind]) -> None:
        """Tell that a kind has no such key."""
        if self.cls.at_kind == KEYS:
            self.problems.unknown(self.path, key, kinds)
        else:
            self.problems.unknown(self.where, key, (self.kind, *kinds, "every", "name"))


def read_every(path: str, value: Any, problems: ConfigErrors) -> float | str:
    """Read how often an instrument samples: a time above zero, or a word such as `step`."""
    if value in (FRAME, STEP):
        return value
    expected = f"a time > 0, {STEP} for every step, or {FRAME} for every output time"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        problems.add(path, value, expected)
        return FRAME
    if isinstance(value, str) and (close := closest(value, (FRAME, STEP))):
        problems.add(path, value, expected, f"did you mean '{close}'?")
        return FRAME
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        problems.add(path, value, expected)
        return FRAME
    return number


# ---------------------------------------------------------------------- cadences and names


def _check_cadence(
    where: str, one: InstrumentConfig, keys: Mapping[str, Any], found: Mapping[str, Any], problems: ConfigErrors
) -> None:
    """A cadence of its own is no finer than a step, and needs steps whose states are whole and known to all members."""
    time: TimeConfig | None = found["time"]
    if one.at_frames or time is None:
        return
    path, every = join(where, "every"), one.every
    if time.dt is not None and not isinstance(every, str) and every < time.dt * (1 - 1e-9):
        problems.add(path, every, f"at least time.dt={time.dt:g}", f"write every: {STEP} for each step")
    elif not isinstance(every, str) and time.end / every > MOST_SAMPLES:
        problems.add(path, every, f"at most {MOST_SAMPLES} samples to time.end={time.end:g}")
    else:
        check_end(path, every, time, 0.0, problems)
    ensemble = found["ensemble"]
    if time.dt is None and ensemble is not None and ensemble.several:
        problems.add(
            path,
            every,
            f"{FRAME} in an ensemble without time.dt, as each member has its own steps",
            f"write every: {FRAME}, or time.dt",
        )
    if ensemble is not None and ensemble.retry:
        problems.add(
            path,
            every,
            f"{FRAME} with ensemble.retry, as members that failed are run again with steps of their own",
            f"write every: {FRAME}, or ensemble.retry=false",
        )
    if keys["steps_per_exchange"] not in (0, None):
        problems.add(
            path,
            every,
            f"{FRAME} with steps_per_exchange={keys['steps_per_exchange']}, which leave no field whole",
            "write steps_per_exchange=0",
        )


def check_end(path: str, every: float | str, time: TimeConfig, start: float, problems: ConfigErrors) -> None:
    """Refuse a cadence by which nothing is looked at between the time `start` and the end."""
    if isinstance(every, str) or time.end == 0:  # a run of the start alone
        return
    last = passed(time.end, every) * every
    if last == 0 or last < start * (1 - TOLERANCE):
        after = f", and some of them after from={start:g}" if start else ""
        problems.add(
            path,
            every,
            f"a time of which multiples lie before time.end={time.end:g}{after}, else nothing is sampled",
            f"write every: {FRAME} for output times, or a longer time.end",
        )


def _named(read: Sequence[tuple[str, InstrumentConfig]], problems: ConfigErrors) -> list[InstrumentConfig]:
    """Give every instrument without a name that of its kind, numbered from the second of a kind on."""
    taken = [one.name for _, one in read if one.name]
    for where, one in read:
        if taken.count(one.name) > 1:
            problems.add(join(where, "name"), one.name, "a name that no other of outputs has")
    result, used = [], set(taken)
    for _, one in read:
        name, number = one.name or one.kind, 2
        while not one.name and name in used:
            name, number = f"{one.kind}_{number}", number + 1
        used.add(name)
        result.append(InstrumentConfig(one.kind, name, one.of, one.every, one.given))
    return result
