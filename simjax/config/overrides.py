"""Overrides `key=value`: their spellings, the values that Hydra reads in them, and the runs of a multirun."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from simjax.config.search_path import composing
from simjax.config.yaml_files import MAXIMUM_DEPTH, reference_problem
from simjax.deprecation import current_path
from simjax.errors import ConfigurationError
from simjax.schema.config_errors import closest
from simjax.schema.locate import config_folders, credentials_problem, list_experiments

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=]+?)(?P<value>=.*)?", re.DOTALL)
LONGEST_KEY = 200
MOST_RUNS = 10_000
"""Runs of a multirun, which are composed and checked before the first begins."""
_DEFAULT_GROUPS = ("output",)
_PATHS = ("resume", "output.root", "output.folder", "output.copy_to", "limits.until", "hydra.sweep.dir")
NO_EXPERIMENT = "none"
# Settings of Hydra that simjax has itself, and what to write instead.
_OWN_SETTINGS = {
    "hydra.searchpath": "write --config-dir DIR",
    "hydra.mode": "write -m for several runs",
    "hydra.job.chdir": "a run stays in the folder in which it was started",
    "hydra.job_logging": "a run writes run.log in its folder",
    "hydra.hydra_logging": "hydra/hydra_logging=default shows it",
    "hydra.output_subdir": "a run keeps its configuration in .hydra of its folder",
    "hydra.sweep.subdir": "each run makes its own folder below hydra.sweep.dir",
    "hydra.run": "a run's folder is output.folder=...",
}


def normalise(override: str, folders: Sequence[Path]) -> str:
    """One spelling for each override: groups as the defaults list needs them, values as `++key=value`."""
    matched = _OVERRIDE.fullmatch(override)
    if matched is None or (matched["value"] is None and matched["sign"] != "~"):
        raise ConfigurationError(_not_an_override(override, folders))
    sign, key, value = matched["sign"] or "", matched["key"].strip(), matched["value"] or ""
    if any(map(_unwritable, override)):
        raise ConfigurationError(f"{override!r}: expected a text in UTF-8 without control characters.")
    if _depth(value) > MAXIMUM_DEPTH:
        raise ConfigurationError(f"{_cut(key)}: nested deeper than {MAXIMUM_DEPTH} levels.")
    if len(key) > LONGEST_KEY or not re.fullmatch(r"\w[\w\-/@:]*(\.\w[\w\-/@:]*)*", key):
        raise ConfigurationError(
            f"{_cut(override)!r}: {_cut(key)!r} is no key; expected names joined by single points, such as "
            "time.end=2.0."
        )
    key, given = current_path(key), key
    override = override.replace(given, key, 1)
    problem = reference_problem(value[1:].strip().strip("'\""))
    if problem:
        raise ConfigurationError(f"{key}: {problem}.")
    problem = credentials_problem(value[1:].strip().strip("'\"")) if key in ("resume", "output.copy_to") else None
    if problem:
        raise ConfigurationError(f"{key}: expected {problem}.")
    if sign == "~":
        return override
    is_name = re.fullmatch(r"=[\w.,\-]+", value) is not None and "." not in key
    if key == "experiment" or (is_name and any((folder / key).is_dir() for folder in folders)):
        _check_choices(key, value[1:], folders)
        return f"{'' if key in _DEFAULT_GROUPS else '+'}{key}{value}"
    if key == "hydra.run.dir":
        key = "output.folder"
    if key in _PATHS or key.endswith(".file"):
        value = _quoted(value)
    if not re.match(r"hydra\b", key):
        return f"++{key}{value}"
    _check_setting_of_hydra(override, key)
    return f"{sign}{key}{value}"


def sets_a_value(normalised: str) -> bool:
    """Tell whether an override sets or deletes a key of the configuration, not a group or a setting of Hydra."""
    return normalised.startswith(("++", "~")) and not is_setting_of_hydra(normalised)


def is_setting_of_hydra(normalised: str) -> bool:
    """Tell whether an override sets a key `hydra.x` or chooses a group `hydra/x`."""
    return re.match(r"[+~]*hydra[./]", normalised) is not None


def _check_setting_of_hydra(override: str, key: str) -> None:
    """Refuse what would call code by its name, or take from simjax the folders and the log of a run."""
    if re.search(r"_\w+_\b", override):
        raise ConfigurationError(
            f"{override}: refused, code comes from installed plugins; choose one, as hydra/launcher=NAME."
        )
    for taken, instead in _OWN_SETTINGS.items():
        if key == taken or key.startswith(f"{taken}."):
            raise ConfigurationError(f"{override}: {taken} cannot be set; {instead}.")


def _unwritable(character: str) -> bool:
    """Tell whether no YAML file can hold the text: it has a control character or half of a surrogate pair."""
    return (character < " " and character not in "\t\n\r") or "\ud800" <= character <= "\udfff"


def _depth(text: str) -> int:
    """Levels of brackets outside of quotes: Hydra's parser calls itself for each."""
    level = deepest = 0
    for character in re.sub(r"'[^']*'|\"[^\"]*\"", "", text):
        level += (character in "[{(") - (character in "]})")
        deepest = max(deepest, level)
    return deepest


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _quoted(value: str) -> str:
    """Quote a path whose name holds what Hydra would read otherwise; a comma still means a sweep."""
    path = value[1:]
    if re.fullmatch(r"[\w./\-]*|null|['\"\[{].*", path) or "," in path:
        return value
    escaped = path.replace('"', '\\"')
    return f'="{escaped}"'


def _not_an_override(override: str, folders: Sequence[Path]) -> str:
    names = [experiment.name for experiment in list_experiments(folders)]
    name = override if override in names else closest(override, names)
    hint = f"; did you mean experiment={name}?" if name else ", such as time.end=2.0"
    return f"{override!r}: expected key=value{hint}"


def _check_choices(group: str, value: str, folders: Sequence[Path]) -> None:
    """Check that each of the comma-separated choices exists among the files of the group, and none stands twice."""
    known = sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})
    if re.fullmatch(r"(glob|choice)\(.*\)", value):
        return
    for name in value.strip("[]").split(","):
        if group == "experiment" and name.strip() == NO_EXPERIMENT:
            continue
        if name.strip() not in known:
            close = closest(name, known)
            hint = f"did you mean {group}={close}?" if close else f"known are {', '.join(known)}."
            raise ConfigurationError(f"{group}={name or '(nothing)'}: no such {group}; {hint}")
        _refuse_ambiguous(group, name.strip(), folders)


def _refuse_ambiguous(group: str, name: str, folders: Sequence[Path]) -> None:
    files = [folder / group / f"{name}.yaml" for folder in folders]
    found = [file for file in files if file.is_file()]
    if len(found) > 1:
        raise ConfigurationError(f"{group}={name} is both {found[0]} and {found[1]}; rename the latter.")


def parse(normalised: Sequence[str], *, sweeps: bool = False) -> list[Override]:
    """Hydra's reading of overrides, one by one for the sake of the sentence; of several values only for `sweeps`.

    Choices `glob(...)` of files need a context `composing`. Raises ConfigurationError with what cannot be read.
    """
    loader = GlobalHydra.instance().config_loader() if sweeps else None
    parser, parsed = OverridesParser.create(config_loader=loader), []
    for text in normalised:
        key, _, value = text.lstrip("+").partition("=")
        try:
            (override,) = parser.parse_overrides([text])
        except HydraException as error:
            lines = [line for line in str(error).splitlines() if not line.startswith("Error parsing")]
            hint = "put it in quotes inside the shell's, as in 'title=\"a = b\"'"
            if "(" in value:
                hint = 'a formula needs quotes inside the shell\'s: \'initial.velocity=["sin(x)","0"]\''
            # Without the names of Hydra's own exceptions.
            reason = re.sub(r"^\w*(Exception|Error)\b( while evaluating '.*?')?:? ?", "", lines[0] if lines else "")
            reason = "syntax" if not reason or "++" in reason else reason.rstrip(".:;")
            raise ConfigurationError(f"{key}={value!r}: the value cannot be read ({reason}); {hint}.") from None
        if override.is_sweep_override() and not sweeps:
            raise ConfigurationError(
                f"{key}={value}: several values need -m, or brackets to be a list, {key}=[{value}]."
            )
        parsed.append(override)
    return parsed


def expand_sweep(overrides: Sequence[str], *, config_dir: str | Path | None = None) -> list[list[str]]:
    """The runs of a multirun: `seed=1,2 time.dt=0.1,0.2` are four lists of overrides.

    Raises ConfigurationError for more than `MOST_RUNS`.
    """
    choices = _choices(overrides, config_dir)
    count = math.prod(map(len, choices))
    if count > MOST_RUNS:
        said = " x ".join(str(len(texts)) for texts in choices if len(texts) > 1)
        raise ConfigurationError(f"-m: {said} are {count} runs; expected at most {MOST_RUNS}: write fewer values.")
    return [list(job) for job in itertools.product(*choices)]


def sample_sweep(overrides: Sequence[str], *, config_dir: str | Path | None = None) -> list[str]:
    """One run of a multirun whose sweeper chooses the values: the first of a choice, the lower end of an interval."""
    return [choices[0] for choices in _choices(overrides, config_dir, intervals=True)]


def _choices(overrides: Sequence[str], config_dir: str | Path | None, intervals: bool = False) -> list[list[str]]:
    """The texts among which each override chooses."""
    folders = config_folders(config_dir)
    normalised = [normalise(override, folders) for override in overrides]
    with composing(folders):
        parsed = parse([text for text in normalised if not is_setting_of_hydra(text)], sweeps=True)
        return [_texts(override, intervals) for override in parsed]


def _refuse_long(override: Override, values: RangeSweep) -> None:
    """Raises ConfigurationError for a range of more values than a multirun has runs, of which none is made."""
    start, stop, step = (float(one or 0) for one in (values.start, values.stop, values.step))
    count = (stop - start) / step if step else math.inf
    if not count <= MOST_RUNS:  # also of what is no number
        raise ConfigurationError(
            f"{str(override.input_line).lstrip('+')}: a range of {count:.4g} values; at most {MOST_RUNS} runs: "
            "write a longer step, or an ensemble."
        )


def _texts(override: Override, intervals: bool) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    key, value = override.get_key_element(), override.value()
    if isinstance(value, RangeSweep):
        _refuse_long(override, value)
    if not isinstance(value, IntervalSweep):
        texts = [f"{key}={text}" for text in override.sweep_string_iterator()]
        if texts:
            return texts
        raise ConfigurationError(
            f"{str(override.input_line).lstrip('+')}: no values to run with; write them out, as in seed=1,2,3."
        )
    if not intervals:
        raise ConfigurationError(
            f"{str(override.input_line).lstrip('+')}: an interval is searched by a sweeper, as hydra/sweeper=optuna; "
            "choices are written out, as in seed=1,2,3."
        )
    return [f"{key}={value.start}"]
