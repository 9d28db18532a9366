"""Choice of the device mesh: `mesh: auto`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from simjax.driver.programs.program_memory import usable_memory
from simjax.driver.programs.programs_of_run import compiled_run, run_class
from simjax.driver.start.build import plan_frames
from simjax.driver.start.environment import set_up_jax
from simjax.errors import ConfigurationError, ResourceError
from simjax.grid import AXES
from simjax.jaxpr.sent_bytes import sent_bytes
from simjax.parallel import ENSEMBLE
from simjax.processes import processes
from simjax.schema.config import Config
from simjax.schema.devices import AutoMesh, MeshConfig
from simjax.stepping.checkpointing.plan import readable_bytes

# Ways to cut the grid among one number of devices that are traced; there can be dozens.
TRACED = 6
# States that a step takes beside its own, at most, of what benchmarks/memory.py measures: 7 in a flow, 21 in a gas. For
# the choice alone, as a run is refused by what its compiled programs take.
STEP_STATES = 24


def with_devices(config: Config) -> Config:
    """The configuration with its mesh chosen where it is auto, after jax has been set up for it.

    All processes choose the same: the choice depends on the configuration, the number of devices and the least of their
    memory.

    Raises:
        ResourceError: the mesh needs more devices than there are.
        ConfigurationError: several processes, whose devices cannot all be used.
    """
    config = set_up_jax(config)
    if not isinstance(config.mesh, AutoMesh):
        return config
    mesh, sentence = choose_mesh(config, jax.device_count())
    return dataclasses.replace(config, mesh=mesh, notes=(*config.notes, sentence))


@dataclass(frozen=True)
class _Cut:
    """A division of the devices among members and axes of the grid: bytes that each sends in a step, in how many
    messages, and the memory it lacks."""

    sizes: dict[str, int]
    sent: int
    messages: int
    members: int
    lacking: int

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items()) or "one device"


def choose_mesh(config: Config, present: int) -> tuple[MeshConfig, str]:
    """The mesh for so many devices, and a sentence about why.

    As many devices as the model can be cut among; members go to devices of their own as far as there are members and
    each has room there; then each member is cut so that a step sends the fewest bytes.
    """
    if present == 1:
        return MeshConfig(), "mesh=auto is one device: no other is present."
    start = run_class(config).places(config)
    refusals: list[str] = []
    for used in range(present, 0, -1):
        cuts = _cuts(config, used, start, refusals)
        if cuts:
            best = min(cuts, key=lambda cut: (cut.lacking, cut.sent, cut.messages))
            return _mesh(best.sizes), _sentence(best, cuts, used, present, refusals)
        if processes().count > 1:
            raise ConfigurationError(
                f"mesh=auto: expected to use all {present} devices of {processes().count} processes, but "
                f"{_first(refusals)}; start processes for fewer devices, or for a number that divides an axis."
            )
    raise ConfigurationError(f"mesh=auto: {_first(refusals)}.")


def _sentence(best: _Cut, cuts: Sequence[_Cut], used: int, present: int, refusals: Sequence[str]) -> str:
    if set(best.sizes) == {ENSEMBLE}:
        why = f"{best.members} members on each of {used} devices send nothing to each other"
    elif used > 1:
        why = f"each device sends {readable_bytes(best.sent)} in a step"
        # The more groups of devices, the fewer devices has a member.
        alike = [cut for cut in cuts if cut.sizes.get(ENSEMBLE) == best.sizes.get(ENSEMBLE)]
        why += f", the least of {len(alike)} ways to cut it among {used} devices" if len(alike) > 1 else ""
        why += "; a member on fewer devices lacks room" if len(alike) < len(cuts) else ""
    else:
        why = "it cannot be cut"
    fewer = f"; {present} devices are present, but {_first(refusals)}" if used < present else ""
    return f"mesh=auto is {best}: {why}{fewer}."


def _first(refusals: Sequence[str]) -> str:
    return refusals[0].rstrip(".") if refusals else "no axis of the grid divides by that many"


def _cuts(config: Config, used: int, start: Any, refusals: list[str]) -> list[_Cut]:
    """Ways to use so many devices, with the members among as many of them as leave a member room."""
    found: list[_Cut] = []
    for groups in range(used, 0, -1):
        if used % groups or config.ensemble.size % groups:
            continue
        for blocks in _ways(config, used // groups):
            sizes = {ENSEMBLE: groups, **dict(zip(AXES, blocks, strict=False))}
            cut = _traced(config, {name: size for name, size in sizes.items() if size > 1}, start, refusals)
            found += [] if cut is None else [cut]
        if any(not cut.lacking for cut in found):
            break
    return found


def _ways(config: Config, devices: int) -> list[tuple[int, ...]]:
    """Ways to cut the axes into so many blocks: along one axis, and those with the smallest surfaces."""
    if config.grid is not None:
        extents: Sequence[float] = config.grid.shape
        possible = [
            b for b in _factors(devices, config.ndim) if not any(n % k for n, k in zip(extents, b, strict=True))
        ]
    else:
        assert config.box is not None and config.box.lower is not None
        extents = [b - a for a, b in zip(config.box.lower, config.box.upper, strict=True)]
        possible = list(_factors(devices, config.ndim))

    def surface(blocks: tuple[int, ...]) -> float:
        faces = [math.prod(extents) / devices / (n / k) for n, k in zip(extents, blocks, strict=True) if k > 1]
        return sum(faces)

    # Where surfaces are equal, cuts along the first axes leave longer lines in one piece.
    order = sorted(possible, key=lambda blocks: (surface(blocks), [-k for k in blocks]))
    slabs = [blocks for blocks in order if max(blocks) == devices]
    return [*slabs, *(blocks for blocks in order if blocks not in slabs)][:TRACED]


def _factors(product: int, count: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many numbers with this product."""
    if count == 1:
        yield (product,)
        return
    for first in range(1, product + 1):
        if product % first == 0:
            yield from ((first, *rest) for rest in _factors(product // first, count - 1))


def _mesh(sizes: dict[str, int]) -> MeshConfig:
    return MeshConfig(**{name: sizes.get(name, 1) for name in (*AXES, ENSEMBLE)})  # pyright: ignore[reportArgumentType]


def _on(config: Config, sizes: dict[str, int]) -> Config:
    """The configuration on a mesh of these sizes, with nothing that is measured."""
    return dataclasses.replace(config, mesh=_mesh(sizes), implementation="xla", steps_per_exchange=0)


def _traced(config: Config, sizes: dict[str, int], start: Any, refusals: list[str]) -> _Cut | None:
    """The division with the bytes that a step sends; None, and the reason among the `refusals`, where the model cannot
    be cut so."""
    cut = _on(config, sizes)
    try:
        for _, sentence in cut.schema.check(cut):
            raise ConfigurationError(sentence)
        devices = jax.devices()
        programs = compiled_run(cut, absent=devices, start=start)
        step = programs.traced_step(plan_frames(cut, 1).schedule)
    except (ConfigurationError, ResourceError) as error:
        refusals.append(str(error))
        return None
    sent, messages = sent_bytes(step, sizes)
    members, state, room = programs.local_members, programs.state_bytes(), usable_memory(config)
    lacking = 0 if room is None else max(0, (2 * members + STEP_STATES) * state - room)
    return _Cut(sizes, sent, messages, members, lacking)
