"""The program of a run, compiled for devices that are not there."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from simjax.driver.programs.programs_of_run import CompiledRun, compiled_run
from simjax.driver.start.build import plan_frames
from simjax.driver.start.environment import set_up_jax
from simjax.errors import ConfigurationError, ResourceError
from simjax.grid import AXES
from simjax.inspect.hlo import parse
from simjax.inspect.inspection import Inspection, Memory
from simjax.inspect.links import Switch, Torus
from simjax.inspect.target import Target
from simjax.inspect.time_estimate import Estimator
from simjax.jaxpr.platform import tracing_for
from simjax.schema.config import Config
from simjax.schema.devices import MeshConfig

# Steps of the compiled call: so many that the loop over them stays one, pairs of steps in its body among them.
STEPS = 16
GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
SPECIFICATIONS = Path(__file__).parent / "targets"


@dataclass(frozen=True)
class CompiledProgram:
    """A program for `steps` steps: its text, its memory, the CPU seconds that XLA took, and the devices' links."""

    run: CompiledRun
    steps: int
    text: str
    memory: Memory
    seconds: float
    network: Torus | Switch


def inspected(config: Config, target: Target, *, scaling: bool) -> Inspection:
    """Inspect the compiled step of a run; see `inspection.inspect_program`."""
    config = with_mesh(config, target)
    set_up_for(config, target)
    found = _inspected(config, target)
    rows: list[Inspection] = []
    fewer = smaller(config, target) if scaling and found.step is not None else None
    while fewer is not None:
        rows.insert(0, _inspected(*fewer))
        fewer = smaller(*fewer)
    return dataclasses.replace(found, smaller=tuple(rows))


def _inspected(config: Config, target: Target) -> Inspection:
    program = compile_for(config, target)
    step = call = None
    if program.memory.refusal is None:
        step, call = Estimator(parse(program.text), target.chip, program.network).step(program.steps)
    domain = program.run.domain
    mesh = {} if program.run.mesh is None else dict(program.run.mesh.shape)
    return Inspection(
        config.experiment_name or config.model,
        config.model,
        config.precision,
        config.time.integrator,
        target,
        mesh,
        domain.grid.shape,
        domain.block_shape,
        program.memory,
        step,
        call,
        program.steps,
        program.seconds,
    )


def set_up_for(config: Config, target: Target) -> None:
    """Set jax up to compile a configuration for a target; no effect on its devices where it has begun to run."""
    if target.name == "cpu":
        set_up_jax(config)
        return
    set_up_jax(dataclasses.replace(config, mesh=MeshConfig()))


def devices_of(target: Target) -> list[Any]:
    """The devices of a target, of which all but those of this machine's processor are not there.

    Raises:
        ResourceError: what compiles for them is not installed.
        ConfigurationError: there is no such slice.
    """
    if target.name == "cpu":
        return jax.devices("cpu")[: target.count]
    if target.name == "h100":
        if not any(map(importlib.util.find_spec, GPU_PLUGINS)):
            raise ResourceError(
                f"target={target}: compiling for a GPU that is not there needs jax's plugin for CUDA; write "
                "pip install 'simjax[compile-gpu]'."
            )
        text = (SPECIFICATIONS / "h100_sxm.txtpb").read_text(encoding="utf-8")
        options = {"target_config": text, "topology": f"1x1x{target.count}"}
        return topologies.get_topology_desc(platform="cuda", topology_name="", **options).devices
    if importlib.util.find_spec("libtpu") is None:
        raise ResourceError(
            f"target={target}: compiling for a TPU that is not there needs libtpu; write pip install 'simjax[tpu]' on "
            "Linux with an x86-64 processor."
        )
    third = (1,) * (3 - len(target.shape))
    options: dict[str, Any] = {"wrap": (*target.wraps, *(False for _ in third))}
    if math.prod(target.shape) == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=str(target), **options).devices
    except Exception as error:  # jaxlib's own class is not public
        raise ConfigurationError(f"target={target}: libtpu knows no such slice: {error}") from None


def compile_for(config: Config, target: Target) -> CompiledProgram:
    """Compile the steps of a configuration whose mesh has as many devices as the target.

    Raises:
        ConfigurationError: what cannot be cut so.
        ResourceError: what compiles for the target is not installed.
    """
    devices = devices_of(target)
    run = compiled_run(config, absent=devices)
    steps = STEPS * max(1, run.steps_together, run.steps_per_exchange)
    schedule = plan_frames(config, steps).schedule_of(0)
    until = jax.ShapeDtypeStruct((), jnp.int32)
    with tracing_for(devices[0].platform):
        lowered = run.advance(schedule, steps).lower(run.values, run.files, *run.template(run.room()), until)
    begin = time.process_time()
    text, memory = "", Memory()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        memory = Memory(refusal=_sentence(str(error)))
    else:
        text, memory = compiled.as_text(), _memory(compiled)
    return CompiledProgram(run, steps, text, memory, time.process_time() - begin, _network(run, target))


def _memory(compiled) -> Memory:
    found = compiled.memory_analysis()
    return Memory(
        found.argument_size_in_bytes,
        found.temp_size_in_bytes,
        found.output_size_in_bytes,
        found.alias_size_in_bytes,
        getattr(found, "peak_memory_in_bytes", 0),
    )


def _sentence(text: str) -> str:
    """The first sentence of the compiler's refusal."""
    return re.split(r"(?<=\w\)?)\.\s|\n", text.removeprefix("RESOURCE_EXHAUSTED: "), maxsplit=1)[0].rstrip(".") + "."


def _network(run: CompiledRun, target: Target) -> Torus | Switch:
    """The links between the devices of a run, which programs number in the order of its mesh."""
    devices = devices_of(target) if run.mesh is None else [*run.mesh.devices.flat]
    if target.chip is None or not target.chip.is_torus:
        return Switch(len(devices))
    places = tuple(tuple(device.coords[: len(target.shape)]) for device in devices)
    return Torus(places, target.shape, target.wraps)


def with_mesh(config: Config, target: Target) -> Config:
    """The configuration with a mesh of as many devices as the target has: its own, or one as square as can be.

    Raises:
        ConfigurationError: its own has another number.
    """
    own = config.mesh.devices
    if own == target.count:
        return config
    sizes = mesh_sizes(target, config.ndim)
    if own > 1:
        advice = " ".join(f"mesh.{name}={size}" for name, size in sizes.items())
        raise ConfigurationError(
            f"mesh.x * mesh.y * mesh.z * mesh.ensemble = {own}, and target={target} has {target.count} devices; write "
            f"{advice}."
        )
    return dataclasses.replace(config, mesh=MeshConfig(overlap=config.mesh.overlap, **sizes))


def mesh_sizes(target: Target, ndim: int) -> dict[str, int]:
    """Devices along each axis: those of the torus, the last ones together where the grid has fewer axes; of devices
    that a switch joins as many along each as can be.
    """
    if target.chip is not None and target.chip.is_torus:
        lengths = [length for length in target.shape if length > 1]
        lengths = [*lengths[: ndim - 1], math.prod(lengths[ndim - 1 :])]
        lengths[-1] *= target.chip.devices
    else:
        lengths, rest = [1] * ndim, target.count
        while rest > 1:
            factor = next(n for n in range(2, rest + 1) if rest % n == 0)
            least = len(lengths) - 1 - lengths[::-1].index(min(lengths))
            lengths[least] *= factor
            rest //= factor
    return dict(zip(AXES, lengths, strict=False))


def smaller(config: Config, target: Target) -> tuple[Config, Target] | None:
    """The same block of a grid on each of fewer chips, half as many along each axis of the torus; None: no fewer."""
    fewer = target.halved()
    if config.grid is None or target.count == 1 or target.name == "cpu":
        return None
    sizes = {name: getattr(config.mesh, name) for name in AXES[: config.ndim]}
    shape = list(config.grid.shape)
    while math.prod(sizes.values()) * config.mesh.ensemble > fewer.count:
        longest = max(sizes, key=lambda name: sizes[name])
        if sizes[longest] % 2 or fewer.count % config.mesh.ensemble:
            return None
        sizes[longest] //= 2
        shape[AXES.index(longest)] //= 2
    mesh, grid = dataclasses.replace(config.mesh, **sizes), dataclasses.replace(config.grid, shape=tuple(shape))
    return dataclasses.replace(config, mesh=mesh, grid=grid), fewer
