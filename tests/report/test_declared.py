"""What a model declares of its variables and numbers reaches the picture, the progress line and the report's checks."""

import json
from dataclasses import replace

import numpy as np
import pytest

import simjax as sj
from simjax.driver.loop.displayed_numbers import DisplayedNumbers
from simjax.errors import ConfigurationError
from simjax.models.measures import measure_of, of_particles
from simjax.report import colours, curves
from simjax.report.scalars import Scalar, scalars

OF_VORTICITY = {"palette": "diverging", "rank": 0, "singular": True}
GAIN = 0.5  # of the amount in a unit of time, where it is not conserved


class Swirl(sj.CenteredModel):
    """A field that grows at a rate, with a swirl made of it that is declared as a vorticity is."""

    fields, parameters = ("u",), {"gain": 0.0}

    def rhs(self, t, state, params):
        return {"u": params["gain"] * state["u"]}

    def stable_dt(self, state, params):
        return 1 / (1 + params["gain"])

    def outputs(self):
        (u,) = super().outputs()
        return (u, replace(u, name="swirl", **OF_VORTICITY))

    def observe(self, t, state, params):
        return {"u": state["u"], "swirl": state["u"] - 0.9}

    def diagnostics(self, t, state, params):
        amount = self.domain.mean(state["u"])
        return {"amount": amount, "loss": -amount, "alone": amount}

    def measures(self):
        kept = sj.Measure("1", "amount", shown="all", check=sj.Conserved(measured_by=("loss",)))
        return {"alone": sj.Measure(), "amount": kept, "loss": sj.Measure(check=sj.Falling())}


def ran(tmp_path, gain, **output):
    given = {"folder": "run", "root": str(tmp_path), "animation": False, **output}
    time = {"end": 1.0, "output_every": 0.5, "dt": 0.25}
    grid, initial, physics = {"shape": [24, 24]}, {"u": "1 + 0.05*cos(2*pi*x)"}, {"gain": gain}
    return sj.configure(Swirl, grid=grid, physics=physics, initial=initial, time=time, output=given).run()


@pytest.mark.slow
def test_a_vorticity_of_ones_own_is_drawn_as_that_of_simjax(tmp_path):
    dataset = ran(tmp_path, 0.0, report=False).ds
    found = scalars(dataset)
    assert [one.name for one in found] == ["swirl", "u"]  # in the file u stands first
    swirl, u = found
    flow = sj.load("taylor_green", ["grid.shape=[8,8]", "time.end=0.1", "time.output_every=0.1", "output.report=false"])
    like = {one.name: one for one in scalars(flow.run().ds)}["vorticity"]
    assert (swirl.palette, swirl.rank, swirl.singular) == (like.palette, like.rank, like.singular)
    samples = [np.array([-0.1, 0.9])]  # of a field that is not declared the sign is an accident
    assert [colours.colour_scale(one, samples).palette for one in (swirl, like, u)] == ["balance", "balance", "thermal"]
    corner = np.ones((24, 24))
    corner[0, 0] = 500.0
    assert [colours.interior(one, corner).max() for one in (swirl, like, u)] == [colours.SINGULAR] * 2 + [500.0]


def scalar(values, **attributes):
    """A scalar, or with `vector` a lone component, of which a model declares these attributes."""
    import xarray as xr

    dataset = xr.Dataset({"s": (("time", "y", "x"), np.asarray(values, "f4")[None], attributes)})
    return Scalar(dataset, "s", ("s",), "S", "1")


@pytest.mark.parametrize(
    ("values", "attributes", "palette", "ends"),
    [
        ([[-1.0, 2.0]], {}, "balance", (-2.0, 2.0)),
        ([[-1.0, 2.0]], {"palette": "ice"}, "ice", (-1.0, 2.0)),  # a palette that is declared is that of all values
        ([[-0.1, 2.0]], {"palette": "diverging"}, "balance", (-2.0, 2.0)),
        ([[-0.1, 2.0]], {}, "thermal", (-0.1, 2.0)),
        ([[0.0, 2.0]], {"palette": "diverging"}, "thermal", (0.0, 2.0)),
        ([[0.1, 2.0]], {"palette": "haline"}, "haline", (0.0, 2.0)),
        ([[0.1, 2.0]], {"palette": "haline", "vector": "v"}, "thermal", (0.0, 2.0)),  # it is that of the magnitude
    ],
)
def test_a_palette_that_is_declared_is_that_of_the_picture(values, attributes, palette, ends):
    one = scalar(values, **attributes)
    scale = colours.colour_scale(one, [one.values(0)])
    assert scale.palette == palette
    np.testing.assert_allclose((scale.lower, scale.upper), ends, rtol=1e-6)


def test_a_component_alone_comes_after_what_is_declared():
    assert [scalar([[0.0]], **of).rank for of in ({}, {"rank": -4}, {"rank": 5})] == [1, -4, 5]
    assert [scalar([[0.0]], vector="v", **of).rank for of in ({}, {"rank": 2}, {"rank": 5})] == [3, 3, 5]


def test_every_palette_has_its_colours():
    from simjax.core.model import PALETTES

    for palette in PALETTES[1:]:
        assert colours.palette_table(palette).shape == (256, 3)
    with pytest.raises(ConfigurationError, match=r"'swirl' has the palette 'rainbow'; expected one of diverging, "):
        sj.Output("swirl", (0.5,), palette="rainbow")


@pytest.mark.parametrize("gain", [pytest.param(0.0, marks=pytest.mark.slow), GAIN])
def test_a_check_that_is_declared_is_made(tmp_path, gain):
    """Of an amount that grows by half each unit of time; its loss, the negative of it, falls."""
    result = ran(tmp_path, gain)
    report = (result.folder / "report.html").read_text(encoding="utf-8")
    assert "Amount is conserved" in report and "Loss never rises" in report
    assert ("1 check failed (Amount is conserved)" in report) == (gain > 0)
    # The number with a label comes first, and alone has a rank.
    assert curves.diagnostics(result.ds)[0] == "amount" and curves.shown_first(result.ds) == ["amount"]
    assert json.loads((result.folder / "metrics.jsonl").read_text().splitlines()[0]).keys() >= {"amount", "alone"}


def test_a_check_by_a_number_that_is_not_there_is_refused_before_anything_runs():
    class Lost(Swirl):
        def measures(self):
            return {"amount": sj.Measure(check=sj.Conserved(measured_by=("nothing",)))}

    settings = {"grid": {"shape": [8]}, "initial": {"u": "1"}, "time": {"end": 1.0, "output_every": 1.0, "dt": 0.5}}
    with pytest.raises(ConfigurationError, match=r"Lost\.measures: the check of amount is measured by nothing; "):
        sj.configure(Lost, **settings).run()


# ---------------------------------------------------------------------- progress


def test_the_display_has_what_is_labelled_or_everything_in_the_order_of_the_measures():
    numbers = {"a": 1.0, "b_x": 2.0, "c": 3.0, "c_rounding": 0.1, "courant": 0.5}
    plain = {"c": sj.Measure(), "a": sj.Measure()}
    assert [*DisplayedNumbers(plain)(numbers)][:3] == ["c", "c_rounding", "a"]
    labelled = {"c": sj.Measure(), "b": sj.Measure(shown="of b"), "a": sj.Measure(shown="of a")}
    assert DisplayedNumbers(labelled)(numbers) == {"of b x": 2.0, "of a": 1.0, "courant": 0.5}


def test_what_may_only_drift_is_displayed_as_its_drift_since_the_first_time():
    shown = {"temperature": "temperature", "energy": "energy"}
    displayed = DisplayedNumbers(of_particles(shown, ("energy",)))
    assert displayed({"energy": 5.0, "kinetic_energy": 2.0, "temperature": 1.0}) == {
        "temperature": 1.0,
        "energy drift": 0.0,
    }
    assert displayed({"energy": 6.0, "kinetic_energy": 4.0})["energy drift"] == 0.25
    free = DisplayedNumbers(of_particles(shown, ()))  # energy that a thermostat gives is no drift
    assert free({"energy": 5.0, "kinetic_energy": 2.0}) == {"energy": 5.0}


def test_a_component_has_the_check_of_its_vector():
    vector = {"centre": sj.Measure("m", shown="at", check=sj.Conserved())}
    one = measure_of(vector, "centre_x")
    assert one is not None and (one.check, one.shown, one.long_name) == (sj.Conserved(), "at x", "centre, x")
    momenta = of_particles({}, ("momentum",))
    assert momenta["momentum_x"].check and not momenta["angular_momentum_x"].check and not momenta["energy"].check
