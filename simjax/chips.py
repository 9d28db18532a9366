"""Figures of chips, and of the links between them, by which programs are chosen and judged before they run.

Sources. Memory, its bandwidth and bfloat16 products of TPUs: the table that jax itself keeps for its kernels
(`jax/_src/pallas/mosaic/tpu_info.py`, from Google Cloud's pages of each TPU). Links: J. Austin et al., "How to Scale
Your Model" (2025), part "How to think about TPUs": bandwidth of a link in one direction, and about a microsecond per
hop. Vector units: the same page, 8 x 128 lanes with four units each, at the clock that follows from the products of the
matrix units. H100: NVIDIA's data sheet of the H100 SXM; NVLink's bandwidth is that of one direction. None of it was
measured here.
"""

from __future__ import annotations

from dataclasses import dataclass

LANES = 8 * 128 * 4


@dataclass(frozen=True)
class Chip:
    """A device as the compiler sees it.

    memory: bytes; bandwidth: of the memory, bytes per second; vector, matrix: operations per second on single elements
    and in products of bfloat16 (of TF32 on a GPU); clock: hertz; link: "ICI" or "NVLink", whose bandwidth is in bytes
    per second in one direction and whose latency is in seconds per hop; is_torus: chips have links to their neighbours
    alone; devices: of jax on each chip, which a TPU v4 that is not there has two of, and all else is of one of them.
    """

    name: str
    memory: float
    bandwidth: float
    vector: float
    matrix: float
    clock: float
    link: str
    link_bandwidth: float
    latency: float
    is_torus: bool = True
    devices: int = 1


def _tpu(
    name: str, memory: float, bandwidth: float, matrix: float, clock: float, link: float, cores: int = 1,
    devices: int = 1,
) -> Chip:  # fmt: skip
    vector = cores * LANES * clock
    return Chip(
        name, memory / devices, bandwidth / devices, vector / devices, matrix / devices, clock, "ICI", link, 1e-6,
        devices=devices,
    )  # fmt: skip


CHIPS = {
    "v4": _tpu("TPU v4", 34.4e9, 1.23e12, 2.75e14, 1.05e9, 4.5e10, cores=2, devices=2),
    "v5e": _tpu("TPU v5e", 17.2e9, 8.20e11, 1.97e14, 1.5e9, 4.5e10),
    "v5p": _tpu("TPU v5p", 103e9, 2.46e12, 4.59e14, 1.75e9, 9e10, cores=2),
    "v6e": _tpu("TPU v6e", 34.4e9, 1.64e12, 9.20e14, 1.75e9, 9e10),
    "h100": Chip("H100 SXM", 85.0e9, 3.35e12, 67e12, 495e12, 1.98e9, "NVLink", 4.5e11, 3e-6, is_torus=False),
}
"""Name of a chip -> what is known of it."""
