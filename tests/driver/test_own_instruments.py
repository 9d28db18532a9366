"""An instrument of a user's own has what those of simjax have: keys, files, members, devices, statistics and fits."""

import dataclasses
import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import changed
from inverse_problems import searched

import simjax as sj
from simjax.config import validate
from simjax.errors import ConfigurationError

MODULE = """
import dataclasses
import equinox as eqx
import simjax as sj


class PowerMean(sj.FieldInstrument):
    @dataclasses.dataclass(frozen=True)
    class Keys:
        power: int = sj.key(sj.Integer(1, 9), 2)

    power: int = eqx.field(static=True)

    def measure(self, domain, field, offset, periodic):
        return domain.mean(field**self.power)
"""
WAVE = {
    "model": "acoustic",
    "grid": {"shape": [16, 16]},
    "initial": {"pressure": "height*exp(-20*((x - 0.5)**2 + (y - 0.4)**2))"},
    "parameters": {"height": 0.5},
    "time": {"end": 0.08, "output_every": 0.04, "dt": 0.01},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


@sj.instrument("power_means")
class PowerMeans(sj.FieldInstrument):
    """Means of some powers of a field: (powers,)."""

    @dataclasses.dataclass(frozen=True)
    class Keys:
        """Which powers, and of which point the field is taken off first."""

        powers: tuple[int, ...] = sj.key(sj.ListOf(sj.Integer(1, 9), 1, 9))
        centre: tuple[float, ...] | None = sj.key(sj.Point(), None)

    powers: tuple[int, ...] = eqx.field(static=True)
    centre: tuple[float, ...] | None = eqx.field(static=True, default=None)

    def measure(self, domain, field, offset, periodic):
        return jnp.stack([domain.mean(field**power) for power in self.powers])

    def shape(self, grid):
        return (len(self.powers),)

    def layout(self, source, output, grid, units):
        along = sj.Coordinate("power", ("power",), np.asarray(self.powers), {"units": "1"})
        return sj.Layout(("power",), (along,))

    @classmethod
    def described(cls, variable):
        return dataclasses.replace(variable, units="mixed", long_name=f"means of powers of {variable.long_name}")


def run(folder, changes):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(WAVE, {**place, **changes}))).run()
    return folder


def refused(outputs, **options):
    with pytest.raises(ConfigurationError) as told:
        validate(changed(WAVE, {"outputs": outputs}), **options)
    return str(told.value)


def test_keys_of_an_own_instrument_are_read_and_refused(tmp_path):
    (tmp_path / "my_means.py").write_text(MODULE)
    named = [{"my_means.PowerMean": {}, "of": "pressure"}, {"my_means.PowerMean": {"power": 3}, "of": "velocity"}]
    first, last = validate(changed(WAVE, {"outputs": named}), folders=[tmp_path]).outputs
    assert first.given == {"power": 2} and last.given == {"power": 3} and last.name == "my_means.PowerMean_2"
    assert list(last.readings({"velocity": ("velocity_x", "velocity_y")})) == ["velocity_x", "velocity_y"]
    told = refused([{"my_means.PowerMaen": {}, "of": "pressure"}], folders=[tmp_path])
    assert "did you mean my_means.PowerMean" in told
    assert "outputs[0].power_means.powers is missing: expected a list of 1 to 9 values" in refused(
        [{"power_means": {}, "of": "pressure"}]
    )
    outside = refused([{"power_means": {"powers": [1], "centre": [0.5, 2]}, "of": "pressure"}])
    assert "outputs[0].power_means.centre = [0.5, 2.0]: expected a point in the grid's box" in outside
    assert "outputs[0].power_means.pwoers: unknown key; did you mean 'outputs[0].power_means.powers'?" in refused(
        [{"power_means": {"pwoers": [1]}, "of": "pressure"}]
    )


@pytest.mark.slow
def test_an_own_instrument_sees_the_same_on_devices_in_members_and_in_statistics(tmp_path):
    looking = {
        "outputs": [
            {"power_means": {"powers": [1, 2, 3]}, "of": "pressure", "every": "step"},
            {"diagnostic": "energy", "every": "step"},
        ],
        "statistics": [{"of": "power_means", "kinds": ["mean"], "name": "averaged"}],
    }
    one = run(tmp_path / "one", {**looking, "time.output_every": 0.01})
    with sj.open_run(one) as frames, sj.open_output(one, "power_means") as seen:
        powers = np.stack([(frames.pressure.values**n).mean((1, 2)) for n in (1, 2, 3)], axis=1)
        # A few roundings of a sum of numbers of order one.
        np.testing.assert_allclose(seen.pressure.sel(power=[1, 2, 3]), powers, rtol=0, atol=1e-14)
        alone = seen.load()
        assert (
            alone.pressure.attrs["units"] == "mixed"
            and "powers of acoustic pressure" in alone.pressure.attrs["long_name"]
        )
    with sj.open_output(one, "averaged") as averaged:
        np.testing.assert_allclose(averaged.pressure_mean[0], powers[1:].mean(0), rtol=0, atol=1e-13)
    with sj.open_output(one, "diagnostic") as numbers:
        lines = (one / "metrics.jsonl").read_text().splitlines()
        written = [json.loads(line)["energy"] for line in lines]
        np.testing.assert_allclose(numbers.energy, written, rtol=1e-14)  # rounded apart
    cut = run(tmp_path / "cut", {**looking, "mesh": {"x": 2, "y": 4}})
    vary = {"size": 2, "vary": {"parameters.height": {"values": [0.5, 0.7]}}}
    members = run(tmp_path / "members", {**looking, "ensemble": vary})
    with sj.open_output(cut, "power_means") as decomposed, sj.open_output(members, "power_means") as both:
        np.testing.assert_allclose(decomposed.pressure, alone.pressure, rtol=0, atol=1e-14)
        np.testing.assert_allclose(both.pressure[0], alone.pressure, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_an_own_instrument_is_fitted(tmp_path):
    """The mean of the square at the frames tells the height of the pulse, by a gradient through the instrument."""
    looking = [{"power_means": {"powers": [2]}, "of": "pressure"}]
    inverse = {
        "unknowns": {"parameters.height": {"guess": 0.4}},
        "observations": [{"output": "power_means", "deviation": 1e-4}],
        "solver": {"iterations": 20},
    }
    given = {"outputs": looking, "inverse": inverse, "output": {"root": str(tmp_path)}}
    low, high = searched(validate(changed(WAVE, given))).answer.intervals["parameters.height"]
    # Twice the 95 % interval: four standard deviations, which are a hundredth of the height at most.
    assert abs((low + high) / 2 - 0.5) < high - low < 0.02
