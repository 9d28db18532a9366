"""A run compiles each of its programs once."""

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
        output={"report": False, "animation": False},
    ).run()
    said = Counter(record.getMessage().split()[1] for record in caplog.records if record.msg.startswith("Compiling"))
    # The initial state; the first of what is looked at is whether that is finite.
    assert (said["jit(begin)"], said["jit(forward)"], said["jit(look)"]) == (1, 1, 2)
