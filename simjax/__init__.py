"""simjax: differentiable simulation for accelerators in JAX. Names are loaded when first used."""

import ast
import time
from importlib import import_module
from pathlib import Path

_IMPORTED_AT, _COMPUTED_BEFORE = time.monotonic(), time.process_time()
"""When simjax was imported, and for how many seconds the process had computed by then (`environment.process_start`)."""

_HOMES = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""Public name -> its module, from the file that editors and type checkers read."""

__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__():
    return sorted({*_HOMES, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str):
    if name == "__version__":
        # Only here: the names of all packages take a twentieth of a second to import.
        from importlib.metadata import version

        return version("simjax")
    if name not in _HOMES:
        from simjax.deprecation import current_name

        if current := current_name(name):
            return __getattr__(current)
        raise AttributeError(f"module 'simjax' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
