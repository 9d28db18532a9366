"""Processes of Python that begin with simjax imported, which takes half the time of a small run otherwise.

Each is forked from a server that has imported what a run does and has not begun to use jax. It is a process of its own
in all else: its environment, folder and output, the signals that it gets and the code with which it ends.
"""

import atexit
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
import traceback
from pathlib import Path

IMPORTED = (
    "simjax.application",
    "simjax.certificate.certify",
    "simjax.driver.simulation",
    "simjax.solvers",
    "dask.array",
    "diffrax",
    "h5netcdf.legacyapi",
    "matplotlib.pyplot",
    "orbax.checkpoint",
)
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([*IMPORTED])
# What jax reads of the environment when it is imported.
READ = {
    "JAX_PLATFORMS": str,
    "JAX_NUM_CPU_DEVICES": int,
    "JAX_COMPILATION_CACHE_DIR": str,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": float,
    "JAX_ENABLE_COMPILATION_CACHE": lambda text: text == "true",
}


class PreparedProcess:
    """`subprocess.Popen` of a command that begins with sys.executable: `-m MODULE`, `-c PROGRAM` or a file.

    command: as for Popen, the interpreter included. env: the whole environment. cwd: the folder to work in.
    `stdout` is the file to which it writes, errors included; what waits for its end in vain raises TimeoutError.
    """

    def __init__(self, command, env, cwd=None):
        self.stdout = tempfile.NamedTemporaryFile("r", encoding="utf-8")  # noqa: SIM115 - `end` or `communicate` does
        given = [*map(str, command[1:])], dict(env), str(cwd or os.getcwd()), self.stdout.name
        self._process = SERVER.Process(target=_carry_out, args=given)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        """Code of the process once it has ended."""
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutError(f"process {self.pid} has not ended in {timeout} s")
        return self.returncode

    def communicate(self, timeout=None):
        """What it printed, errors included, once it has ended; and None, in the place of errors."""
        self.wait(timeout)
        with self.stdout:
            return self.stdout.read(), None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self._process.kill()


def _carry_out(arguments, environment, folder, output):
    """Become the process of `python ARGUMENTS`, and end as it does."""
    assert sys.modules.keys() >= {*IMPORTED}, "the server of processes passes over what it cannot import"
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _read_again()
    code = _exit_code(arguments)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _read_again():
    import jax

    for name, kind in READ.items():
        if name in os.environ:
            jax.config.update(name.lower(), kind(os.environ[name]))


def _exit_code(arguments):
    first, *rest = arguments
    try:
        if first == "-m":
            sys.argv, sys.path = rest, [os.getcwd(), *sys.path]
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv, sys.path = ["-c", *rest[1:]], [os.getcwd(), *sys.path]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path = arguments, [str(Path(first).parent.resolve()), *sys.path]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
