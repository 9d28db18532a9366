"""The example in the docstring of every public name runs, and gives what it says."""

import builtins
import doctest
import inspect
import symtable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.models.registry import MODELS
from simjax.schema import side_declarations

GIVEN = {"sj": sj, "jax": jax, "jnp": jnp, "np": np}
NAMES = [name for name in sj.__all__ if name != "INTEGRATORS"]  # a dict, whose docstring Python does not keep


def example(name):
    """The lines below `Examples:`, without their indentation."""
    text = inspect.getdoc(getattr(sj, name)) or ""
    return inspect.cleandoc("\n" + text.partition("Examples:\n")[2]) + "\n"


def tables_of(table):
    """A table of symbols, and those of the functions, classes and comprehensions in it."""
    yield table
    for inner in table.get_children():
        yield from tables_of(inner)


def unknown_names(source):
    """Names that code reads and that it neither makes nor is given."""
    top = symtable.symtable(source, "an example", "exec")
    made = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    symbols = [(table, symbol) for table in tables_of(top) for symbol in table.get_symbols()]
    read = {symbol.get_name() for table, symbol in symbols if symbol.is_global() or table is top}
    return read - made - set(GIVEN) - set(dir(builtins))


def test_public_names_have_examples_whose_names_are_known():
    """Running all examples takes minutes; this finds those that are missing, or that lack an import, in a second."""
    parser = doctest.DocTestParser()
    sources = {name: "".join(part.source for part in parser.get_examples(example(name))) for name in NAMES}
    assert [name for name, source in sources.items() if not source] == []
    unknown = {name: unknown_names(source) for name, source in sources.items()}
    assert {name: words for name, words in unknown.items() if words} == {}


@pytest.fixture
def apart(monkeypatch):
    """Keep models and sides that examples declare from the other tests."""
    monkeypatch.setattr(side_declarations, "_DECLARED", side_declarations.declared_sides())
    monkeypatch.setattr(MODELS, "_schemas", dict(MODELS._schemas))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch, apart):
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(example(name), dict(GIVEN), name, None, 0)
    told = []
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append).failed
    assert not failed, "".join(told)
