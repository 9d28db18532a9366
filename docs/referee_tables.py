"""Tables of referees.md, from the files that the programs of `benchmarks/referees/` wrote."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REFEREES = Path(__file__).resolve().parent.parent / "benchmarks" / "referees"


def _groups(referee: str) -> dict[str, list[dict[str, Any]]]:
    text = (REFEREES / f"{referee}.json").read_text(encoding="utf-8")
    return {group: content["rows"] for group, content in json.loads(text).items()}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _said(rows: Sequence[dict[str, Any]]) -> str:
    return "yes" if all(row["passes"] for row in rows) else "**no**"


def _found(referee: str, peer: str | None = None) -> str:
    """What each row found beside its bar, with what the row's `peer` has where it has that."""
    rows = [row for group in _groups(referee).values() for row in group]
    others = [peer] if peer else []
    head = ["what", "simjax", *(name.capitalize() for name in others), "bar", "passes"]
    return _table(
        head,
        [
            [
                row["what"],
                f"{row['found']:.3g}",
                *(f"{row[name]:.3g}" if name in row else "" for name in others),
                f"{row['bar']:.3g}",
                _said([row]),
            ]
            for row in rows
        ],
    )


def athena() -> str:
    """Bars of Athena++, what simjax has, and whether it passes."""
    return _found("athena")


def quokka() -> str:
    """Bars of quokka, what simjax has, and whether it passes."""
    return _found("quokka")


def lammps() -> str:
    """Largest relative differences from LAMMPS: a row for each case, which has three of them and one bar."""
    head = ["case", "energy", "forces", "pressure", "bar", "passes"]
    return _table(
        head,
        [
            [case, *(f"{row['found']:.1e}" for row in rows), f"{rows[0]['bar']:.0e}", _said(rows)]
            for case, rows in _groups("lammps").items()
        ],
    )


def lammps_transport() -> str:
    """Diffusion and viscosity by both programs, and by how many standard errors they differ."""
    head = ["what", "simjax", "LAMMPS", "difference over standard errors", "bar", "passes"]
    lines = []
    for row in _groups("lammps_transport")["liquid"]:
        if "errors" in row:
            means = zip((row["simjax"], row["lammps"]), row["errors"], strict=True)
            told = [f"{mean:.3g} ± {error:.1g}" for mean, error in means]
            lines.append([row["what"], *told, f"{row['found']:.2g}", f"{row['bar']}", _said([row])])
    return _table(head, lines)


PEERS = ("jax-cfd", "Exponax", "PhiFlow", "XLB")


def _mosaic(quantities: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Rows of the experiments that are told by one of the `quantities`."""
    groups = _groups("mosaic").items()
    return {case: rows for case, rows in groups if rows and rows[0]["quantity"] in quantities}


def _values(rows: Sequence[dict[str, Any]]) -> str:
    """The part of a sweep that rows stand for."""
    ends = list(dict.fromkeys(row["value"] for row in (rows[0], rows[-1])))
    return f", {rows[0]['swept']} = {' to '.join(ends)}" if rows[0]["swept"] else ""


def _of_all(rows: Sequence[dict[str, Any]]) -> list[list[float | None]]:
    """Results of simjax and of each peer, at each value of the sweep."""
    return [[row["found"] for row in rows], *([row["peers"].get(peer) for row in rows] for peer in PEERS)]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def mosaic_errors() -> str:
    """Largest errors of a sweep, and differences of gradients from finite differences, with Mosaic's bars."""
    lines = []
    for case, rows in _mosaic(("error", "difference")).items():
        largest = [max((x for x in one if x is not None), default=None) for one in _of_all(rows)]
        bar = rows[0].get("bar")
        said = "" if bar is None else _said(rows)
        lines.append([case + _values(rows), *(_number(x, ".1e") for x in largest), _number(bar, "g"), said])
    return _table(["experiment", "simjax", *PEERS, "bar", "passes"], lines)


def mosaic_jacobians() -> str:
    """Cosines between simjax's Jacobian and those of others."""
    rows = [
        [case, *(_number(rows[0]["peers"].get(peer), ".6f") for peer in PEERS)]
        for case, rows in _mosaic(("cosine",)).items()
        if rows[0]["peers"]
    ]
    return _table(["experiment", *PEERS], rows)


def mosaic_drag() -> str:
    """The drag before and after Mosaic's search for the profile of least drag, of each solver that has it."""
    (rows,) = _mosaic(("drag at the start",)).values()
    before, after = ({"simjax": row["found"], **row["peers"]} for row in rows)
    lines = [
        [name, f"{before[name]:.4f}", f"{after[name]:.4f}", f"{1 - abs(after[name] / before[name]):.0%}"]
        for name in ("simjax", *PEERS)
        if before.get(name) is not None
    ]
    return _table(["solver", "drag at the start", "at the end", "less by"], lines)


def mosaic_seconds() -> str:
    """Seconds at the largest value of each sweep, and before it at the largest that all of its solvers have."""
    lines = []
    for case, rows in _mosaic(("seconds",)).items():
        taking = {name for row in rows for name, found in row["peers"].items() if found is not None}
        shared = [row for row in rows[:-1] if all(row["peers"].get(name) is not None for name in taking)]
        last = rows[-1]
        whole = all(last["peers"].get(name) is not None for name in taking)
        for row in (last,) if whole else (*shared[-1:], last):
            lines.append([case + _values([row]), *(_number(one[0], ".2g") for one in _of_all([row]))])
    return _table(["experiment", "simjax", *PEERS], lines)


def meep() -> str:
    """Differences from Meep, and errors of both from exact solutions."""
    return _found("meep", "meep")


def deepwave() -> str:
    """Differences from deepwave."""
    return _found("deepwave")


def dedalus() -> str:
    """Differences from Dedalus in steady convection."""
    return _found("dedalus")
