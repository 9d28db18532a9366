"""Values of a configuration that differ from the defaults, and where they stand in its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

import yaml

_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """A dotted key with its value and the default, as YAML; a dash where one of them has no such key."""

    key: str
    value: str
    default: str


def differences(config_yaml: str, defaults_yaml: str) -> list[Difference]:
    """The keys whose values differ, in the order of the configuration, then those it lacks."""
    values, defaults = _leaves(config_yaml), _leaves(defaults_yaml)
    keys = [*values, *(key for key in defaults if key not in values and not _replaced(key, values))]
    return [
        Difference(key, _text(values.get(key, _ABSENT)), _text(defaults.get(key, _ABSENT)))
        for key in keys
        if not _same(values.get(key, _ABSENT), defaults.get(key, _ABSENT))
    ]


def _replaced(key: str, values: dict[str, object]) -> bool:
    """Tell whether the configuration has a whole group where the defaults have one value, such as null."""
    return any(other.startswith(f"{key}.") for other in values)


def marked_yaml(config_yaml: str, keys: set[str]) -> str:
    """The text as HTML, escaped, with the lines of these keys inside <mark>."""
    marked: set[int] = set()
    root = yaml.compose(config_yaml, Loader=yaml.SafeLoader)
    for key, first, last in _lines(root, ""):
        if key in keys:
            marked.update(range(first, last + 1))
    lines = config_yaml.rstrip("\n").split("\n")
    return "\n".join(f"<mark>{escape(t)}</mark>" if i in marked else escape(t) for i, t in enumerate(lines))


def _leaves(text: str) -> dict[str, object]:
    return dict(_flat(yaml.safe_load(text), "")) if text.strip() else {}


def _flat(value: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _lines(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Every leaf with the first and the last line that it takes in the text."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        name = f"{prefix}.{key.value}" if prefix else str(key.value)
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _lines(value, name)
        else:
            yield name, key.start_mark.line, _last_line(value)


def _last_line(node: yaml.Node) -> int:
    """End of the text of a value; the end mark of a block is at whatever follows it."""
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1])
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1][1])
    block_scalar = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return max(node.start_mark.line, node.end_mark.line - block_scalar)


def _same(a: object, b: object) -> bool:
    """Equal in type and value, except that 1 and 1.0 are the same number."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return a == b


def _text(value: object) -> str:
    if value is _ABSENT:
        return "–"
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").rstrip("\n")
