"""Shots of a file as sources and receivers of a configuration: a shot is a member of an ensemble."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.core.shots import Shots
from simjax.errors import ConfigurationError, SimjaxError
from simjax.grid import Grid
from simjax.io.shot_files import SEGY, read_shots
from simjax.models.formulas import formula_refusals
from simjax.models.waves.point_sources import SampledSignal
from simjax.schema.config_errors import unended
from simjax.schema.ensemble import sample_members
from simjax.schema.ensemble_section import OnePerMember
from simjax.schema.formula import Formula

NUMBER = "shot"
"""The key of `physics`, and the number of a run, that says which shot of a file is fired."""

PATH = "physics.sources"


@dataclass(frozen=True)
class ShotFile(OnePerMember):
    """The shots of a file as `simjax.read_shots` has them.

    Args:
        signal: what every source sends, in the place of the signals of the file; of SEG-Y there are none in it.
        axes: of SEG-Y, which coordinates the axes of the run are.
        digest: of the content, so that programs which hold another content are not taken for this one's.
    """

    file: str
    signal: Any = None
    axes: tuple[str, ...] = ("x", "z")
    digest: str = ""

    @staticmethod
    def of(file: Path, signal: Any, axes: tuple[str, ...]) -> ShotFile:
        """The shots of a file that is there.

        Raises SimjaxError where it holds none.
        """
        digest = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
        bare = ShotFile(count=0, number=NUMBER, file=str(file), signal=signal, axes=axes, digest=digest)
        shots = bare.shots()
        if np.ndim(shots.sources) != 3:
            raise ConfigurationError(f"sources has shape {np.shape(shots.sources)}: expected (shots, sources, axes)")
        return ShotFile(count=shots.count, number=NUMBER, file=str(file), signal=signal, axes=axes, digest=digest)

    def shots(self) -> Shots:
        """The shots that the file holds; silence in the place of signals that a formula or another file gives."""
        of_file = self.signal is None and Path(self.file).suffix.lower() not in SEGY
        silence = {} if of_file else {"signals": np.zeros(2), "times": np.arange(2.0)}
        return read_shots(self.file, axes=self.axes, **silence)[0]

    def write(self) -> dict[str, Any]:
        """The plain YAML value."""
        signal = {} if self.signal is None else {"signal": written_signal(self.signal)}
        axes = {"axes": list(self.axes)} if Path(self.file).suffix.lower() in SEGY else {}
        return {"shots": self.file, **signal, **axes}


def written_signal(signal: Any) -> Any:
    """A signal as plain YAML."""
    return signal.write() if isinstance(signal, Formula) else {"file": signal.file}


def shot_refusals(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences on shots of a file that do not fit the run, each with its key path."""
    source, end = config.physics.sources, config.time.end
    if not isinstance(source, ShotFile):
        if config.physics.shot is not None or any(one.path == f"physics.{NUMBER}" for one in config.ensemble.vary):
            yield f"physics.{NUMBER}", f"physics.{NUMBER}: expected shots of a file; write {PATH}={{shots: FILE}}"
        return
    name = f"{PATH}.shots = {source.file!r}"
    if config.physics.receivers:
        yield "physics.receivers", "physics.receivers: the file of shots has receivers; leave it out"
    if config.grid.axisymmetric:
        yield PATH, f"{PATH}: expected single sources on an axisymmetric grid, not shots; write their places"
        return
    if source.signal is None and Path(source.file).suffix.lower() in SEGY:
        yield PATH, f"{name}: SEG-Y has no signals; write what each source sends as {PATH}.signal"
    yield from formula_refusals(f"{PATH}.signal", source.signal, ("t", NUMBER, *config.parameters))
    try:
        shots = source.shots()
        grid = Grid(tuple(config.grid.shape), tuple(config.grid.lower), tuple(config.grid.upper))
        with jax.enable_x64(True):  # precision is that of the run only once it begins
            shots = shots.on(grid, jnp.dtype(config.precision), 0.0, end)
    except SimjaxError as error:
        yield PATH, unended(f"{name}: {error}")
        return
    first, last = (float(shots.times[k]) for k in (0, -1))
    if source.signal is None and (last <= 0 or first >= end):
        yield (
            PATH,
            (f"{name}: expected signals within the run, from 0 to {end:g}, got samples from {first:g} to {last:g}"),
        )
    for number in numbers_of_shots(config):
        if number != round(number) or not 0 <= number < source.count:
            yield (
                f"physics.{NUMBER}",
                (
                    f"physics.{NUMBER} = {number:g}: expected a whole number below {source.count}, the shots of "
                    f"{source.file}"
                ),
            )
            return


def single_sources(physics: Any) -> tuple:
    """The sources that a section `physics` lists; none where they are shots of a file."""
    return () if isinstance(physics.sources, ShotFile) else physics.sources


def numbers_of_shots(config: Any) -> list[float]:
    """The number of the shot of every member, or of the one that is fired."""
    found = sample_members(config).get(f"physics.{NUMBER}")
    return [config.physics.shot] if found is None else found.tolist()


def receivers_of(config: Any) -> Any:
    """Places of the receivers of a configuration: `(receivers, axes)`, or those of each member in front."""
    source = config.physics.sources
    if not isinstance(source, ShotFile):
        return config.physics.receivers
    places = np.asarray(source.shots().receivers)
    if places.ndim == 2:
        return as_tuples(places)
    numbers = [round(number) for number in numbers_of_shots(config)]
    return as_tuples(places[numbers] if config.ensemble.several else places[numbers[0]])


def as_tuples(places: np.ndarray) -> tuple:
    """An array as nested tuples."""
    return tuple(map(as_tuples, places)) if places.ndim > 1 else tuple(places.tolist())


def points_of_shot(source: ShotFile, values: Mapping[str, Any], signal: Any, dtype) -> dict[str, Any]:
    """Sources, their signals, and receivers of the shot that the numbers of a run name, as parameters.

    signal: what every source sends, in the place of the signals of the file, as a function of time.
    """
    shots = source.shots()
    number = jnp.rint(jnp.asarray(values[NUMBER])).astype(jnp.int32)
    places, receivers = jnp.asarray(shots.sources, dtype), jnp.asarray(shots.receivers, dtype)
    if signal is None:
        times, signals = jnp.asarray(shots.times, dtype), jnp.asarray(shots.signals, dtype)
        sent: tuple = (SampledSignal(times, signals[number]),)
    else:
        sent = (signal,) * places.shape[1]
    return {
        "sources": places[number],
        "signals": sent,
        "receivers": receivers[number] if receivers.ndim == 3 else receivers,
    }
