"""Acoustic waves by deepwave, with layers of 20 cells beside the grid: steps, or value and gradient by the speed.

It advances the pressure alone. The value is the mean square of the pressure at the end.
"""

from __future__ import annotations

import deepwave
import torch

from benchmarks.contest import Program, serve

LAYER = 20


def build(physics, start) -> Program:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speed, pressure = (torch.tensor(start[name], dtype=torch.float32, device=device) for name in ("speed", "field"))
    found = {}

    def end_of(speed):
        return deepwave.scalar(
            speed,
            physics["spacing"],
            physics["dt"],
            accuracy=physics["order"],
            pml_width=LAYER,
            pml_freq=25.0,
            max_vel=physics["fastest"],
            wavefield_0=pressure[None],
            wavefield_m1=pressure[None],
            nt=physics["steps"],
        )[0]

    def forward() -> None:
        with torch.no_grad():
            found.update(field=end_of(speed))

    def gradient() -> None:
        own = speed.clone().requires_grad_()
        torch.mean(end_of(own) ** 2).backward()
        found.update(gradient=own.grad)

    def advance() -> None:
        (gradient if physics["gradient"] else forward)()
        if device == "cuda":
            torch.cuda.synchronize()

    def result():
        return {name: value.cpu().numpy() for name, value in found.items()}

    return Program(advance, result, figures={"version": deepwave.__version__})


if __name__ == "__main__":
    serve(build)
