"""Costs of programs: what a change may not make dearer, by `tests/reference/program_costs.json`."""

import copy
import json

import pytest
from program_costs import FILE, GRADIENT, STEPS, differences, in_a_process

KEPT = json.loads(FILE.read_text())
SCALAR = "scalar on 2x4"


def changed(name, figure, factor):
    """The kept costs with one figure of one program multiplied."""
    found = copy.deepcopy(KEPT)
    found["programs"][name][figure] *= factor
    return found


@pytest.mark.slow
def test_steps_cost_what_they_did():
    assert not list(differences(in_a_process([name for name in (*STEPS, GRADIENT) if name != SCALAR]), KEPT))


@pytest.mark.slow
def test_a_step_of_a_scalar_costs_what_it_did():
    """By itself, so that a deliberate fault (`tests/mutations.py`) is noticed in a few seconds."""
    assert not list(differences(in_a_process([SCALAR]), KEPT))


def test_every_program_is_kept():
    assert set(KEPT["programs"]) == {*STEPS, GRADIENT}
    assert sum(bool(costs["collectives"]) for costs in KEPT["programs"].values()) == 5


@pytest.mark.parametrize(("figure", "more"), [("bytes", 1.1), ("instructions", 1.1), ("temporaries", 1.2)])
@pytest.mark.parametrize("name", [*STEPS, GRADIENT])
def test_a_tenth_more_is_told_and_a_hundredth_is_not(name, figure, more):
    (told,) = differences(changed(name, figure, more), KEPT)
    assert told.startswith(f"{name}: {figure}") and f"{more - 1:+.1%}" in told
    assert not list(differences(changed(name, figure, 1.01), KEPT))
    # Or the file would let it grow again.
    assert list(differences(changed(name, figure, 2 - more), KEPT))


def test_one_collective_more_is_told_whatever_the_version_of_jax():
    found = changed("flow", "bytes", 2)
    found["jax"] = "0.99"
    assert not list(differences(found, KEPT))
    found["programs"]["flow on 2x4"]["collectives"]["collective-permute"] += 1
    (told,) = differences(found, KEPT)
    assert told.startswith("flow on 2x4: collectives")
