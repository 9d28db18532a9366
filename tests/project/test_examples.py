"""The example in the docstring of every public name runs, and gives what it says."""

import doctest
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.models.registry import MODELS
from simjax.schema import sides

WITHOUT = {"INTEGRATORS"}  # a dict, whose docstring Python does not keep
# Examples that compile a run take seconds.
LONG = re.compile(r"\.run\(|\.grad\(|certify|\.instruments|molecular_dynamics|differentiable|\.pairs|Pairs\(")


def example(name):
    """The lines below `Examples:`, without their indentation."""
    text = inspect.getdoc(getattr(sj, name)) or ""
    return inspect.cleandoc("\n" + text.partition("Examples:\n")[2]) + "\n"


def marked(name):
    return pytest.param(name, marks=pytest.mark.slow) if LONG.search(example(name)) else name


@pytest.fixture
def apart(monkeypatch):
    """Keep models and sides that examples declare from the other tests."""
    monkeypatch.setattr(sides, "_DECLARED", sides.declared_sides())
    monkeypatch.setattr(MODELS, "_schemas", dict(MODELS._schemas))


@pytest.mark.parametrize("name", [marked(name) for name in sj.__all__ if name not in WITHOUT])
@pytest.mark.slow
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch, apart):
    monkeypatch.chdir(tmp_path)
    text = example(name)
    assert ">>>" in text, f"sj.{name}: its docstring has no example"
    names = {"sj": sj, "jax": jax, "jnp": jnp, "np": np}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    told = []
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append).failed
    assert not failed, "".join(told)
