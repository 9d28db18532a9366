"""Tables and the picture of a file of comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Table = Mapping[str, Any]


def as_markdown(result: Mapping[str, Any]) -> str:
    """All tables of a result, each below what it computes, and the counts of scaling."""
    parts = [f"{caption(one)}\n\n{_rows(one)}" for one in result["tables"]]
    if result["scaling"]:
        parts.append(_scaling(result["scaling"]))
    return "\n\n".join(parts)


def caption(table: Table) -> str:
    pairs = table["contestants"][0]["pairs"]
    return f"**{table['what'][0].upper()}{table['what'][1:]}**; {table['precision']}; rates in {table['unit']}; " + (
        f"{pairs} timings of simjax{_of_process(table)}, load {table['load'][0]:.1f} to {table['load'][1]:.1f}"
    )


def _of_process(table: Table) -> str:
    """Time of the processor that a whole process of simjax takes, where that is what is timed."""
    return f" of {digits(table['contestants'][0]['cpu_seconds'])} CPU s each" if table["from_start"] else ""


def _rows(table: Table) -> str:
    with_forward = any("gradient_over_forward" in one for one in table["contestants"])
    head = [
        "contestant",
        "rate",
        "time over simjax's",
        "CPU time over simjax's",
        "off by (accepted)",
        "compiled in CPU s",
        "peak MiB",
    ]
    if with_forward:
        head.append("over its forward run")
    rows = []
    for one in table["contestants"]:
        if "refused" in one:
            rows.append([one["name"], f"not timed: {one['refused']}", *[""] * (len(head) - 2)])
            continue
        ratio = [f"**{digits(one['ratio'])}**", digits(one["cpu_ratio"])] if "ratio" in one else ["1", "1"]
        error = f"{one['error']:.1e} ({one['bound']:.0e})" if "error" in one else ""
        # Where every run is a process, those of the first one, before programs were kept, are not of what is timed.
        built = ["", ""] if table["from_start"] else [digits(one.get("compile_cpu_s")), digits(one.get("peak_mib"), 3)]
        cells = [one["name"], f"{one['rate']:.3g}", *ratio, error, *built]
        if with_forward:
            cells.append(digits(one.get("gradient_over_forward")))
        rows.append(cells)
    return in_columns(" | ".join(head), rows)


def _scaling(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a device sends and moves in a step, by mesh, as `python -m simjax.inspect` counts it."""
    found = []
    for one in rows:
        counts = (
            [f"refused: {one['refused']}", "", "", ""]
            if "refused" in one
            else [
                f"{one['messages']:g}",
                f"{one['of_all']:g}",
                f"{one['sent'] / 1024:.1f}",
                f"{one['moved'] / 2**20:.2f}",
            ]
        )
        found.append((f"`{one['experiment']}`", one["kind"], by(one["mesh"]), by(one["shape"]), *counts))
    head = "experiment | scaling | mesh | cells | messages | collectives of all | KiB sent | MiB read and written"
    return "**Counts of one step on each device**, from its compiled program\n\n" + in_columns(head, found)


def in_columns(head: str, rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown; `head`: titles with bars between them."""
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + "---|" * columns, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def by(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))


def digits(value: float | None, count: int = 2) -> str:
    """A number to so many digits, without an exponent; what there is none of: nothing."""
    if value is None or not math.isfinite(value):
        return ""
    decimals = 0 if value == 0 else max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def draw(tables: Sequence[Table], path: Path) -> None:
    """Write a picture of the times over simjax's: the median of the pairs and their range, with a line at one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [(table["what"], one) for table in tables for one in table["contestants"] if "ratio" in one]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.24 * (len(rows) + len(tables))), layout="constrained")
    places, labels, place, shown = [], [], 0.0, None
    for what, one in rows:
        if what != shown:
            place -= 1
            across = axes.get_yaxis_transform()
            axes.text(0.0, place, _short(what), transform=across, fontsize=7, weight="bold", va="center")
            shown = what
        place -= 1
        axes.plot([min(one["ratios"]), max(one["ratios"])], [place, place], color="0.7", linewidth=2)
        color = "tab:blue" if one["ratio"] >= 1 else "tab:red"
        # Other ways of simjax are no rivals.
        axes.plot(one["ratio"], place, "o", color="0.4" if one["name"].startswith("simjax") else color, markersize=5)
        places.append(place)
        labels.append(one["name"])
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_ylim(place - 1, 0)
    axes.set_xlabel("time over simjax's (right of the line simjax is faster; grey: simjax in another way)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
