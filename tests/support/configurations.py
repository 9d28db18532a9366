"""Small valid configurations for tests to change."""

import copy
import functools
import re

import pytest

from simjax.config import compose, list_experiments, validate
from simjax.errors import ConfigurationError

FLOW = {
    "model": "incompressible",
    "physics": {"viscosity": 1e-3},
    "grid": {"shape": [16, 8]},
    "time": {"end": 1.0, "output_every": 0.1},
}
DYE = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 1e-3, "velocity": [1.0, 0.0]},
    "grid": {"shape": [16, 8]},
    "time": {"end": 1.0, "output_every": 0.1},
}


def changed(base, changes):
    """`base` with dotted keys set."""
    mapping = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        section = mapping
        for key in parents:
            section = section.setdefault(key, {})
        section[last] = value
    return mapping


def refusal(mapping, **options):
    with pytest.raises(ConfigurationError) as refused:
        validate(mapping, **options)
    assert refused.value.exit_code == 2
    return str(refused.value)


@functools.cache
def composed(name):
    """The composition of a shipped experiment, shared by the tests of one process: it takes a tenth of a second."""
    return compose([f"experiment={name}"])


@functools.cache
def shipped(name):
    """The configuration of a shipped experiment, as `load_config(name)` gives it."""
    return composed(name).config()


def models():
    """The model of every experiment, from its file: to compose them all takes seconds of whoever collects tests."""
    named = {each.name: re.search(r"^model: (\w+)", each.file.read_text(), re.MULTILINE) for each in list_experiments()}
    return {name: model[1] if model else FLOW["model"] for name, model in named.items()}
