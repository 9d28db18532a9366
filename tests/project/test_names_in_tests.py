"""What tests and benchmarks import from simjax, and what tests replace in it, exists; without running the slow ones."""

import ast
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


def imported(tree):
    """Names of simjax by how a file calls them: its modules, and what is in them."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "simjax":
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.partition(".")[0] == "simjax"]
            names |= {alias.asname: alias.name for alias in ours if alias.asname}
            names |= {alias.name: alias.name for alias in ours if not alias.asname}
            if ours:
                names.setdefault("simjax", "simjax")
    return names


def replaced(tree, names):
    """What `monkeypatch.setattr` sets in simjax, by its whole name."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"):
            continue
        owner, *rest = node.args
        if isinstance(owner, ast.Constant) and owner.value.startswith("simjax."):
            yield owner.value
        elif rest and isinstance(rest[0], ast.Constant):
            first, _, inner = ast.unparse(owner).partition(".")
            if first in names:
                yield ".".join(filter(None, [names[first], inner, rest[0].value]))


def missing(name):
    """Why a name cannot be resolved; empty if it can."""
    try:
        resolve_name(name)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def test_names_of_simjax_exist():
    users = {}
    for file in FILES:
        tree = ast.parse(file.read_text())
        names = imported(tree)
        for name in {*names.values(), *replaced(tree, names)}:
            users.setdefault(name, []).append(file.relative_to(ROOT).as_posix())
    assert len(users) > 500
    assert {name: (why, users[name]) for name in users if (why := missing(name))} == {}


def test_a_name_that_is_missing_would_be_seen():
    assert not missing("simjax.core.domain.Domain.spec") and not missing("simjax.core.domain")
    assert missing("simjax.core.domain.Domain.none") and missing("simjax.core.none")
