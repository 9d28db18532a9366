"""Places of `conf`, of experiments and of input files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simjax.errors import HIDDEN, ConfigurationError, without_credentials

PACKAGE_LINE = "# @package _global_"
CONFIG_NAME = "config"  # the file of `conf` to begin with
LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes, of Linux and of most of its file systems


@dataclass(frozen=True)
class Experiment:
    """An experiment file: its name, its one-line description and where it is."""

    name: str
    description: str
    file: Path


def conf_folder() -> Path:
    """`conf` inside the installed package, or beside it in a checkout (also for an editable install)."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / f"{CONFIG_NAME}.yaml").is_file():
            return folder
    raise ConfigurationError(f"simjax's own conf/config.yaml is neither in {package} nor beside it; reinstall simjax.")


def config_folders(config_dir: str | Path | None = None) -> tuple[Path, ...]:
    """The folders that are searched for experiments: simjax's own, then the user's."""
    if config_dir is None:
        return (conf_folder(),)
    folder = usable_path(config_dir, "--config-dir").expanduser().resolve()
    if not folder.is_dir():
        raise ConfigurationError(f"--config-dir {config_dir}: expected a folder that holds experiment/NAME.yaml.")
    return (conf_folder(), folder)


def is_url(place: str | None) -> bool:
    """Tell whether a place is in an object store, such as gs://bucket/runs, rather than a folder."""
    return "://" in (place or "")


def credentials_problem(place: str | None) -> str | None:
    """A sentence about a place in a store that has a user, a password or a query in it; None where it has none."""
    hidden = without_credentials(place or "")
    if not is_url(place) or HIDDEN not in hidden:
        return None
    plain = hidden.removesuffix(f"?{HIDDEN}").replace(f"{HIDDEN}@", "")
    return (
        f"a place without user, password or query, which all files of a run would show: write {plain}, and give "
        "credentials by the store's environment variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "GOOGLE_APPLICATION_CREDENTIALS, FSSPEC_SFTP_USERNAME, ...) or ~/.config/fsspec/conf.json"
    )


def path_problem(path: str | Path) -> str | None:
    """A sentence about a path that no system can have, such as one with a name of 300 letters; None where it can."""
    text = str(path)
    try:
        names = [len(os.fsencode(name)) for name in Path(text).parts]
    except UnicodeEncodeError:
        return "a path in UTF-8"
    if "\0" in text:
        return "a path without the character NUL"
    if max(names, default=0) > LONGEST_NAME:
        return f"a path whose names have at most {LONGEST_NAME} bytes, got one of {max(names)}"
    if sum(names) + len(names) > LONGEST_PATH:
        return f"a path of at most {LONGEST_PATH} bytes, got {sum(names) + len(names)}"
    return None


def usable_path(path: str | Path, door: str) -> Path:
    """The path; ConfigurationError where no system can have it.

    door: how the user named it, such as "--folder".
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigurationError(f"{door}={path!r}: expected a folder's path, such as result.folder.")
    if problem := path_problem(path):
        shown = repr(str(path))
        raise ConfigurationError(f"{door}: expected {problem}: {shown if len(shown) < 80 else f'{shown[:60]}...'}")
    return Path(path)


def input_folders(config_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """Folders in which relative input files are looked up: working directory, user's folder, simjax's own."""
    return (Path.cwd(), *config_dirs, conf_folder().parent)


def list_experiments(folders: Sequence[Path] | None = None) -> list[Experiment]:
    """Every `experiment/NAME.yaml` with its first comment line after the `@package` line, sorted by name."""
    found: dict[str, Experiment] = {}
    for folder in folders or config_folders():
        for file in sorted((folder / "experiment").glob("*.yaml")):
            if not file.name.startswith("."):
                found.setdefault(file.stem, Experiment(file.stem, _describe(file), file))
    return sorted(found.values(), key=lambda experiment: experiment.name)


def _describe(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as lines:
        for _, line in zip(range(20), lines, strict=False):
            text = line.strip()
            if text.startswith("#") and not text.lstrip("# ").startswith("@"):
                return text.lstrip("# ").rstrip()[:100]
            if text and not text.startswith("#"):
                break
    return ""


def locate_run_folder(root: str, folder: str) -> Path | None:
    """`folder`, from the working directory or from `root`, if it lies below `root` after links; else None."""
    allowed = Path(root).expanduser().resolve()
    for candidate in (Path(folder).expanduser().resolve(), (allowed / folder).resolve()):
        if allowed in candidate.parents:
            return candidate
    return None
