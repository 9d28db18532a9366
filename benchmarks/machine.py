"""The machine that a figure belongs to."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, object]:
    """Python, processor, the cores of it that this process may use, and how many processes wanted one of late."""
    return {
        "python": platform.python_version(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": load(),
    }


def load() -> list[float]:
    """Processes that ran or waited for a core, in the mean over 1, 5 and 15 minutes."""
    return [round(number, 2) for number in os.getloadavg()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
