"""Tables in CSV files, read line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from simjax.errors import ConfigurationError, InputOutputError

LARGEST_FILE = 2**28
"""Bytes of a table at most: five million readings, which take forty times as much memory while they are sorted."""


def csv_lines(path: Path, noun: str, advice: str) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of every line that is neither empty nor a comment.

    noun, advice: what the file is, and what to do where it is too large, for messages.

    Raises:
        InputOutputError: the file cannot be read.
        ConfigurationError: it is too large, not UTF-8, or a line is no line of a CSV file.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ConfigurationError(
                f"{path.name} has {size / 2**20:.0f} MiB; {noun} has at most {LARGEST_FILE // 2**20} MiB: {advice}."
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputOutputError(f"{path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path.name} is not text in UTF-8; save it as CSV in UTF-8.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield number, [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
            except csv.Error as error:
                raise ConfigurationError(f"{path.name} line {number} is no line of a CSV file ({error}).") from None
