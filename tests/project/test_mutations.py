"""The table of deliberate faults: it fits the sources, and every fault is noticed by its test."""

import re

import pytest
from mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_faults_fit_the_sources(mutation):
    source = (ROOT / "simjax" / mutation.path).read_text()
    assert mutation.mutated(source) != source
    file, _, name = mutation.test.partition("::")
    assert re.search(rf"^def {name or 'test_'}", (ROOT / file).read_text(), re.MULTILINE)


def marks(mutation):
    """Each takes some ten seconds: with the slow tests those of particles and kernels, which nothing else repeats."""
    return pytest.mark.slow if mutation.path.startswith(("particles", "kernels")) else pytest.mark.long


@pytest.mark.parametrize("mutation", [pytest.param(m, marks=marks(m), id=m.name) for m in MUTATIONS])
def test_faults_are_noticed(mutation):
    assert not mutation.survives()
