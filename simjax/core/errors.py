"""Errors that carry a sentence for the user and the exit code of the command line."""


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
