"""deepwave's side of `referees/deepwave.py`: pressures at receivers, and the gradient of a misfit by the speed."""

from __future__ import annotations

import deepwave
import torch

from benchmarks.contest import Program, serve


def build(physics, start) -> Program:
    torch.set_num_threads(1)
    here = {name: torch.tensor(value) for name, value in start.items()}
    found = {}

    def advance() -> None:
        speed = here["speed"].clone().requires_grad_()
        pressures = deepwave.scalar(
            speed,
            physics["spacing"],
            physics["dt"],
            source_amplitudes=here["amplitudes"][None, None],
            source_locations=here["source"][None, None],
            receiver_locations=here["receivers"][None],
            accuracy=physics["order"],
            pml_width=physics["layer_cells"],
            pml_freq=physics["frequency"],
            max_vel=physics["fastest"],
        )[-1]
        # It records before its steps, from the start, where all is at rest.
        series = pressures[0, :, 1:].T
        misfit = 0.5 * torch.sum((series - here["data"]) ** 2)
        misfit.backward()
        found.update(series=series.detach().numpy(), misfit=misfit.detach().numpy(), gradient=speed.grad.numpy())

    return Program(advance, lambda: found, figures={"version": deepwave.__version__})


if __name__ == "__main__":
    serve(build)
