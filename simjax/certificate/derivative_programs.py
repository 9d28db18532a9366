"""A function and its derivatives as compiled programs, on several meshes and with several checkpoint plans."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
from jax.stages import Lowered

from simjax.certificate.directions import Unknowns, dot
from simjax.parallel import whole
from simjax.stepping.checkpointing.plan import Checkpoint

Variant = tuple[Mapping[str, int], Checkpoint]
"""Sizes of a mesh, and a plan."""

# Machine code that is not optimised computes the same derivative and is there sooner; without the fusion emitters that
# jax 0.10 has on a CPU, up to fifteen times as soon.
COMPILED_SOON: Any = {"xla_backend_optimization_level": 0} | (
    {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
)


class CompiledObjective:
    """The gradients of `on(sizes, plan)` for all `variants`; of the first one also its value and forward mode.

    Traced for unknowns like `start`, one after the other, and compiled side by side.
    """

    def __init__(self, on: Callable[..., Callable], variants: Sequence[Variant], start: Unknowns):
        self.variants = list(variants)
        traced: dict[Any, Lowered] = {
            number: jax.jit(jax.value_and_grad(on(*variant))).lower(start)
            for number, variant in enumerate(self.variants)
        }
        function = on(*self.variants[0])
        traced |= {"value": jax.jit(function).lower(start)} | _forward(function, start)
        with ThreadPoolExecutor() as pool:
            compiling = {name: pool.submit(program.compile, COMPILED_SOON) for name, program in traced.items()}
            self._programs = {name: program.result() for name, program in compiling.items()}

    def gradient(self, unknowns: Unknowns, variant: Variant) -> tuple[float, Unknowns]:
        """Value and gradient of one of the variants, as arrays of numpy."""
        value, gradient = self._programs[self.variants.index(variant)](unknowns)
        return float(value), jax.tree.map(whole, gradient)

    def value(self, unknowns: Unknowns) -> float:
        return float(self._programs["value"](unknowns))

    @property
    def has_forward_mode(self) -> bool:
        """Tell whether `along` can be asked: not if a rule of the function is for reverse mode alone (`custom_vjp`)."""
        return "along" in self._programs

    def along(self, unknowns: Unknowns, direction: Unknowns) -> float:
        """The derivative along a direction, by forward mode."""
        return float(self._programs["along"](unknowns, direction)[1])

    def value_and_slope(self, unknowns: Unknowns, direction: Unknowns) -> tuple[float, float]:
        """The value, and the derivative along a direction, by forward mode where there is one."""
        if self.has_forward_mode:
            value, slope = self._programs["along"](unknowns, direction)
            return float(value), float(slope)
        value, slopes = self.gradient(unknowns, self.variants[0])
        return value, dot(slopes, direction)


def _forward(function: Callable, start: Unknowns) -> dict[str, Lowered]:
    try:
        along = jax.jit(lambda u, d: jax.jvp(function, (u,), (d,)))
        return {"along": along.lower(start, start)}
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        return {}
