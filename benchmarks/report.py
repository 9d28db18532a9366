"""Tables and the picture of a file of comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Table = Mapping[str, Any]


def as_markdown(tables: Sequence[Table]) -> str:
    """All tables, each below what it computes."""
    return "\n\n".join(f"{caption(table)}\n\n{_rows(table)}" for table in tables)


def caption(table: Table) -> str:
    pairs = table["contestants"][0]["pairs"]
    return f"**{table['what'][0].upper()}{table['what'][1:]}**; {table['precision']}; rates in {table['unit']}; " + (
        f"{pairs} timings of simjax, load {table['load'][0]:.1f} to {table['load'][1]:.1f}"
    )


def _rows(table: Table) -> str:
    with_forward = any("gradient_over_forward" in one for one in table["contestants"])
    head = ["contestant", "rate", "time over simjax's", "CPU time over simjax's", "off by (accepted)",
            "compiled in CPU s", "peak MiB"]  # fmt: skip
    if with_forward:
        head.append("over its forward run")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in table["contestants"]:
        if "refused" in one:
            lines.append(f"| {one['name']} | not timed: {one['refused']} |" + " |" * (len(head) - 2))
            continue
        ratio = [f"**{digits(one['ratio'])}**", digits(one["cpu_ratio"])] if "ratio" in one else ["1", "1"]
        error = f"{one['error']:.1e} ({one['bound']:.0e})" if "error" in one else ""
        cells = [one["name"], f"{one['rate']:.3g}", *ratio, error, digits(one.get("compile_cpu_s")),
                 digits(one.get("peak_mib"), 3)]  # fmt: skip
        if with_forward:
            cells.append(digits(one.get("gradient_over_forward")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
            axes.text(0.0, place, _short(what), transform=axes.get_yaxis_transform(), fontsize=7, weight="bold", va="center")
            shown = what
        place -= 1
        axes.plot([min(one["ratios"]), max(one["ratios"])], [place, place], color="0.7", linewidth=2)
        axes.plot(one["ratio"], place, "o", color="tab:blue" if one["ratio"] >= 1 else "tab:red", markersize=5)
        places.append(place)
        labels.append(one["name"])
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_ylim(place - 1, 0)
    axes.set_xlabel("time over simjax's (right of the line simjax is faster)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
