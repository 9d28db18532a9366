"""The loop of simjax's runs as a contestant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.sharding import Mesh

from benchmarks.cases import Case, check, chunk
from benchmarks.contest import Arrays, Program, compiled, looping
from simjax.parallel import make_mesh


def mesh_of(physics, axis: str = "x") -> Mesh | None:
    """The mesh of a contestant's `devices` along one axis; None of one device."""
    devices = physics.get("devices", 1)
    return make_mesh({axis: devices}) if devices > 1 else None


def in_a_run(case: Case, scheme, steps: int, result: Callable[[Any], Arrays], mesh: Mesh | None = None) -> Program:
    """Chunks of `steps` steps of a case; `result` is of its state. The first result of a run that failed is refused."""
    function, carry = chunk(case, scheme, steps, mesh)
    program, seconds = compiled(function, carry)

    def checked(carry) -> Arrays:
        check(carry)
        return result(carry[0])

    return looping(program, carry, checked, seconds)
