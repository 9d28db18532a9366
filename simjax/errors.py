"""Errors that carry a sentence for the user and the exit code of the command line."""

import re
from pathlib import Path

# Lengths are bounded, and a scheme begins where a word does, so that a text of any length is looked through once.
_SCHEME = r"(?<![\w+.-])(?P<scheme>[A-Za-z][\w+.-]{0,30})://"
# Before the host: a user, or a user with a password, in which there may be any character but @. A port is digits.
_USER = re.compile(_SCHEME + r"(?P<user>[^\s/@:]{0,999}:(?!\d+(?:[/\s]|$))[^\s@]{0,999}|[^\s/@]{0,999})@")
_QUERY = re.compile(rf"({_SCHEME}[^\s?'\"<>]{{0,4095}})\?[^\s'\"<>()\[\],;]*[^\s'\"<>()\[\],;:.]")
# There the name before @ is that of a container.
_OF_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
HIDDEN = "***"
LOOKED_AT = 10_000


def without_credentials(text: str) -> str:
    """The text with the user, the password and the query of every URL in it replaced by `***`.

    Of a line the first `LOOKED_AT` characters are looked at: places in stores are shorter.
    """

    def hidden(found: re.Match) -> str:
        container = found["scheme"].lower() in _OF_CONTAINERS and ":" not in found["user"]
        return found[0] if container else f"{found['scheme']}://{HIDDEN}@"

    def of_line(line: str) -> str:
        begin, rest = line[:LOOKED_AT], line[LOOKED_AT:]
        begin = _USER.sub(hidden, begin) if "@" in begin else begin
        return (_QUERY.sub(rf"\1?{HIDDEN}", begin) if "?" in begin else begin) + rest

    if "://" not in text:
        return text
    return "\n".join(map(of_line, text.split("\n")))


class SimjaxError(Exception):
    """Base of all errors simjax raises on purpose; `exit_code` is what `python -m simjax.run` returns.

    Examples:
        >>> issubclass(sj.ConfigurationError, sj.SimjaxError), sj.NumericalError.exit_code
        (True, 3)
    """

    exit_code = 1

    def __init__(self, message: str = ""):
        super().__init__(without_credentials(message))


class ConfigurationError(SimjaxError, ValueError):
    """A configuration or an argument is not usable; the message says what to write instead.

    Examples:
        >>> try:
        ...     sj.load("fluid", ["physics.viscosty=1"])
        ... except sj.ConfigurationError as error:
        ...     print(error)
        physics.viscosty: unknown key; did you mean 'physics.viscosity'?
    """

    exit_code = 2


class NumericalError(SimjaxError, ArithmeticError):
    """The simulation left the range of finite numbers or of its scheme's stability.

    Examples:
        >>> line = sj.AdvectionDiffusion(sj.Domain(sj.Grid((32,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
        >>> params, start = line.Params(jnp.asarray(1.0), jnp.ones(1)), line.State(jnp.arange(32.0))
        >>> try:
        ...     sj.integrate(line, sj.INTEGRATORS["euler"], params, start, dt=1.0, steps=500)
        ... except sj.NumericalError as error:
        ...     print(error.exit_code)
        3
    """

    exit_code = 3


class InputOutputError(SimjaxError, OSError):
    """A file or folder could not be read or written.

    Examples:
        >>> try:
        ...     sj.open_run("outputs/nowhere")
        ... except sj.InputOutputError as error:
        ...     print(error.exit_code)
        4
    """

    exit_code = 4


class ResourceError(SimjaxError, RuntimeError):
    """Not enough memory or devices.

    Examples:
        >>> try:
        ...     sj.load("fluid", ["mesh.x=64", "grid.shape=[64,64]"]).run()
        ... except sj.ResourceError as error:
        ...     print(error.exit_code)
        5
    """

    exit_code = 5


class CheckpointError(SimjaxError, RuntimeError):
    """No checkpoint can be read, or the checkpoint belongs to another simulation.

    Examples:
        >>> import shutil
        >>> tube = sj.load("sod", ["grid.shape=[32]", "output.report=false", "output.animation=false"])
        >>> folder = tube.run().folder
        >>> shutil.rmtree(folder / "checkpoints")
        >>> try:
        ...     tube.run(resume=folder)
        ... except sj.CheckpointError as error:
        ...     print(error.exit_code)
        6
    """

    exit_code = 6


class Stopped(SimjaxError, RuntimeError):
    """A run or a search ended before its time, by a signal or at its wall-clock limit; `folder` holds a checkpoint.

    Examples:
        >>> from pathlib import Path
        >>> sj.Stopped("stopped by SIGTERM", Path("outputs/fluid/RUN")).folder.name  # what run(resume=...) takes
        'RUN'
    """

    exit_code = 75

    def __init__(self, message: str, folder: Path):
        super().__init__(message)
        self.folder = folder

    def __reduce__(self):
        return type(self), (str(self), self.folder)  # so that another process can send it


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run or a search, raised after its checkpoint; `folder` is the folder to go on with.

    Examples:
        >>> issubclass(sj.Interrupted, KeyboardInterrupt)
        True
    """

    def __init__(self, message: str, folder: Path):
        super().__init__(message)
        self.folder = folder


def stop_error(signal: str | None, message: str, folder: Path, call: str = ".run(resume={})") -> Stopped | Interrupted:
    """The error of a run that was stopped by `signal`, or at its wall-clock limit where there was none.

    call: what goes on with it, with braces in the place of the folder.
    """
    kind = Interrupted if signal == "SIGINT" else Stopped
    return kind(f"{message}; go on with {call.format(repr(str(folder)))}", folder)
