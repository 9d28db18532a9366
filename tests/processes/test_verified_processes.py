"""A bit that flips on one of two processes is found, told and undone by both."""

import sys

import numpy as np
import pytest
from process_groups import free_port, outputs, start

import simjax as sj

FLIPPING = """
import sys
import jax
import numpy as np
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.run import main

advance, calls = CompiledInstruments.advance, []

def flipped(leaf):
    blocks = [block.data for block in leaf.addressable_shards]
    values = np.array(blocks[0])
    values.reshape(-1).view(f"u{values.itemsize}")[0] ^= 1
    blocks[0] = jax.device_put(values, blocks[0].sharding)
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, blocks)

class Flipping:
    def __init__(self, program):
        self._program = program

    def __call__(self, *given):
        state, *others = self._program(*given)
        calls.append(None)
        if len(calls) == 4 and sys.argv[-1].endswith("process: 1}"):
            state = jax.tree.map(lambda leaf: flipped(leaf) if leaf.ndim == 2 else leaf, state)
        return state, *others

    def __getattr__(self, name):
        return getattr(self._program, name)

CompiledInstruments.advance = lambda *given: Flipping(advance(*given))
raise SystemExit(main())
"""


@pytest.mark.slow
def test_a_bit_that_flips_on_one_of_two_processes_is_undone_by_both(tmp_path):
    """Each has two devices, on which it computes its blocks the other way round the second time."""
    script = tmp_path / "flipping.py"
    script.write_text(FLIPPING)
    flow = [
        "experiment=fluid",
        "grid.shape=[16,16]",
        "time={end: 0.2, output_every: 0.05, dt: 0.01}",
        "mesh={x: 2, y: 2}",
        "output.report=false",
        "output.animation=false",
        f"output.root={tmp_path}",
    ]
    told = outputs(
        start([sys.executable, str(script), *flow, "verify={every: 1}", "output.folder=struck"], 2, free_port())
    )
    assert any("computed twice, differ in" in text and "going back" in text for text in told)
    outputs(start([sys.executable, "-m", "simjax.run", *flow, "output.folder=plain"], 2, free_port()))
    struck, plain = (sj.open_run(tmp_path / name) for name in ("struck", "plain"))
    assert np.array_equal(struck.velocity_x, plain.velocity_x) and struck.sizes["time"] == 5
