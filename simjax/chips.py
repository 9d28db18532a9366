"""Figures of chips, and of the links between them, by which programs are chosen and judged before they run.

Sources. Memory, its bandwidth and bfloat16 products of TPUs: the table that jax itself keeps for its kernels
(`jax/_src/pallas/mosaic/tpu_info.py`, from Google Cloud's pages of each TPU). Links: J. Austin et al., "How to Scale
Your Model" (2025), part "How to think about TPUs": bandwidth of a link in one direction, and about a microsecond per
hop. Vector units: the same page, 8 x 128 lanes with four units each, at the clock that follows from the products of the
matrix units. H100: NVIDIA's data sheet of the H100 SXM; NVLink's bandwidth is that of one direction. Only what a launch
of its kernels costs, and what they reach of its memory, was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

LANES = 8 * 128 * 4


@dataclass(frozen=True)
class Kernels:
    """Cost of a GPU's kernels beside their work, and the rates that they reach.

    launch: seconds between the end of one and the beginning of the next; least: seconds that the shortest one takes;
    fused: bytes per second that XLA's own kernels move; streamed: the same of a copy, and of what passes over memory
    line by line as a copy does, such as transforms.
    """

    launch: float
    least: float
    fused: float
    streamed: float


@dataclass(frozen=True)
class Chip:
    """A device as the compiler sees it.

    memory: bytes; bandwidth: of the memory, bytes per second; vector, matrix: operations per second on single elements
    and in products of bfloat16 (of TF32 on a GPU); clock: hertz; link: "ICI" or "NVLink", whose bandwidth is in bytes
    per second in one direction and whose latency is in seconds per hop; is_torus: chips have links to their neighbours
    alone; devices: of jax on each chip, which a TPU v4 that is not there has two of, and all else is of one of them;
    kernels: of a GPU; None: its instructions follow one another without a gap, at the figures above.
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
    kernels: Kernels | None = None


def _tpu(
    name: str,
    memory: float,
    bandwidth: float,
    matrix: float,
    clock: float,
    link: float,
    cores: int = 1,
    devices: int = 1,
) -> Chip:
    vector = cores * LANES * clock
    return Chip(
        name,
        memory / devices,
        bandwidth / devices,
        vector / devices,
        matrix / devices,
        clock,
        "ICI",
        link,
        1e-6,
        devices=devices,
    )


# One H100 80GB HBM3 with jax 0.11.2. launch: of three steps the clock had, over the times of their kernels, 2.0 to 2.5
# microseconds for each launch. least, fused: of loop fusions in the same profiles. streamed: a copy of 1 GiB.
H100_KERNELS = Kernels(launch=2.2e-6, least=2e-6, fused=2.1e12, streamed=2.95e12)
CHIPS = {
    "v4": _tpu("TPU v4", 34.4e9, 1.23e12, 2.75e14, 1.05e9, 4.5e10, cores=2, devices=2),
    "v5e": _tpu("TPU v5e", 17.2e9, 8.20e11, 1.97e14, 1.5e9, 4.5e10),
    "v5p": _tpu("TPU v5p", 103e9, 2.46e12, 4.59e14, 1.75e9, 9e10, cores=2),
    "v6e": _tpu("TPU v6e", 34.4e9, 1.64e12, 9.20e14, 1.75e9, 9e10),
    "h100": Chip(
        "H100 SXM", 85.0e9, 3.35e12, 67e12, 495e12, 1.98e9, "NVLink", 4.5e11, 3e-6, is_torus=False, kernels=H100_KERNELS
    ),
}
"""Name of a chip -> what is known of it."""
