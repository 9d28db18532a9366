"""The loop of simjax's runs as a contestant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cases import Case, check, chunk
from benchmarks.contest import Arrays, Program, compiled, looping


def in_a_run(case: Case, scheme, steps: int, result: Callable[[Any], Arrays]) -> Program:
    """Chunks of `steps` steps of a case; `result` is of its state. The first result of a run that failed is refused."""
    function, carry = chunk(case, scheme, steps)
    program, seconds = compiled(function, carry)

    def checked(carry) -> Arrays:
        check(carry)
        return result(carry[0])

    return looping(program, carry, checked, seconds)
