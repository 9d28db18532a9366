"""The sections `output` and `checkpoint`: what a run leaves in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simjax.schema.kinds import Choice, Flag, Integer, ListOf, Real, Text, key
from simjax.schema.particles import CHOSEN


@dataclass(frozen=True)
class OutputConfig:
    """The section `output`: where a run writes, and what."""

    root: str = key(Text(described="a folder"), "outputs", about="folder of all runs")
    folder: str | None = key(
        Text(optional=True, described="a folder below output.root"),
        None,
        about="folder of this run; null: experiment and time",
    )
    overwrite: bool = key(Flag(), False, about="whether a run in that folder is replaced")
    copy_to: str | None = key(
        Text(optional=True, described="a place in an object store, such as gs://bucket/runs"),
        None,
        about="object store that keeps a copy of the run's folder, brought up to date at every checkpoint; null: none",
    )
    fields: tuple[str, ...] | None = key(
        ListOf(Text(), 0, 100, optional=True, noun="variable names"),
        None,
        about="variables that are written, also a whole field such as velocity, velocity_centered, speed; null: all",
    )
    troubles: tuple[str, ...] | None = key(
        ListOf(Text(), 1, 100, optional=True, noun="troubles of the model"),
        None,
        about="troubles of which diagnostics have the number of cells, the worst and its place; null: none",
    )
    animation: bool = key(Flag(), True, about="whether an animation is left")
    report: bool = key(Flag(), True, about="whether a report is left")
    pictures: tuple[str, ...] = key(
        ListOf(Choice(("png", "pdf", "svg")), 1, 3, noun="formats"),
        ("png",),
        about="formats of the report's summary; the page shows the PNG",
    )
    particles: tuple[str, Any] | None = key(CHOSEN, None, about="particles that are written; null: all")
    rounding_bits: int | None = key(
        Integer(1, 52, optional=True), None, about="bits of the mantissa that are kept; null: all"
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """The section `checkpoint`: how often the state is saved and how many of them are kept."""

    every_seconds: float | None = key(
        Real(above=0.0, optional=True),
        60.0,
        units="s",
        about="wall-clock time between checkpoints; null: by frames alone",
    )
    every_frames: int | None = key(
        Integer(1, optional=True), None, about="frames between checkpoints; null: by time alone"
    )
    keep: int = key(Integer(1), 2, about="newest checkpoints that stay")
    keep_every: float | None = key(
        Real(above=0.0, optional=True),
        None,
        units="s",
        about="simulated time of which the first checkpoint after each multiple stays for good; null: none does",
    )
