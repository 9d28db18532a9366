"""The layers of the package, read from its imports: a module imports strictly lower ones, and tools have one home."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

import simjax

ROOT = Path(simjax.__file__).parent

# From the bottom up. A name is a module or a package, of which the longest that fits counts; those on one line are
# siblings that do not know each other.
LAYERS = (
    ("errors", "status", "jaxpr"),
    ("arguments", "notebook", "processes"),
    ("chips", "deprecation", "grid", "schema"),
    ("models.registry",),
    ("schema.config",),
    ("schema.ensemble",),
    ("stencil",),
    ("core", "ops"),
    ("core.model", "solvers"),
    ("integrators", "particles"),
    ("stepping", "parallel", "io", "instruments"),
    ("models", "report"),
    ("inverse.methods",),
    ("config",),
    ("command", "driver"),
    ("inverse", "learning"),
    ("certificate", "inspect", "export", "application", "data"),
    ("serve",),
    ("run",),
    ("__main__",),
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COLLECTIVES = _words(
    "ppermute pshuffle psum pmean pmax pmin psum_scatter all_gather all_to_all ragged_all_to_all axis_index axis_size "
    "pbroadcast"
)
VARYING_TYPES = _words("pcast pvary typeof manual_axis_type vma varying_manual_axes")
MAPS = _words("shard_map pmap xmap")
DEVICES = MAPS | _words(
    "Mesh NamedSharding make_mesh devices local_devices device_count process_index process_count device_put "
    "with_sharding_constraint"
)

# What is named on the left appears in the modules on the right (a name or a package) and in no other.
HOMES = {
    # In a kernel for GPUs, `axis_index` is that of a tile.
    "collectives": (
        COLLECTIVES,
        (
            "core.domain",
            "core.ensemble_axis",
            "core.neighbors",
            "solvers.exchange",
            "solvers.fourier",
            "stencil.kernels.hopper",
        ),
    ),
    # Around an adaptive solver only the tendency is mapped, below `parallel`.
    "shard_map": (MAPS, ("parallel", "integrators.adaptive")),
    "types of varying values": (VARYING_TYPES, ("jaxpr.varying",)),
    # A batch of them can hang on a CPU. Others do it on the host, by numpy; qr is a state to the right of a face.
    "decompositions": (
        _words("eigh qr inv lstsq cholesky"),
        ("solvers.dense", "solvers.modes", "solvers.line_modes", "io.body_files", "ops.riemann"),
    ),
}
PACKAGES = {
    "jax.experimental.pallas": ("stencil.kernels",),
    "optax": ("inverse", "learning"),  # both minimise: one a misfit of measurements, one errors of batches
    "flax": ("learning.flax_module",),
    "diffrax": ("integrators.diffrax_tables",),
    "h5py": ("io",),
    "xarray": ("io", "report"),
    "orbax": ("io",),
    "grain": ("data",),
    "matplotlib": ("report",),
    "ase": ("io",),
    "gsd": ("io",),
    "hydra": ("config",),
    "omegaconf": ("config", "run"),
    "starlette": ("serve.web_application",),
    "uvicorn": ("serve.connections", "serve.server"),
    "rich": ("driver.loop.progress", "inspect.text_table"),
}
# Files are cut by meaning: an equation and its declaration stay together, and few need more than 400 lines.
MOST_LINES, MOST_FUNCTION_LINES = 500, 60


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name below the package ("" for the package itself), its text and its tree."""

    name: str
    text: str
    tree: ast.Module

    @functools.cached_property
    def imports(self) -> frozenset[str]:
        """Dotted names of everything imported anywhere in the file; `from a import b` counts as both a and a.b."""
        return self._imported()

    @functools.cached_property
    def loaded(self) -> frozenset[str]:
        """`imports` without those that only a type checker makes."""
        guards = (n for n in ast.walk(self.tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
        return self._imported(frozenset(id(inside) for guard in guards for inside in ast.walk(guard)))

    def _imported(self, left_out: frozenset[int] = frozenset()) -> frozenset[str]:
        found = set()
        for node in ast.walk(self.tree):
            if id(node) in left_out:
                continue
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative import on line {node.lineno}; write it from simjax."
                found.add(node.module)
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        return frozenset(found)

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """Every identifier the code reads: names, attributes and imported names, not text or comments."""
        nodes = list(ast.walk(self.tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        imported = {part for dotted in self.imports for part in dotted.split(".") if "simjax" not in dotted}
        # getattr(x, "name") reads the attribute as surely as x.name does.
        literals = {
            argument.value
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
            for argument in node.args[1:2]
            if isinstance(argument, ast.Constant)
        }
        return frozenset(names | attributes | imported | literals)

    def imported_modules(self) -> set[str]:
        """Modules of the package that this one imports."""
        return {
            target
            for dotted in self.imports
            if dotted.startswith("simjax.")
            and (target := dotted.removeprefix("simjax.")) in _modules()
            # An empty package is passed through.
            and _modules()[target].text
        }


@functools.cache
def _modules() -> dict[str, Module]:
    """All modules of the package by dotted name."""
    result = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        result[name] = Module(name, text, ast.parse(text))
    return result


def _within(name: str, homes) -> bool:
    return any(name == home or name.startswith(home + ".") for home in homes)


def _layer(name: str) -> tuple[int, str]:
    """Height of a module's layer and the name under which it stands there."""
    fitting = [(height, unit) for height, units in enumerate(LAYERS) for unit in units if _within(name, (unit,))]
    assert fitting, f"simjax/{name} stands in no layer: add it to one in design and here"
    return max(fitting, key=lambda found: len(found[1]))


def _breaches(name: str, targets) -> list[str]:
    """Imports of `targets` that module `name` may not make."""
    height, unit = _layer(name)
    found = []
    for target in sorted(targets):
        if target in ("", "core"):
            continue
        below, other = _layer(target)
        if unit != other and below >= height:
            found.append(f"{name} imports {target}")
    return found


MODULES = [name for name in sorted(_modules()) if name]


def test_the_package_was_found():
    some = {"core.domain", "stepping.simulate", "io.read", "schema.config", "models.flow.incompressible"}
    assert some <= set(MODULES)
    assert len(MODULES) > 30


def _of_all(check, names=MODULES) -> dict[str, list]:
    """What a check finds wrong with modules, by their names; `check(name)` is a list."""
    found = {name: check(name) for name in names}
    return {name: wrong for name, wrong in found.items() if wrong}


def test_modules_import_strictly_lower_layers():
    names = [name for name in MODULES if name != "core"]
    assert _of_all(lambda name: _breaches(name, _modules()[name].imported_modules()), names) == {}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("grid", "core.boundary"),
        ("core.domain", "ops.difference"),
        ("ops.difference", "core.model"),
        ("solvers.poisson", "core.model"),
        ("models.cell_centred", "config.validate"),
        ("stepping.simulate", "parallel"),
        ("io.read", "report.html"),
        ("inverse.methods.optimise", "config.validate"),
    ],
)
def test_a_breach_would_be_seen(name, target):
    assert _breaches(name, {target}) == [f"{name} imports {target}"]


FAMILIES = sorted({name.split(".")[1] for name in MODULES if name.startswith("models.") and name.count(".") > 1})


def _families_named(name: str, targets) -> list[str]:
    """Modules of families among `targets`, which only families may import: one may build on another's equation."""
    homes = [f"models.{family}" for family in FAMILIES]
    return [] if _within(name, homes) else sorted(target for target in targets if _within(target, homes))


def test_the_shell_and_what_models_share_name_no_family_of_models():
    assert _of_all(lambda name: _families_named(name, _modules()[name].imported_modules())) == {}


def test_a_family_named_elsewhere_would_be_seen():
    assert _families_named("driver.start.build", {"models.flow.setup", "models.formulas"}) == ["models.flow.setup"]
    assert _families_named("models.flow.passive_scalar", {"models.scalar.transport"}) == []


def test_imports_have_no_cycle():
    open_, done = [], set()

    def visit(name):
        assert name not in open_, " -> ".join([*open_[open_.index(name) :], name])
        if name in done:
            return
        open_.append(name)
        for target in sorted(_modules()[name].imported_modules() - {name}):
            visit(target)
        open_.pop()
        done.add(name)

    for name in MODULES:
        visit(name)


def test_one_home_each():
    using = {
        what: [name for name, module in _modules().items() if module.words & words]
        for what, (words, _) in HOMES.items()
    }
    astray = {what: [name for name in names if not _within(name, HOMES[what][1])] for what, names in using.items()}
    assert astray == {what: [] for what in HOMES}
    assert [what for what, names in using.items() if not names] == [], "the lists of names are out of date"


def test_packages_are_imported_in_one_place():
    astray = {
        package: [
            name
            for name, module in _modules().items()
            if any(_within(dotted, (package,)) for dotted in module.loaded) and not _within(name, homes)
        ]
        for package, homes in PACKAGES.items()
    }
    assert astray == {package: [] for package in PACKAGES}


def test_equations_see_no_devices():
    physics = [name for name in MODULES if _within(name, ("ops", "models", "solvers.transforms", "core.boundary"))]
    assert {name: sorted(_modules()[name].words & DEVICES) for name in physics} == dict.fromkeys(physics, [])


def test_only_the_run_touches_the_global_configuration():
    def writes(module):
        return any(
            isinstance(node, ast.Attribute) and node.attr == "update" and ast.unparse(node.value) == "jax.config"
            for node in ast.walk(module.tree)
        )

    assert {name for name, module in _modules().items() if writes(module)} <= {"driver.start.environment"}


def _docstring_lines(function):
    first = function.body[0]
    return first.end_lineno - first.lineno + 1 if ast.get_docstring(function) else 0


def test_files_and_functions_stay_short():
    def long(name):
        module = _modules()[name]
        lines = len(module.text.splitlines())
        functions = (n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        lengths = [(n.name, n.end_lineno - n.body[0].lineno + 1 - _docstring_lines(n)) for n in functions]
        whole = [("the file", lines)] if lines > MOST_LINES else []
        return whole + [(function, count) for function, count in lengths if count > MOST_FUNCTION_LINES]

    assert _of_all(long) == {}


def test_modules_and_public_names_have_docstrings():
    def silent(name):
        module = _modules()[name]
        public = (
            node
            for node in module.tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        )
        whole = ["the module"] if module.text.strip() and not ast.get_docstring(module.tree) else []
        return whole + [node.name for node in public if not ast.get_docstring(node)]

    assert _of_all(silent) == {}


def test_public_names_of_the_package_exist():
    """The names that `simjax` loads on first use are defined at the top of the module it looks in."""

    def defined(node):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return {node.name}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        return {target.id for target in targets if isinstance(target, ast.Name)}

    homes = {name: home.removeprefix("simjax.") for name, home in simjax._HOMES.items()}
    names = {home: set().union(*map(defined, _modules()[home].tree.body)) for home in {*homes.values()}}
    assert [name for name, home in homes.items() if name not in names[home]] == []
