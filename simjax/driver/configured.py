"""Simulations from a name, from overrides, or from the values of Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simjax.arguments import shown
from simjax.config.own_models import declare_class
from simjax.core.model import GridModel
from simjax.driver.simulation import Simulation
from simjax.driver.start.python_values import PythonSections, stand_in, written_below
from simjax.errors import ConfigurationError
from simjax.models.registry import MODELS
from simjax.schema.config_errors import closest


def load(experiment: str | None = None, overrides: Sequence[str] = (), *, config_dir: str | None = None) -> Simulation:
    """A shipped or own experiment, configured: `load("fluid", overrides=["grid.shape=[128,128]"])`.

    Args:
        experiment: a name that `python -m simjax.run --help` lists; None: the overrides stand on the defaults alone.
        overrides: lines as on the command line, in that order, such as "time.end=2" and "~initial.velocity".
        config_dir: a folder of your own that holds `experiment/NAME.yaml`.

    Raises:
        ConfigurationError: everything that is wrong, a sentence for each.

    Examples:
        >>> sj.load("fluid", overrides=["grid.shape=[64,64]"]).config.grid.shape
        (64, 64)
    """
    from simjax.config import load_config

    if (
        isinstance(overrides, str)
        or not isinstance(overrides, Sequence)
        or not all(isinstance(one, str) for one in overrides)
    ):
        raise ConfigurationError(
            f"load: overrides={shown(overrides)}: expected a list of lines; write overrides=['time.end=2']."
        )
    return Simulation(load_config(experiment, overrides=list(overrides), config_dir=config_dir))


def configure(model: type[GridModel] | str, **sections: Any) -> Simulation:
    """A simulation of one's own model, or of one known by name, configured in Python with the keys of YAML.

    `configure(Model, grid={"shape": [64, 64]}, time={...}, initial={...}, mesh={"x": 2}, ensemble={...})`, or
    `configure("molecular_dynamics", physics={"potential": {Potential: {"width": 2}}}, box={...}, particles={...})`,
    where a class of one's own stands for its name.

    Fields of `initial` and `coefficients` may be arrays of the grid's shape (a vector: one for each axis), which are
    kept in `arrays` below `output.root`, where a run that goes on finds them. Sides may be objects such as
    `simjax.NoSlipWall()`, or pairs of them.

    Args:
        model: a class of simjax or your own, or the name by which configurations call one.
        sections: those of a YAML file, in the units of the model.

    Raises:
        ConfigurationError: everything that is wrong, a sentence for each, before anything is written.

    Examples:
        >>> heat = sj.configure(
        ...     "advection_diffusion", grid={"shape": [32]}, physics={"diffusivity": 0.1, "velocity": [0.0]},
        ...     initial={"concentration": "cos(2*pi*x)"}, time={"end": 0.1, "output_every": 0.1},
        ... )
        >>> heat.run().ds.concentration.shape
        (2, 32)
    """
    from simjax.config import validate

    if isinstance(model, str):
        name, folder, title = model, model, model.replace("_", " ")
    else:
        name, folder = declare_class(model), model.__name__
        title = (model.__doc__ or folder).splitlines()[0]
    if name not in MODELS:
        close = closest(name, MODELS)
        hint = f"did you mean {close!r}?" if close else f"known are {', '.join(MODELS)}, or write a class."
        raise ConfigurationError(f"configure({name!r}, ...): no such model; {hint}")
    given = PythonSections(MODELS[name], {"experiment_name": folder, "title": title, "model": name, **sections})
    config = validate(given.with_sources(stand_in))
    if given.arrays:
        config = validate(given.with_sources(written_below(Path(config.output.root))))
    return Simulation(config)
