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


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_faults_are_noticed(mutation):
    assert not mutation.survives()
