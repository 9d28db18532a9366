"""Hydra's composition of YAML files and overrides into one plain mapping, without its run folders.

Only composing is taken from Hydra: files pass `inspect_yaml` before they are read, `key=value` may set any
key (it is the validation that knows which keys exist), and references between keys are resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simjax.config.validate import validate
from simjax.config.yaml_files import MAXIMUM_DEPTH, inspect_yaml, read_yaml_text, reference_problem, resolve_references
from simjax.errors import ConfigurationError
from simjax.schema.config import Config, Keys
from simjax.schema.errors import closest, ended
from simjax.schema.locate import config_folders, input_folders, list_experiments

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=]+?)(?P<value>=.*)?", re.DOTALL)
LONGEST_KEY = 200
_DEFAULT_GROUPS = ("output",)
_PATHS = ("resume", "output.root", "output.folder")
NO_EXPERIMENT = "none"
# Sections of names that a user chooses or leaves out: what a base has there beside them is told.
_OPEN_SECTIONS = (
    "physics", "parameters", "boundaries", "initial", "coefficients", "forcing", "closure", "exact", "particles",
    "ensemble.vary", "inverse",
)  # fmt: skip


@dataclass(frozen=True)
class Composition:
    """A composed, not yet validated configuration and where it came from."""

    mapping: Mapping[str, Any]
    overrides: tuple[str, ...]
    folders: tuple[Path, ...]
    experiment: str | None
    notes: tuple[str, ...] = ()

    def config(self) -> Config:
        config = validate(self.mapping, folders=input_folders(self.folders[1:]), overrides=self.overrides)
        config = replace(config, notes=self.notes)
        known = {experiment.name: experiment for experiment in list_experiments(self.folders)}
        experiment = known.get(config.experiment_name)
        return replace(config, description=experiment.description if experiment is not None else "")


class InspectedSource(FileConfigSource):
    """A folder of YAML files that are inspected before Hydra reads them."""

    @staticmethod
    def scheme() -> str:
        return "simjax"

    def load_config(self, config_path: str) -> ConfigResult:
        if ".." in config_path.split("/"):
            raise ConfigurationError(f"{config_path}: a configuration is named below its folder, without '..'.")
        file = Path(self.path) / self._normalize_file_name(config_path)
        inspect_yaml(read_yaml_text(file), str(file), experiment=config_path.startswith("experiment/"))
        return super().load_config(config_path)


def compose(overrides: Sequence[str] = (), *, config_dir: str | Path | None = None) -> Composition:
    """Compose conf/config.yaml, the chosen experiment and overrides `key=value` (any order, + optional)."""
    folders = config_folders(config_dir)
    normalised = [normalise(override, folders) for override in overrides]
    if not _is_experiment(NO_EXPERIMENT, folders):
        normalised = [text for text in normalised if text != f"+experiment={NO_EXPERIMENT}"]
    chosen = _chosen_experiment(normalised)
    with _composing():
        values = _parse([text for text in normalised if _sets_a_value(text)])
        groups = [text for text in normalised if not _sets_a_value(text)]
        loaded = _loader(folders).load_configuration("config", groups, RunMode.RUN, from_shell=False)
        plain: Any = OmegaConf.to_container(loaded, resolve=False)
    plain.pop("hydra", None)
    if chosen is not None and plain.get("experiment_name") is None:
        plain["experiment_name"] = chosen
    notes = _what_remains(plain, values, f"experiment={chosen}")
    return Composition(_complete(plain, values), tuple(overrides), folders, chosen, notes)


def compose_from_run(file: Path, overrides: Sequence[str] = ()) -> Composition:
    """Start from the `.hydra/config.yaml` of an earlier run instead of an experiment; apply overrides."""
    import yaml

    text = read_yaml_text(file)
    inspect_yaml(text, str(file))
    folders = config_folders()
    normalised = [normalise(override, folders) for override in overrides]
    for given, override in zip(overrides, normalised, strict=True):
        if not _sets_a_value(override):
            raise ConfigurationError(f"{given}: a resumed run takes keys, such as output.report=true, not groups.")
    with _composing():
        values = _parse(normalised)
    plain = yaml.safe_load(text) or {}
    notes = _what_remains(plain, values, "the earlier run")
    return Composition(_complete(plain, values), tuple(overrides), folders, None, notes)


def known_keys() -> list[str]:
    """The keys at the top of a configuration."""
    return [field.name for field in fields(Keys)]


def _sets_a_value(normalised: str) -> bool:
    return normalised.startswith(("++", "~"))


def _complete(plain: dict[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """Apply values in their order, then put in what references refer to; a null name is no name."""
    for override in overrides:
        if override.package is not None:
            raise ConfigurationError(f"{override.input_line}: write key=value, without @.")
        _apply(plain, override.key_or_group, override)
    if plain.get("experiment_name", "") is None:
        del plain["experiment_name"]
    return resolve_references(plain)


def _what_remains(base: Mapping[str, Any], overrides: Sequence[Override], named: str) -> tuple[str, ...]:
    """Sentences about entries of the base that stay beside those of a mapping that a user gives."""
    deleted = tuple(override.key_or_group for override in overrides if override.is_delete())
    notes = []
    for override in overrides:
        path = override.key_or_group
        inside = any(path == section or path.startswith(f"{section}.") for section in _OPEN_SECTIONS)
        if override.is_delete() or not inside or path in deleted:
            continue
        given, there = override.value(), _at(base, path)
        if isinstance(given, dict) and isinstance(there, dict):
            gone = {key for key in there if f"{path}.{key}" in deleted or there[key] is None}
            left = [str(key) for key in there if key not in given and key not in gone]
            if left:
                notes.append(
                    f"{path}={{...}} is merged: {', '.join(left)} of {named} stay beside "
                    f"{', '.join(map(str, given)) or 'nothing'}; write ~{path} before it for these alone."
                )
    return tuple(notes)


def _at(mapping: Any, path: str) -> Any:
    """Return the entry at a path, or None."""
    for key in path.split("."):
        mapping = mapping.get(key) if isinstance(mapping, Mapping) else None
    return mapping


def _is_experiment(name: str, folders: Sequence[Path]) -> bool:
    return any((folder / "experiment" / f"{name}.yaml").is_file() for folder in folders)


def _apply(plain: dict[str, Any], path: str, override: Override) -> None:
    """Set or delete one key. A mapping is merged into a mapping; everything else replaces what was there."""
    *parents, last = path.split(".")
    here: Any = plain
    for key in parents:
        place = _place(here, key)
        if place is None and (isinstance(here, list) or override.is_delete()):
            raise ConfigurationError(f"{path}: there is no '{key}' to go into.")
        place = key if place is None else place
        if not isinstance(_get(here, place), (dict, list)):
            here[place] = {}
        here = here[place]
    place, value = _place(here, last), override.value()
    if override.is_delete():
        if place is None:
            raise ConfigurationError(f"~{path}: there is no such key.")
        del here[place]
    elif place is None and isinstance(here, list):
        raise ConfigurationError(f"{path}: the list has {len(here)} entries, 0 to {len(here) - 1}.")
    else:
        place = last if place is None else place
        here[place] = _merged(_get(here, place), value)


def _get(here: Any, place: Any) -> Any:
    return here.get(place) if isinstance(here, dict) else here[place]


def _place(here: Any, key: str) -> Any:
    """The index or key of an existing entry, or None."""
    if isinstance(here, list):
        return int(key) if key.isdigit() and int(key) < len(here) else None
    return key if key in here else None


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def load_config(
    experiment: str | None = None, overrides: Sequence[str] = (), *, config_dir: str | Path | None = None
) -> Config:
    """Compose and validate in one call: `load_config("fluid", ["grid.shape=[64,64]"])`; no name: the defaults alone."""
    chosen = [] if experiment is None else [f"experiment={experiment}"]
    return compose([*chosen, *overrides], config_dir=config_dir).config()


def expand_sweep(overrides: Sequence[str], *, config_dir: str | Path | None = None) -> list[list[str]]:
    """The jobs of a multirun: `seed=1,2 time.dt=0.1,0.2` are four lists of overrides."""
    folders = config_folders(config_dir)
    normalised = [normalise(override, folders) for override in overrides]
    with _composing():
        loader = _loader(folders)
        parsed = _parse(normalised, loader)
        jobs = BasicSweeper.split_arguments(parsed, max_batch_size=None)[0]
    if not jobs:
        raise ConfigurationError(f"{' '.join(overrides)}: no values to run with; write them out, as in seed=1,2,3.")
    return jobs


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
    problem = reference_problem(value[1:].strip().strip("'\""))
    if problem:
        raise ConfigurationError(f"{key}: {problem}.")
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
    if re.match(r"hydra\b", key):
        raise ConfigurationError(f"{override}: only hydra.run.dir can be set; a run's folder is output.folder=...")
    return f"++{key}{value}"


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
    """Paths need no quotes of their own, whatever their names hold; a comma still means a sweep."""
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
    """Each of the comma-separated choices exists, once, among the files of the group."""
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


def _chosen_experiment(normalised: Sequence[str]) -> str | None:
    chosen = [override.partition("=")[2] for override in normalised if override.startswith("+experiment=")]
    if len(set(chosen)) > 1:
        raise ConfigurationError(f"experiment={' and experiment='.join(chosen)}: expected one; -m runs several.")
    if chosen and not re.fullmatch(r"[\w.\-]+", chosen[0]):
        raise ConfigurationError(f"experiment={chosen[0]}: several experiments need -m.")
    return chosen[0] if chosen else None


def _parse(normalised: Sequence[str], sweep_loader: ConfigLoaderImpl | None = None) -> list[Override]:
    """Hydra's reading of the values, one by one for the sake of the sentence; sweeps only with a loader."""
    parser, parsed = OverridesParser.create(config_loader=sweep_loader), []
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
        if override.is_sweep_override() and sweep_loader is None:
            raise ConfigurationError(
                f"{key}={value}: several values need -m, or brackets to be a list, {key}=[{value}]."
            )
        parsed.append(override)
    return parsed


def _loader(folders: Sequence[Path]) -> ConfigLoaderImpl:
    Plugins.instance().register(InspectedSource)
    search_path = ConfigSearchPathImpl()
    search_path.append("hydra", "pkg://hydra.conf")
    for provider, folder in zip(("main", "user"), folders, strict=False):
        search_path.append(provider, f"simjax://{folder}")
    search_path.append("schema", "structured://")
    return ConfigLoaderImpl(search_path)


@contextmanager
def _composing() -> Iterator[None]:
    """Hydra at version base 1.3, put back afterwards; its errors in one sentence."""
    base = version.VersionBase.instance()
    before = base.version_base
    version.setbase("1.3")
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(_sentence(error)) from None
    finally:
        base.version_base = before


def _sentence(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None and not str(cause).strip():
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return ended(", ".join(lines[:8]).replace(":,", ":") or type(cause).__name__)
