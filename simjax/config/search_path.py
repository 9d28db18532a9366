"""Search path of Hydra: simjax's own folder, and the user's, which is inspected."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import initialize_config_dir, version
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simjax.config.yaml_files import inspect_yaml, read_yaml_text
from simjax.errors import ConfigurationError
from simjax.schema.config_errors import ended

VERSION_BASE = "1.3"
# Hydra's state belongs to the process: one composition at a time; a run that Hydra started may compose within.
_LOCK = threading.RLock()


class InspectedSource(ConfigSource):
    """A folder of YAML files that are inspected before Hydra reads them."""

    @staticmethod
    def scheme() -> str:
        return "simjax"

    def load_config(self, config_path: str) -> ConfigResult:
        if ".." in config_path.split("/"):
            raise ConfigurationError(f"{config_path}: a configuration is named below its folder, without '..'.")
        if config_path.startswith("hydra/"):
            raise ConfigurationError(f"{config_path}: settings of Hydra come from installed plugins, not from files.")
        file = self._file(config_path)
        if not file.is_file():
            raise ConfigLoadError(f"Config not found : {file}")
        text = read_yaml_text(file)
        inspect_yaml(text, str(file), experiment=config_path.startswith("experiment/"))
        loaded, header = OmegaConf.create(text), self._get_header_dict(text[:512])
        return ConfigResult(provider=self.provider, path=self.full_path(), config=loaded, header=header)

    def _file(self, config_path: str) -> Path:
        return Path(self.path) / self._normalize_file_name(config_path)

    def is_group(self, config_path: str) -> bool:
        return (Path(self.path) / config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        return self._file(config_path).is_file()

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names: list[str] = []
        for file in (Path(self.path) / config_path).iterdir():
            self._list_add_result(names, f"{config_path}/{file.name}".lstrip("/"), file.name, results_filter)
        return sorted(set(names))


class UserFolders(SearchPathPlugin):
    """Adds the user's folders to Hydra's search path while simjax composes, and nothing at other times."""

    folders: tuple[Path, ...] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in self.folders:
            search_path.append("simjax-user", f"{InspectedSource.scheme()}://{folder}")


@contextmanager
def searching(folders: Sequence[Path]) -> Iterator[None]:
    """A context in which Hydra looks in `folders[1:]` too; its errors become one sentence."""
    with _LOCK:
        for plugin in (InspectedSource, UserFolders):
            Plugins.instance().register(plugin)
        base = version.VersionBase.instance()
        before, UserFolders.folders = (base.version_base, UserFolders.folders), tuple(folders[1:])
        version.setbase(VERSION_BASE)
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigurationError(_sentence(error)) from None
        finally:
            base.version_base, UserFolders.folders = before


@contextmanager
def composing(folders: Sequence[Path]) -> Iterator[None]:
    """A context for `hydra.compose` in `folders`; a Hydra application around it finds its own state as it was."""
    with searching(folders):
        context = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(str(folders[0]), job_name="simjax", version_base=VERSION_BASE):
                yield
        finally:
            GlobalHydra.instance().hydra = context


def _sentence(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None and not str(cause).strip():
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return ended(", ".join(lines[:8]).replace(":,", ":") or type(cause).__name__)
