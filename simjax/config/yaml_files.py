"""YAML texts, looked at before anything is made of them: size, aliases, tags, look-ups, misread words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from simjax.errors import ConfigurationError
from simjax.schema.locate import PACKAGE_LINE

MAXIMUM_BYTES = 1_000_000
MAXIMUM_NODES = 20_000
MAXIMUM_DEPTH = 30

REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)*)\}")
_CLOCK = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_PLUGIN_GROUP = re.compile(r"override\s+/?hydra/(launcher|sweeper)(/\w+)?")
_CORE_TAGS = {f"tag:yaml.org,2002:{t}" for t in ("map", "seq", "str", "int", "float", "bool", "null", "merge")}
_DATES = "tag:yaml.org,2002:timestamp"  # OmegaConf reads these as texts


def read_yaml_text(file: Path) -> str:
    """The text of a configuration file, refused when it is too large or not UTF-8."""
    try:
        size = file.stat().st_size
        if size > MAXIMUM_BYTES:
            raise ConfigurationError(f"{file}: {size} bytes; a configuration has at most {MAXIMUM_BYTES}.")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: expected a text in UTF-8 ({error.reason} at byte {error.start}).") from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read ({error.strerror}).") from None


def inspect_yaml(text: str, name: str, *, experiment: bool = False) -> None:
    """Raise one ConfigurationError with everything that must not be composed from `text`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise ConfigurationError(f"{name}: {line}not YAML ({getattr(error, 'problem', None) or error}).") from None
    except RecursionError:
        raise ConfigurationError(f"{name}: nested deeper than {MAXIMUM_DEPTH} levels.") from None
    problems = [_package_problem(text)] if experiment else []
    if root is not None:
        if not isinstance(root, yaml.MappingNode):
            raise ConfigurationError(f"{name}: expected keys with values, such as 'seed: 0'.")
        _expanded_size(root, name, {}, 0)
        problems += list(_node_problems(root, set()))
        problems += list(_hydra_problems(root))
    found = [problem for problem in problems if problem]
    if found:
        raise ConfigurationError("\n".join(f"{name}: {problem}" for problem in found))


def _package_problem(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if re.fullmatch(r"#\s*@package\s+_global_", first):  # Hydra looks no further
        return ""
    return f"its keys would be lost below 'experiment'; write {PACKAGE_LINE!r} as its first line"


def _expanded_size(node: yaml.Node, name: str, known: dict[int, int | None], depth: int) -> int:
    """Nodes after aliases are expanded; an alias that contains itself has no end."""
    if depth > MAXIMUM_DEPTH:
        raise ConfigurationError(f"{name}: nested deeper than {MAXIMUM_DEPTH} levels.")
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise ConfigurationError(f"{name}: line {node.start_mark.line + 1}: an alias contains itself.")
        return size
    known[id(node)] = None
    size = 1
    for child in _children(node):
        size += _expanded_size(child, name, known, depth + 1)
        if size > MAXIMUM_NODES:
            raise ConfigurationError(
                f"{name}: more than {MAXIMUM_NODES} values once its aliases are expanded; write them out."
            )
    known[id(node)] = size
    return size


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _node_problems(node: yaml.Node, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:
        return
    seen.add(id(node))
    line = f"line {node.start_mark.line + 1}"
    if node.tag not in _CORE_TAGS and node.tag != _DATES:
        yield f"{line}: the tag {node.tag!r} is refused; write plain values"
    if isinstance(node, yaml.ScalarNode):
        problem = _scalar_problem(node)
        if problem:
            yield f"{line}: {problem}"
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in sorted({key for key in keys if keys.count(key) > 1 and key != "<<"}):
            yield f"{line}: the key '{key}' is written twice"
    for child in _children(node):
        yield from _node_problems(child, seen)


def _scalar_problem(node: yaml.ScalarNode) -> str:
    if node.style is None and _LEADING_ZERO.fullmatch(node.value):
        return f"{node.value} is an octal number to YAML; write {node.value.lstrip('+-0_') or '0'}"
    if node.style is None and _CLOCK.fullmatch(node.value):
        return f"{node.value} is a number of base 60 to YAML; write a plain number, or quotes around a text"
    return reference_problem(node.value)


def reference_problem(text: str) -> str:
    """`${grid.shape}`, alone, refers to another key; everything else behind `${` is refused, unread."""
    if "${" not in text or REFERENCE.fullmatch(text.strip()):
        return ""
    return f"{text[:60]!r} is refused; only a whole value may refer to another key, as in ${{grid.shape}}"


def _hydra_problems(root: yaml.MappingNode) -> Iterator[str]:
    """Sentences about what could call code by its name; installed plugins are chosen, and set by plain values."""
    for key, value in root.value:
        if key.value == "hydra":
            sections = [section.value for section, _ in value.value] if isinstance(value, yaml.MappingNode) else [""]
            names = {scalar.value for scalar in _scalars(value)}
            if sections != ["sweeper"] or any(re.fullmatch(r"_.*_|custom_search_space", name) for name in names):
                yield (
                    f"line {key.start_mark.line + 1}: the key 'hydra' is refused; only hydra.sweeper may stand in a "
                    "file, with plain values"
                )
        if key.value == "defaults":
            for scalar in _scalars(value):
                text = scalar.value
                of_hydra = re.match(r"(override\s+)?/?hydra\b", text) and not _PLUGIN_GROUP.fullmatch(text)
                if of_hydra or ".." in text or "${" in text:
                    yield f"line {scalar.start_mark.line + 1}: the defaults entry {text[:60]!r} is refused"


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for child in _children(node):
        yield from _scalars(child)


def resolve_references(plain: Any) -> Any:
    """Replace `${a.b}` by what stands there; bounded in depth and size, and nothing is ever called."""
    return _Resolver(plain).resolve(plain, 0)


class _Resolver:
    def __init__(self, root: Any):
        self.root = root
        self.nodes = 0

    def resolve(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if depth > MAXIMUM_DEPTH or self.nodes > MAXIMUM_NODES:
            raise ConfigurationError(
                f"the configuration is nested deeper than {MAXIMUM_DEPTH} levels or has more than {MAXIMUM_NODES} "
                "values: its references ${...} are circular or too many."
            )
        if isinstance(value, dict):
            return {key: self.resolve(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, depth + 1) for item in value]
        if isinstance(value, str) and "${" in value:
            problem = reference_problem(value)
            if problem:
                raise ConfigurationError(problem + ".")
            return self.resolve(self.look_up(value.strip()[2:-1]), depth + 1)
        return value

    def look_up(self, path: str) -> Any:
        found = self.root
        for key in path.split("."):
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise ConfigurationError(f"${{{path}}} refers to a key that does not exist.")
        return found
