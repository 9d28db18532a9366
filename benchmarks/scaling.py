"""Strong and weak scaling by what is counted in compiled programs: messages and bytes of one step, without times."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.weak_scaling import inspected

MESHES = ((1, 1), (2, 2), (2, 4))
QUICK = ((1, 1), (2, 4))
# Cells along each axis: of the whole grid, and of the block of each device where blocks stay the same.
CELLS, BLOCK = 256, 128
EXPERIMENTS = ("fluid", "layered_medium", "dye")
# What one device sends for each of these reaches one other device; the rest goes to all.
PAIRWISE = "collective-permute"


def scaling(quick: bool) -> list[dict[str, Any]]:
    """Messages and bytes of a step: of the same grid, or of the same block on each device, on meshes of devices."""
    places = [
        (experiment, mesh, kind)
        for experiment in (EXPERIMENTS[:1] if quick else EXPERIMENTS)
        for mesh in (QUICK if quick else MESHES)
        for kind in (("strong",) if quick else ("strong", "weak"))
    ]

    def row(place: tuple[str, tuple[int, int], str]) -> dict[str, Any]:
        experiment, mesh, kind = place
        shape = [CELLS] * 2 if kind == "strong" else [BLOCK * count for count in mesh]
        return {"experiment": experiment, "kind": kind, "mesh": list(mesh)} | _counts(experiment, shape, mesh)

    # Nothing is timed, so that two programs may be compiled at once.
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(row, places))


def _counts(experiment: str, shape: list[int], mesh: tuple[int, int]) -> dict[str, Any]:
    overrides = [f"grid.shape={shape}".replace(" ", ""), f"mesh.x={mesh[0]}", f"mesh.y={mesh[1]}"]
    found = inspected(experiment, overrides, f"cpu:{mesh[0] * mesh[1]}", "--no-scaling")
    if "error" in found:
        return {"shape": shape, "refused": found["error"]}
    exchanges = found["step"]["exchanges"]
    return {
        "shape": shape,
        "block": found["block"],
        "messages": sum(one["count"] for one in exchanges if one["kind"] == PAIRWISE),
        "of_all": sum(one["count"] for one in exchanges if one["kind"] != PAIRWISE),
        "sent": sum(one["count"] * one["bytes"] for one in exchanges),
        "moved": found["step"]["bytes"],
    }
