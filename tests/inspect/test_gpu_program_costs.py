"""Costs of programs on a GPU: what a change may not make dearer, by `tests/reference/gpu_program_costs.json`."""

import copy
import json

import jax
import pytest
from gpu_program_costs import FILE, GRADIENTS, STEPS, TOLERANCES, in_a_process, minor
from program_costs import differences

KEPT = json.loads(FILE.read_text())
PROGRAMS = [*STEPS, *GRADIENTS]


# What compiles for GPUs comes with another package: pip install -e ".[test,compile-gpu]".
@pytest.mark.long
def test_steps_and_gradients_cost_what_they_did_on_a_gpu():
    own = minor(jax.__version__)
    assert own in KEPT, f"no figures are kept of jax {own}; write python tests/gpu_program_costs.py --write"
    assert not list(differences(in_a_process(PROGRAMS), KEPT[own], TOLERANCES))


def test_every_program_is_kept_for_each_version():
    assert len(STEPS) == 14 and len(GRADIENTS) == 3
    for version, kept in KEPT.items():
        assert minor(kept["jax"]) == version and set(kept["programs"]) == set(PROGRAMS)
        assert all(min(costs.values()) > 0 for costs in kept["programs"].values())


@pytest.mark.parametrize("figure", TOLERANCES)
@pytest.mark.parametrize("version", KEPT)
def test_what_grows_or_shrinks_is_told(version, figure):
    for factor, told in ((1.2, 1), (1.01, 0), (0.8, 1)):
        found = copy.deepcopy(KEPT[version])
        found["programs"]["flow, rk4"][figure] *= factor
        assert len(list(differences(found, KEPT[version], TOLERANCES))) == told


def test_one_launch_more_of_a_short_step_is_told():
    """In every step of at most 24 launches; of longer ones two or three are."""
    for kept in KEPT.values():
        found = copy.deepcopy(kept)
        short = [name for name in STEPS if kept["programs"][name]["launches"] <= 24]
        for name in short:
            found["programs"][name]["launches"] += 1
        assert len(list(differences(found, kept, TOLERANCES))) == len(short) >= 3
