"""Writes the parts of these pages that are stated elsewhere.

python docs/generate.py            write them anew
python docs/generate.py --check    tell which pages are not current, with exit code 1
"""

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path

import simjax
from simjax.chips import CHIPS
from simjax.config.inverse_section import InverseKeys
from simjax.config.listing import written
from simjax.config.observations import FileKeys, ObservationKeys
from simjax.config.unknowns import UnknownKeys
from simjax.io.formats import output_formats
from simjax.models.registry import HOMES, MODELS
from simjax.schema.config import Keys
from simjax.schema.inverse import PRIORS
from simjax.schema.kinds import Nested, NestedOr
from simjax.schema.model_schema import ModelSchema
from simjax.schema.parts import Part, PartOf, part_places, summary_of
from simjax.schema.side_declarations import HOMES as SIDES
from simjax.schema.side_declarations import SideSchema, declared_sides, sides_of

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))
from performance_tables import (  # noqa: E402
    comparisons,
    compile_cost,
    gpu_command,
    gpu_model,
    limits,
    memory_told,
    on_a_gpu,
    weak_scaling,
)
from referee_tables import (  # noqa: E402
    athena,
    dedalus,
    deepwave,
    lammps,
    lammps_transport,
    meep,
    mosaic_drag,
    mosaic_errors,
    mosaic_jacobians,
    mosaic_seconds,
    quokka,
)

MOLECULAR = MODELS["molecular_dynamics"]


WITHOUT_HELP = {"INTEGRATORS": "Time stepping schemes by the names of `time.integrator`."}
"""Public names that are no classes or functions."""

_TROUBLES = "[Cells that trouble](outputs.md#cells-that-trouble) are counted, placed and drawn by these names."

FAMILIES = {
    "flow": "flow.md",
    "scalar": "transport.md",
    "gas": "gas.md",
    "waves": "waves.md",
    "spectral": "patterns.md",
    "molecular": "molecular-dynamics.md",
    "gravity": "gravity.md",
    "plasma": "plasma.md",
    "sph": "sph.md",
}
"""Folder of `simjax/models` -> the page of its models."""


def equations() -> str:
    """The table of equations, a row per registered model, from the models' declarations."""
    rows = ["| model | equation | axes | page |", "|" + "---|" * 4]
    rows += [_equation(MODELS[name], FAMILIES[home.partition(".")[0]]) for name, home in HOMES.items()]
    return "\n".join(rows)


def _equation(model: ModelSchema, page: str) -> str:
    title = page.removesuffix(".md").replace("-", " ")
    return f"| `{model.name}` | {_cell(model.summary)} | {_axes(model)} | [{title}]({page}) |"


def _axes(model: ModelSchema) -> str:
    return ", ".join(map(str, range(model.least_axes, model.most_axes + 1)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def family(folder: str) -> str:
    """What the models of a folder declare, a section for each, and the kinds of sides that they take."""
    models = [MODELS[name] for name, home in HOMES.items() if home.startswith(f"{folder}.")]
    return "\n\n".join([*map(_model, models), *_sides_of(models), *_troubles_of(models), *_exclusions_of(models)])


def _exclusions_of(models: Sequence[ModelSchema]) -> list[str]:
    """The table of features that exclude each other, if models of a family have one."""
    tables = [model.exclusions for model in models if model.exclusions is not None]
    if not tables:
        return []
    features, names = tables[0].features, [*tables[0].features]
    rows = [
        f"| {features[pair.feature].title} | {features[pair.beside].title} | "
        f"{features[pair.beside].without}, {pair.why} |"
        for pair in sorted(tables[0].pairs, key=lambda pair: names.index(pair.feature))
    ]
    told = "Configurations and constructors refuse these pairs in the same words; all other pairs of these go together."
    head = "| what | is not taken beside | as it expects |"
    return ["\n".join(["## What does not go together", "", told, "", head, "|" + "---|" * 3, *rows])]


def _troubles_of(models: Sequence[ModelSchema]) -> list[str]:
    """The table of the troubles that some models name, if any."""
    rows = [
        f"| `{one.name}` | `{model.name}` | {_cell(one.about)} | {one.units} | "
        f"{f'with {one.having}' if one.counted else '-'} |"
        for model in models
        for one in model.troubles
    ]
    if not rows:
        return []
    head = "| trouble | of | what it is in each cell | unit | cells are counted |"
    return ["\n".join(["## Troubles", "", _TROUBLES, "", head, "|" + "---|" * 5, *rows])]


def _sides_of(models: Sequence[ModelSchema]) -> list[str]:
    """The table of the sides of some models, if they take any but periodic ones."""
    taken: dict[int, tuple[SideSchema, list[str]]] = {}
    for model in models:
        for side in sides_of(model.sides).values():
            taken.setdefault(id(side), (side, []))[1].append(f"`{model.name}`")
    if not taken:
        return []
    whose = {key: "all" if len(names) == len(models) else ", ".join(names) for key, (_, names) in taken.items()}
    rows = [f"| `{side.kind}` | {whose[key]} | {_side_keys(side)} | {side.about} |" for key, (side, _) in taken.items()]
    head = "| side, beside `periodic` | models | keys | what it does |"
    return ["\n".join(["## Sides", "", head, "|" + "---|" * 4, *rows])]


def _model(model: ModelSchema) -> str:
    lines = [f"## `{model.name}`", "", model.summary, "", f"- **Axes**: {_axes(model)}"]
    if model.of_particles:
        lines.append("- **Fields**: position, velocity of each particle, in units of your own")
    else:
        fields = ", ".join(f"{field.name} ({field.units})" for field in model.fields)
        kinds = ", ".join(("periodic", *sides_of(model.sides)))
        lines += [f"- **Fields**: {fields}", f"- **[Sides](boundaries.md)**: {kinds}"]
    if model.coefficients:
        names = ", ".join(f"{field.name} ({field.units})" for field in model.coefficients)
        lines.append(f"- **Coefficients**, which may depend on place: {names}")
    if model.integrators:
        lines.append(f"- **[Integrators](time-stepping.md)**, the default first: {', '.join(model.integrators)}")
    return "\n".join([*lines, f"- **[Keys](keys.md#{model.name})** of `physics`: {_names(model)}"])


def _names(model: ModelSchema) -> str:
    return ", ".join(f"`{field.name}`" for field in fields(model.physics)) or "none"


def sides() -> str:
    """The table of kinds of sides, a row per declaration."""
    shipped = [side for side in declared_sides() if side.side.__module__ in SIDES]
    return "\n".join(["| kind | of | keys | what it does |", "|" + "---|" * 4, *map(_side, shipped)])


def _side(side: SideSchema) -> str:
    return f"| `{side.kind}` | {', '.join(side.groups)} | {_side_keys(side)} | {side.about} |"


def _side_keys(side: SideSchema) -> str:
    return ", ".join(f"`{key.name}`{f' [{key.units}]' if key.units != '1' else ''}" for key in side.keys) or "-"


def formats() -> str:
    """The table of the files of output formats, a row per format."""
    rows = [f"| `{one.patterns[0]}` | {one.about} | {', '.join(one.programs)} |" for one in output_formats()]
    return "\n".join(["| file | content | opens in |", "|" + "---|" * 3, *rows])


def keys() -> str:
    """Tables of the keys of all sections, then of the sections `physics` and `particles` of every model."""
    top = [(field.name, field) for field in fields(Keys)]
    tables = ["## Sections", "", *_table(top)]
    for name, field in top:
        if isinstance(field.metadata["kind"], Nested):
            tables += ["", f"### `{name}`", "", *_table(_keys_of(field.metadata["kind"].section))]
    tables += ["", "## Models"]
    for name in HOMES:
        model = MODELS[name]
        tables += ["", f"### `{name}`", "", model.summary, ""]
        tables += _table([(f"physics.{key}", field) for key, field in _keys_of(model.physics)])
        if model.particles is not None:
            tables += ["", *_table([(f"particles.{key}", field) for key, field in _keys_of(model.particles)])]
    return "\n".join(tables)


def inverse() -> str:
    """Tables of the keys of the section `inverse`, of each unknown with its priors, and of each observation."""
    parts = {
        "The section `inverse`": InverseKeys,
        "An unknown, `inverse.unknowns.PATH`": UnknownKeys,
        **{f"The prior `{name}`": prior for name, prior in PRIORS.items()},
        "An observation, an entry of `inverse.observations`": ObservationKeys,
        "An observation with a file": FileKeys,
    }
    tables = [[f"### {title}", "", *_table(_keys_of(section))] for title, section in parts.items()]
    return "\n\n".join("\n".join(table) for table in tables)


def _keys_of(section: type) -> list[tuple[str, Field]]:
    """Paths below a section, and their fields: also those of sections inside."""
    found = []
    for field in fields(section):
        kind = field.metadata["kind"]
        found.append((field.name, field))
        if isinstance(kind, Nested):
            found += [(f"{field.name}.{below}", inside) for below, inside in _keys_of(kind.section)]
    return found


def _table(rows: Sequence[tuple[str, Field]]) -> list[str]:
    if not rows:
        return ["No keys of its own."]
    return ["| key | meaning | unit | allowed | default |", "|" + "---|" * 5, *(_row(*row) for row in rows)]


def _row(path: str, field: Field) -> str:
    kind, units = field.metadata["kind"], field.metadata["units"]
    allowed = "a section" if isinstance(kind, Nested) else kind.allowed
    allowed += f", or {kind.word}" if isinstance(kind, NestedOr) else ""
    if path == "model":  # tests and programs make their own known
        allowed = "one of those [below](#models), or MODULE.CLASS of [your own](own-models.md)"
    if isinstance(kind, PartOf):
        names = ", ".join(name for name, part in kind.parts.items() if part.__module__.startswith("simjax."))
        allowed = f"one of {names}, or MODULE.CLASS{', or null' if kind.optional else ''}"
    shown = "required" if field.default is MISSING else f"`{written(field.default) or chr(34) * 2}`"
    if isinstance(kind, Nested) and field.default not in (None, MISSING):
        shown = "its defaults"
    cells = (f"`{path}`", field.metadata["about"], "" if units == "1" else units, allowed, shown)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def parts() -> str:
    """The table of the parts of molecular dynamics, a row per declaration."""
    rows = [
        _part(place, name, part)
        for place, of_place in part_places(MOLECULAR.physics).items()
        for name, part in of_place.items()
        if part.__module__.startswith("simjax.")
    ]
    return "\n".join(["| key | name | what it is | its keys, with their defaults |", "|" + "---|" * 4, *rows])


def _part(place: str, name: str, part: type[Part]) -> str:
    keys = {field.name: field.default for field in fields(part.Keys) if field.default is not None}
    stated = ", ".join(f"`{key}` {'pi' if default == math.pi else default}" for key, default in keys.items())
    return f"| `{place}` | `{name}` | {summary_of(part)} | {stated} |"


def chips() -> str:
    """The table of the figures on which estimates of a step's time rest, a column per chip."""
    figures = {
        "memory, GB": ("memory", 1e9),
        "its bandwidth, GB/s": ("bandwidth", 1e9),
        "operations on single elements, 10^12/s": ("vector", 1e12),
        "products of matrices, 10^12/s": ("matrix", 1e12),
        "a link in one direction, GB/s": ("link_bandwidth", 1e9),
        "latency, microseconds per hop": ("latency", 1e-6),
    }
    rows = [
        "| of a device | " + " | ".join(chip.name for chip in CHIPS.values()) + " |",
        "|---" * (1 + len(CHIPS)) + "|",
    ]
    for what, (name, unit) in figures.items():
        rows.append(f"| {what} | " + " | ".join(f"{getattr(chip, name) / unit:.4g}" for chip in CHIPS.values()) + " |")
    return "\n".join(rows)


def names() -> str:
    """Every public name with the first sentence of its own help."""
    rows = ["| `sj.` | |", "| --- | --- |"]
    for name in sorted(simjax.__all__, key=str.lower):
        value = getattr(simjax, name)
        own = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else WITHOUT_HELP[name]
        lead = (own or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{name}` | {lead.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


GENERATED: dict[str, Callable[[], str]] = {
    "keys": keys,
    "sides": sides,
    "formats": formats,
    "names": names,
    "equations": equations,
    "parts": parts,
    "inverse": inverse,
    "comparisons": comparisons,
    "limits": limits,
    "on_a_gpu": on_a_gpu,
    "compile_cost": compile_cost,
    "gpu_command": gpu_command,
    "gpu_model": gpu_model,
    "memory_told": memory_told,
    "weak_scaling": weak_scaling,
    "chips": chips,
    "athena": athena,
    "quokka": quokka,
    "lammps": lammps,
    "lammps_transport": lammps_transport,
    "mosaic_drag": mosaic_drag,
    "mosaic_errors": mosaic_errors,
    "mosaic_jacobians": mosaic_jacobians,
    "mosaic_seconds": mosaic_seconds,
    "meep": meep,
    "deepwave": deepwave,
    "dedalus": dedalus,
    **{folder: functools.partial(family, folder) for folder in FAMILIES},
}
"""Name of a generated part -> its text. It stands between `<!-- generated NAME -->` and `<!-- end -->`."""
MARKS = re.compile(r"(<!-- generated (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[str]:
    """The pages with generated parts."""
    return sorted(page.name for page in DOCS.glob("*.md") if MARKS.search(page.read_text(encoding="utf-8")))


def current(page: str) -> tuple[str, str]:
    """A page as it is, and as it should be."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text, MARKS.sub(lambda marks: f"{marks[1]}{GENERATED[marks[2]]()}\n{marks[3]}", text)


def main() -> int:
    stale = {page: new for page in pages() for old, new in [current(page)] if old != new}
    if "--check" in sys.argv:
        print("\n".join(f"docs/{page} is not current: run python docs/generate.py" for page in stale))
        return int(bool(stale))
    for page, text in stale.items():
        (DOCS / page).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
