"""Starts of a gas that mean nothing: refused with the place, before the steps are compiled or a file is written."""

import jax.numpy as jnp
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

SMALL = ("grid.shape=[32]", "output.report=false", "output.animation=false")


@pytest.mark.parametrize(
    "override, sentence",
    [
        (
            "initial.density='1-2*x'",
            r"density <= 0 at index \(16,\), in the cell at x=0.5156 \(16 such cells\)",
        ),
        ("initial.density='where(x > 0.97, 0, 1)'", r"density <= 0 at index \(31,\).*\(1 such cell\)"),
        (
            "initial.pressure='x-0.3'",
            r"pressure <= 0 at index \(0,\), in the cell at x=0.01562 \(10 such",
        ),
    ],
)
def test_a_start_without_density_or_pressure_is_refused_with_the_place(tmp_path, override, sentence):
    with pytest.raises(ConfigurationError, match=f"^initial.{sentence}") as error:
        sj.load("sod", [*SMALL, override, f"output.root={tmp_path / 'root'}"]).run()
    assert error.value.exit_code == 2 and not (tmp_path / "root").exists()


def test_a_floor_makes_a_start_of_it(tmp_path):
    overrides = ("initial.density='1-2*x'", "physics.density_floor=0.1", "time.end=0", f"output.root={tmp_path}")
    result = sj.load("sod", [*SMALL, *overrides]).run()
    assert float(result.ds.density.min()) == pytest.approx(0.1)


def test_states_that_mean_nothing_are_found_in_every_cell():
    line = sj.Compressible(sj.Domain(sj.Grid((4,))), [(sj.PeriodicSide(), sj.PeriodicSide())])
    params = line.Params(jnp.asarray(1.4))
    state = line.State(jnp.asarray([1.0, 0.0, -1.0, 1.0]), (jnp.zeros(4),), jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    found = line.unphysical(state, params)
    assert found["density <= 0"].tolist() == [False, True, True, False]
    assert found["pressure <= 0"].tolist() == [False, True, False, True]
