"""A run compiles five programs, each of them once."""

import logging
from collections import Counter

import simjax as sj


def test_a_run_compiles_its_steps_once(caplog):
    """Also where the initial state depends on no argument, so that jax would have it on no device in particular."""
    caplog.set_level(logging.DEBUG, "jax._src.interpreters.pxla")
    sj.configure(
        "incompressible",
        physics={"viscosity": 0.01},
        grid={"shape": [16, 8]},
        time={"end": 0.02, "output_every": 0.01, "dt": 0.005},
        output={"animation": False},
    ).run()
    said = Counter(record.getMessage().split()[1] for record in caplog.records if record.msg.startswith("Compiling"))
    # The initial state; its longest step and whether it is finite; what is written; steps; copies for the host.
    assert said == dict.fromkeys(("jit(begin)", "jit(judge)", "jit(look)", "jit(forward)", "jit(copies)"), 1)
