"""The tables of an inspection, as text for a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 120

Content = Mapping[str, Any]
"""An inspection as plain values, as `Inspection.as_dict` gives it."""


def as_text(content: Content) -> str:
    """Text of all tables, one below the other."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, highlight=False, emoji=False, markup=False)
    console.print(_head(content))
    console.print(_memory(content))
    if content["step"] is not None:
        if content["devices"] > 1:
            console.print(_exchanges(content))
        if content["chip"] is not None:
            console.print(_time(content))
        if content["scaling"]:
            console.print(_scaling(content))
    return stream.getvalue().rstrip()


def _head(content: Content) -> str:
    cells, block = (" x ".join(map(str, content[name])) for name in ("shape", "block"))
    mesh = ", ".join(f"{name} {count}" for name, count in content["mesh"].items()) or "one device"
    return (
        f"{content['experiment']} on {content['target']}: {cells} cells in {content['precision']}, {block} on each "
        f"device (mesh: {mesh}); compiled in {content['compile_cpu_s']:.1f} s of the processor, not run"
    )


def _memory(content: Content) -> Table:
    memory, chip = content["memory"], content["chip"]
    table = Table(title="Memory of each device", title_justify="left", show_header=False)
    if memory["refusal"] is not None:
        table.add_row("does not fit", memory["refusal"])
        return table
    figures = {
        "arguments": "arguments",
        "results": "results",
        "of these in place of arguments": "aliased",
        "temporaries": "temporaries",
        "most at one time": "peak",
    }
    for name, key in figures.items():
        table.add_row(name, size_text(memory[key]))
    if chip is not None:
        share = memory["peak"] / chip["memory"]
        table.add_row("fits", f"{100 * share:.0f} % of {size_text(chip['memory'])} at most, by the compiler")
    return table


def _exchanges(content: Content) -> Table:
    table = Table(title="Exchanges of a step, sent by each device", title_justify="left")
    for name in ("kind", "count", "bytes", "over", "runs", "takes", "beside it", "waited for"):
        table.add_column(name, justify="left" if name in ("kind", "over", "runs") else "right")
    for one in content["step"]["exchanges"]:
        how = "asynchronous" if one["asynchronous"] else "synchronous"
        times = [time_text(one.get(name)) for name in ("seconds", "beside_s", "exposed_s")]
        table.add_row(
            one["kind"], f"{one['count']:g}", size_text(one["bytes"]), _way(one, content["chip"]), how, *times
        )
    return table


def _way(one: Content, chip: Content | None) -> str:
    if chip is None:
        return "memory"
    if not chip["is_torus"]:
        return chip["link"]
    return f"{chip['link']} {' '.join(one['links'])}, {one['hops']} hop{'s' if one['hops'] != 1 else ''}"


def _time(content: Content) -> Table:
    step, chip = content["step"], content["chip"]
    table = Table(title=f"Estimated time of a step: {time_text(step['seconds'])}", title_justify="left")
    for name in ("part", "time", "from"):
        table.add_column(name, justify="right" if name == "time" else "left")
    kernels = chip["kernels"]
    moved = f"{kernels['fused'] / 1e9:.0f} GB/s" if kernels else f"{chip['bandwidth'] / 1e9:.0f} GB/s"
    amounts = {
        "memory": f"{size_text(step['bytes'])} at {moved}",
        "vector unit": f"{step['operations']:.3g} operations at {chip['vector'] / 1e12:.1f} T/s",
        "matrix unit": f"{step['matrix_operations']:.3g} operations at {chip['matrix'] / 1e12:.0f} T/s",
    }
    for name, amount in amounts.items():
        table.add_row(f"bound by the {name}", time_text(step["by_limit_s"].get(name, 0.0)), f"of all {amount}")
    if kernels:
        own = ", ".join(f"{count:.4g} {kind}" for kind, count in step["launches"].items())
        costs = f"{1e6 * kernels['launch']:g} us beside each, none below {1e6 * kernels['least']:g} us"
        launches = f"{sum(step['launches'].values()):.4g} launches ({own}), {costs}"
        table.add_row("launches", time_text(step["by_limit_s"].get("launches", 0.0)), launches)
    link = f"{chip['link']} at {chip['link_bandwidth'] / 1e9:.0f} GB/s and {chip['latency'] * 1e6:g} us per hop"
    table.add_row("waiting for exchanges", time_text(step["exposed_s"]), link)
    if step["compiler_estimate_s"]:
        told = "beside the above; it ranks programs, and is not a time"
        table.add_row("the compiler's own cycles", time_text(step["compiler_estimate_s"]), told)
    once = step["loops_of_unknown_length"]
    told = f"; {once} loop(s) of a length that the program does not tell are counted once" if once else ""
    table.caption, table.caption_justify = f"Most of it is bound by: {step['limit']}{told}", "left"
    return table


def _scaling(content: Content) -> Table:
    table = Table(title="Weak scaling, estimated: the same block on each device", title_justify="left")
    for name in ("devices", "mesh", "cells", "time of a step", "waiting", "efficiency"):
        table.add_column(name, justify="right")
    for one in content["scaling"]:
        mesh, cells = " x ".join(map(str, one["mesh"].values())) or "1", " x ".join(map(str, one["shape"]))
        times = time_text(one["seconds"]), time_text(one["exposed_s"])
        table.add_row(str(one["devices"]), mesh, cells, *times, f"{100 * one['efficiency']:.1f} %")
    return table


def size_text(size: float) -> str:
    """Bytes with a binary prefix."""
    power = next(power for power in (3, 2, 1, 0) if size >= 2 ** (10 * power) or not power)
    return f"{size / 2 ** (10 * power):.{2 if power else 0}f} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def time_text(seconds: float | None) -> str:
    """Seconds with a prefix; a dash where they are not known."""
    if seconds is None:
        return "-"
    for factor, unit in ((1e-3, "us"), (1.0, "ms")):
        if seconds < factor:
            return f"{seconds * 1e3 / factor:.3g} {unit}"
    return f"{seconds:.3g} s"
