"""Errors that carry a sentence for the user and the exit code of the command line."""

from pathlib import Path


class SimjaxError(Exception):
    """Base of all errors simjax raises on purpose; `exit_code` is what `python -m simjax.run` returns."""

    exit_code = 1


class ConfigurationError(SimjaxError, ValueError):
    """A configuration or an argument is not usable; the message says what to write instead."""

    exit_code = 2


class NumericalError(SimjaxError, ArithmeticError):
    """The simulation left the range of finite numbers or of its scheme's stability."""

    exit_code = 3


class InputOutputError(SimjaxError, OSError):
    """A file or folder could not be read or written."""

    exit_code = 4


class ResourceError(SimjaxError, RuntimeError):
    """Not enough memory or devices."""

    exit_code = 5


class CheckpointError(SimjaxError, RuntimeError):
    """No usable checkpoint, or one of another simulation."""

    exit_code = 6


class Stopped(SimjaxError, RuntimeError):
    """A run or a search ended before its time, by a signal or at its wall-clock limit; `folder` holds a checkpoint."""

    exit_code = 75

    def __init__(self, message: str, folder: Path):
        super().__init__(message)
        self.folder = folder

    def __reduce__(self):
        return type(self), (str(self), self.folder)  # so that another process can send it


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run or a search, raised after its checkpoint; `folder` is the folder to go on with."""

    def __init__(self, message: str, folder: Path):
        super().__init__(message)
        self.folder = folder


def stop_error(signal: str | None, message: str, folder: Path) -> Stopped | Interrupted:
    """The error of a run that was stopped by `signal`, or at its wall-clock limit where there was none."""
    kind = Interrupted if signal == "SIGINT" else Stopped
    return kind(f"{message}; go on with .run(resume={str(folder)!r})", folder)
