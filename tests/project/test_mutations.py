"""The table of deliberate faults: it fits the sources, and every fault is noticed by its test."""

import dataclasses
import re

import pytest
from mutations import MUTATIONS, ROOT


def misfit(mutation):
    """Why a fault cannot be put in or has no test; empty if it can and has."""
    source = (ROOT / "simjax" / mutation.path).read_text()
    try:
        changed = mutation.mutated(source)
    except ValueError as error:
        return str(error)
    file, _, name = mutation.test.partition("[")[0].partition("::")
    if not re.search(rf"^def {name or 'test_'}", (ROOT / file).read_text(), re.MULTILINE):
        return f"{mutation.name}: there is no test {mutation.test}"
    return f"{mutation.name}: nothing changes" if changed == source else ""


def test_faults_fit_the_sources():
    assert [why for mutation in MUTATIONS if (why := misfit(mutation))] == []


def test_a_fault_that_does_not_fit_would_be_seen():
    some = MUTATIONS[0]
    assert "times in" in misfit(dataclasses.replace(some, text="no such text"))
    assert "no test" in misfit(dataclasses.replace(some, test=f"{some.test.partition('::')[0]}::test_none"))
    assert "nothing changes" in misfit(dataclasses.replace(some, fault=some.text))


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_faults_are_noticed(mutation):
    """Each takes some ten seconds; the ledger has them run in turn."""
    assert not mutation.survives()
