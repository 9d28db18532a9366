"""Names that stand on pages exist: `sj.name`, dotted names, calls in the text; dotted ones are said to be public."""

import ast
import builtins
import re
import tomllib
from pkgutil import resolve_name

from paths import ROOT

import simjax as sj
from simjax.driver.start.environment import UNSOUND
from simjax.schema.field_formula import NAMES as OPERATORS
from simjax.schema.formula import FUNCTIONS

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "experiments/README.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "tutorials").glob("*.py")),
    )
}
DEVELOPERS = ("docs/architecture.md", "docs/testing.md", "docs/contributing.md")
OTHER_PROGRAMS = ("docs/coming-from.md", "docs/referees.md")
"""Pages that name functions of other packages."""
FENCE = re.compile(r"^```.*?^```|<!-- run first.*?-->", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"(?<![\w./])(?:sj|simjax)((?:\.[A-Za-z_]\w*)+)")
LIBRARIES = {"xarray", "MDAnalysis", "optax", "ds"}
"""What a call begins with that is another package's; `ds` is a Dataset."""
COMMANDS = {"run", "certificate", "inspect", "export", "data", "serve"}
"""Modules below simjax that a page gives to `python -m`."""


def spans(text):
    """What stands as code within the text of a page."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def defined():
    """Names of all functions and classes of simjax."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "simjax").rglob("*.py")]
    return {node.name for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


def missing(name):
    """Tell whether a dotted name below simjax is not there."""
    try:
        resolve_name(f"simjax{name}")
    except (ImportError, AttributeError):
        return True
    return False


def called(span):
    """The name that a span calls, and what it is an attribute of; None where it calls nothing by a name."""
    found = re.match(r"((?:\w+\.)*)([A-Za-z_]\w*)\(", span)
    return found and (found[1].partition(".")[0], found[2])


def dotted_on(text):
    """Names in modules that a page imports or writes out, as (module, name); the name is empty for a module itself."""
    for module, names in re.findall(r"^from (simjax\.[\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
        yield from ((module, name.strip()) for name in names.split(","))
    for path in DOTTED.findall(re.sub(r"^from simjax.*$", "", FENCE.sub("", text), flags=re.MULTILINE)):
        whole = f"simjax{path}"
        if path.count(".") > 1 and path.split(".")[1] not in sj.__all__ and not missing(path):
            module, _, name = whole.rpartition(".")
            yield (whole, "") if is_module(whole) else (module, name)


def is_module(name):
    """Tell whether a dotted name is a file of simjax."""
    return (ROOT / f"{name.replace('.', '/')}.py").is_file()


def public():
    """The table of docs/stable.md: names by module."""
    rows = re.findall(r"^\| `(simjax\.[\w.]+)` \| (.*) \|$", PAGES["docs/stable.md"], re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in rows}


def test_names_of_simjax_on_pages_exist():
    found = [
        (page, span, name) for page, text in PAGES.items() for span in spans(text) for name in DOTTED.findall(span)
    ]
    assert len(found) > 150
    assert [(page, span) for page, span, name in found if missing(name)] == []


def test_calls_within_the_text_of_pages_are_of_functions_that_exist():
    known = defined() | {*dir(builtins), *FUNCTIONS, *OPERATORS}
    wrong = {}
    for page, text in PAGES.items():
        code = "\n".join(FENCE.findall(text))
        for owner, name in filter(None, map(called, spans(text) if page not in OTHER_PROGRAMS else ())):
            if name not in known and owner not in LIBRARIES and not re.search(rf"\b{name}\b", code):
                wrong.setdefault(page, []).append(name)
    assert wrong == {}


def test_dotted_names_on_pages_are_said_to_be_public():
    table, wrong = public(), {}
    for page, text in PAGES.items():
        for module, name in dotted_on(text) if page not in DEVELOPERS else ():
            command = module.removeprefix("simjax.") in COMMANDS
            if not command and (module not in table or name and name not in table[module]):
                wrong.setdefault(page, []).append(f"{module}.{name}")
    assert wrong == {}, "write sj.name, or add it to the table of docs/stable.md"


def test_what_is_said_to_be_public_exists_and_has_a_page():
    table = public()
    assert len(table) > 15
    others = "\n".join(text for page, text in PAGES.items() if page != "docs/stable.md")
    for module, names in table.items():
        assert names and [name for name in names if missing(f"{module.removeprefix('simjax')}.{name}")] == []
        assert module in others or any(re.search(rf"\b{name}\b", others) for name in names), module


def test_supported_pairs_are_those_that_are_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = (each for each in project["dependencies"] if each.startswith("jax>"))
    rows = re.findall(r"^\| (3\.\d+) \| (.*?) \|", PAGES["docs/stable.md"], re.MULTILINE)
    assert project["requires-python"] == f">={rows[0][0]}"
    told = {version for _, versions in rows for version in re.findall(r"0\.\d+\.\d+", versions)}
    excluded = set(re.findall(r"!=([\d.]+)", pin))
    assert re.findall(r">=([\d.]+)", pin) == [min(told, key=lambda version: [*map(int, version.split("."))])]
    assert excluded == {*UNSOUND} and not excluded & told


def test_a_name_that_is_not_there_would_be_seen():
    assert missing(".driver.differentiable_run.forget_programs") and not missing(".Grid")
    assert called("found.nowhere(x)") == ("found", "nowhere") and called("grid.shape") is None
    assert [*dotted_on("`sj.Grid.spacing`, `sj.Grid`")] == []
    text = "from simjax.ops.difference import laplacian\n`simjax.models.molecular.bonds.Bond`"
    assert [*dotted_on(text)] == [("simjax.ops.difference", "laplacian"), ("simjax.models.molecular.bonds", "Bond")]
    assert [*dotted_on("`simjax.models.molecular.bonds`")] == [("simjax.models.molecular.bonds", "")]
    assert DOTTED.findall("`last.simjax.centered()`, `.simjax.lock`") == []
