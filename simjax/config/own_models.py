"""Models and parts of a user's own, named in a configuration by module and class: `model: my_pde.FisherKPP`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.config_errors import closest
from simjax.schema.instrument_declarations import add_own, kinds_of
from simjax.schema.model_schema import FIELDS, PARTICLES
from simjax.schema.parts import part_name, part_places

EXPERIMENTS = "experiment"
LONGEST_NAME = 200


def find_model(name: Any, folders: Sequence[Path]) -> None:
    """Make the class known that `name`, such as "my_pde.FisherKPP", stands for; nothing for a name without a dot.

    folders: where the module's file may be, also in their folder `experiment`; else it must be installed.

    Raises:
        ConfigurationError: no such module or class, an error in it, or a class that does not say what it needs.
    """
    if not isinstance(name, str) or "." not in name or name in MODELS:
        return
    declare_own(_find_class("model", name, folders), name)


def find_parts(section: type, given: Any, folders: Sequence[Path]) -> None:
    """Make the classes known that the `physics` as `given` names by module and class, such as "my_file.Gaussian".

    Raises:
        ConfigurationError: as `find_model`.
    """
    for place, parts in part_places(section).items():
        name = part_name(given.get(place)) if isinstance(given, Mapping) else None
        if isinstance(name, str) and "." in name and name not in parts:
            parts.add_own(name, _find_class(f"physics.{place}", name, folders))


def find_instrument(where: str, name: Any, folders: Sequence[Path]) -> None:
    """Make the class known that a kind of `outputs` names, such as "my_file.Above"; nothing for a name without a dot.

    Raises:
        ConfigurationError: as `find_model`, or it is no class of instruments.
    """
    if isinstance(name, str) and "." in name and name not in (*kinds_of(FIELDS), *kinds_of(PARTICLES)):
        add_own(name, _find_class(where, name, folders))


def _find_class(key: str, name: str, folders: Sequence[Path]) -> Any:
    """The class at MODULE.CLASS, which stands at a key."""
    path, _, class_name = name.rpartition(".")
    if len(name) > LONGEST_NAME or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(f"{key}={name[:LONGEST_NAME]}: expected MODULE.CLASS, such as my_pde.FisherKPP.")
    module = _module(path, f"{key}={name}", folders)
    found = getattr(module, class_name, None)
    if found is None:
        close = closest(class_name, [known for known, value in vars(module).items() if isinstance(value, type)])
        hint = f"; did you mean {path}.{close}?" if close else "."
        raise ConfigurationError(f"{key}={name}: {module.__file__} has no class {class_name}{hint}")
    return found


def declare_class(model: type) -> str:
    """Make a class known to configurations, and return its name there.

    That is the name of simjax for a model of simjax, else MODULE.CLASS, by which the command line finds it too; of a
    class in a script or in a function, which no other program can import, it is its own name.
    """
    module, name = getattr(model, "__module__", ""), getattr(model, "__name__", repr(model))
    if module.startswith("simjax.") and vars(model).get("declarations"):
        return next(iter(vars(model)["declarations"]))
    if name == getattr(model, "__qualname__", None) and module != "__main__":
        name = f"{module}.{name}"
    declare_own(model, name)
    return name


def declare_own(model: Any, name: str) -> None:
    """Make a class known to configurations by `name`: by what it or its base declares, or as a plain model.

    A plain model is a `CenteredModel` or a `SpectralModel`, whose parameters are numbers.

    Raises:
        ConfigurationError: it is none of these.
    """
    from simjax.core.model import Model, SelfSteppingModel
    from simjax.models.declaration import model as declared_model

    if not (isinstance(model, type) and issubclass(model, Model)):
        raise ConfigurationError(f"model={name}: expected a class of models, {model!r} is none.")
    if issubclass(model, SelfSteppingModel) and not model.declarations:
        families = ", ".join(repr(known) for known, schema in MODELS.items() if schema.of_particles)
        raise ConfigurationError(f"model={name}: models of particles are known by their names; write {families}.")
    missing = sorted(getattr(model, "__abstractmethods__", ()))
    made = getattr(model.configured, "__func__", None) is not vars(Model)["configured"].__func__
    if missing and made:  # of one that says not how it is made, that is told first
        raise ConfigurationError(
            f"model={name}: expected a method {missing[0]}, which is missing; write it in the class."
        )
    own = vars(model).get("declarations")
    if not own and not model.declarations and not model.declared():
        raise ConfigurationError(
            f"model={name}: expected a subclass of simjax.CenteredModel, simjax.SpectralModel or a model of simjax, or "
            "a class declared with @simjax.model(...)."
        )
    schema = next(iter(own.values())) if own else declared_model(name)(model).declarations[name]
    MODELS.add(dataclasses.replace(schema, name=name))


def _module(path: str, given: str, folders: Sequence[Path]) -> ModuleType:
    """The module at a dotted path: from a file in one of the folders, or an installed one."""
    relative = Path(*path.split(".")).with_suffix(".py")
    files = [folder / part / relative for folder in folders for part in ("", EXPERIMENTS)]
    file = next((file.resolve() for file in files if file.is_file()), None)
    loaded = sys.modules.get(path)
    if loaded is not None and (file is None or Path(loaded.__file__ or "").resolve() == file):
        return loaded
    if loaded is not None:
        raise ConfigurationError(f"{given}: a module {path} is loaded from {loaded.__file__}; rename {file}.")
    try:
        return importlib.import_module(path) if file is None else _executed(path, file)
    except ModuleNotFoundError as error:
        if file is not None or not path.startswith(str(error.name)):
            raise ConfigurationError(f"{given}: {_told(error, file)}") from error
        places = ", ".join(dict.fromkeys(str(folder) for folder in folders))
        raise ConfigurationError(
            f"{given}: no module {path}; expected {relative} in one of {places}, or an installed package."
        ) from error
    except Exception as error:  # of the user's file
        raise ConfigurationError(f"{given}: {_told(error, file)}") from error


def _executed(path: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path]
        raise
    return module


def _told(error: Exception, file: Path | None) -> str:
    """An error of a user's file in a sentence, with its line."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno} of {error.filename}: {error.msg}."
    lines = [
        frame for frame in traceback.extract_tb(error.__traceback__) if file is None or frame.filename == str(file)
    ]
    where = f"line {lines[-1].lineno} of {lines[-1].filename}: " if lines else ""
    return f"{where}{type(error).__name__}: {error}".rstrip(".") + "."
