"""The tables of an inspection, as text for a terminal."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from simjax.inspect.estimate import Exchange
    from simjax.inspect.inspection import Inspection

WIDTH = 120


def as_text(inspection: Inspection) -> str:
    """All tables below one another."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, highlight=False, emoji=False, markup=False)
    console.print(_head(inspection))
    console.print(_memory(inspection))
    if inspection.step is not None:
        console.print(_exchanges(inspection))
        if inspection.target.chip is not None:
            console.print(_time(inspection))
        if inspection.smaller:
            console.print(_scaling(inspection))
    return stream.getvalue().rstrip()


def _head(inspection: Inspection) -> str:
    cells, block = (" x ".join(map(str, shape)) for shape in (inspection.shape, inspection.block))
    mesh = ", ".join(f"{name} {count}" for name, count in inspection.mesh.items()) or "one device"
    return (
        f"{inspection.experiment} on {inspection.target}: {cells} cells in {inspection.precision}, {block} on each "
        f"device (mesh: {mesh}); compiled in {inspection.compile_seconds:.1f} s of the processor, not run"
    )


def _memory(inspection: Inspection) -> Table:
    memory, chip = inspection.memory, inspection.target.chip
    table = Table(title="Memory of each device", title_justify="left", show_header=False)
    if memory.refusal is not None:
        table.add_row("does not fit", memory.refusal)
        return table
    figures = {
        "arguments": memory.arguments, "results": memory.results, "of these in place of arguments": memory.aliased,
        "temporaries": memory.temporaries, "most at one time": memory.peak,
    }  # fmt: skip
    for name, size in figures.items():
        table.add_row(name, size_text(size))
    if chip is not None:
        share = memory.peak / chip.memory
        table.add_row("fits", f"{100 * share:.0f} % of {size_text(chip.memory)} at most, by the compiler")
    return table


def _exchanges(inspection: Inspection) -> Table:
    table = Table(title="Exchanges of a step, sent by each device", title_justify="left")
    for name in ("kind", "count", "bytes", "over", "runs", "takes", "beside it", "waited for"):
        table.add_column(name, justify="right" if name not in ("kind", "over", "runs") else "left")
    for one in inspection.exchanges:
        how = "asynchronous" if one.is_asynchronous else "synchronous"
        times = (one.seconds, one.beside, one.exposed) if inspection.target.chip else (math.nan,) * 3
        table.add_row(
            one.kind, f"{one.count:g}", size_text(one.bytes), _way(one, inspection), how, *map(time_text, times)
        )
    return table


def _way(one: Exchange, inspection: Inspection) -> str:
    chip = inspection.target.chip
    if chip is None:
        return "memory"
    hops = f", {one.route.hops} hop{'s' if one.route.hops != 1 else ''}" if chip.is_torus else ""
    ways = "" if not chip.is_torus else " " + " ".join(one.route.directions)
    return f"{chip.link}{ways}{hops}"


def _time(inspection: Inspection) -> Table:
    step, chip = inspection.step, inspection.target.chip
    assert step is not None and chip is not None
    table = Table(title=f"Estimated time of a step: {time_text(inspection.seconds)}", title_justify="left")
    for name in ("part", "time", "from"):
        table.add_column(name, justify="right" if name == "time" else "left")
    work = step.work
    amounts = {
        "memory": f"{size_text(work.bytes)} at {chip.bandwidth / 1e9:.0f} GB/s",
        "vector unit": f"{work.vector:.3g} operations at {chip.vector / 1e12:.1f} T/s",
        "matrix unit": f"{work.matrix:.3g} operations at {chip.matrix / 1e12:.0f} T/s",
    }
    for name, amount in amounts.items():
        table.add_row(f"bound by the {name}", time_text(step.by_limit.get(name, 0.0)), f"of all {amount}")
    link = f"{chip.link} at {chip.link_bandwidth / 1e9:.0f} GB/s and {chip.latency * 1e6:g} us per hop"
    table.add_row("waiting for exchanges", time_text(step.exposed), link)
    if work.cycles:
        table.add_row("the compiler's own cycles", time_text(work.cycles / chip.clock), "not added; no time either")
    table.caption = f"The limit is: {step.limit}"
    table.caption_justify = "left"
    return table


def _scaling(inspection: Inspection) -> Table:
    table = Table(title="Weak scaling, estimated: the same block on each device", title_justify="left")
    for name in ("devices", "mesh", "cells", "time of a step", "waiting", "efficiency"):
        table.add_column(name, justify="right")
    for one in (*inspection.smaller, inspection):
        row, mesh = one.as_row(inspection), " x ".join(map(str, one.mesh.values())) or "1"
        cells = " x ".join(map(str, one.shape))
        times = time_text(row["seconds"]), time_text(row["exposed_s"])
        table.add_row(str(one.target.count), mesh, cells, *times, f"{100 * row['efficiency']:.1f} %")
    return table


def size_text(size: float) -> str:
    """Bytes with a binary prefix."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    raise AssertionError


def time_text(seconds: float) -> str:
    """Seconds with a prefix; a dash where they are not known."""
    if math.isnan(seconds):
        return "-"
    for factor, unit in ((1e-3, "us"), (1.0, "ms")):
        if seconds < factor:
            return f"{seconds * 1e3 / factor:.3g} {unit}"
    return f"{seconds:.3g} s"
