"""Troubles of a run: counted and placed at output times, written, told at the end and where a run stops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.driver.programs.programs_of_run import compiled_run
from simjax.driver.start.build import plan_frames
from simjax.errors import ConfigurationError, NumericalError
from simjax.report import curves


@sj.trouble("size of u", units="m-2", having="|u| beyond 2", above=2.0)
def large(model, t, state, params):
    """The size of u. It ends a run where it is too large."""
    return jnp.abs(state["u"])


@sj.trouble("value of u", units="m-2", lowest=True)
def low(model, t, state, params):
    """The value of u."""
    return state["u"]


@sj.trouble("age", units="s")
def age(model, t, state, params):
    """The time."""
    return jnp.broadcast_to(t, model.domain.block_shape).astype(state["u"].dtype)


@sj.trouble("mean of u", check=lambda config: None if config.physics.growth else "physics.growth above zero")
def flat(model, t, state, params):
    """No field."""
    return model.domain.mean(state["u"])


@sj.model("growing", sides=("scalar.neumann",))
class Growing(sj.CenteredModel):
    """du/dt = r u^2 + s: it becomes infinite at the time 1 / (r u)."""

    fields = ("u",)
    units = "m-2"
    troubles = (large, low, age)

    @dataclasses.dataclass(frozen=True)
    class Keys:
        growth: float = sj.key(sj.Real(low=0.0), 1.0, units="m2 s-1", about="growth r")
        source: float = sj.key(sj.Real(), 0.0, units="m-2 s-1", about="source s")

    def rhs(self, t, state, params):
        return {"u": params["growth"] * state["u"] ** 2 + params["source"]}

    def stable_dt(self, state, params):
        return jnp.asarray(1.0, state["u"].dtype)


class Wrong(Growing):
    """The same, with a trouble that is no field."""

    troubles = (flat, low)


# Of 4 x 8 cells one is 2.25, which grows beyond all bounds after 1 / 2.25; the least is -1.
PEAK = (
    "where(maximum(abs(x-0.625)/0.1, abs(y-0.3125)/0.05) < 1, 2.25, where(maximum(x/0.25, (1-y)/0.125) < 1, -1, 0.5))"
)
CASE = {
    "grid": {"shape": [4, 8]},
    "initial": {"u": PEAK},
    "time": {"end": 0.3, "output_every": 0.1, "dt": 0.01},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


def growing(folder, of=Growing, **changes):
    place = {"output.root": str(folder), "output.folder": str(folder / "run")}
    return sj.configure(of, **changed(CASE, place | {key.replace("__", "."): v for key, v in changes.items()}))


def log_of(folder):
    return (folder / "run.log").read_text()


# ---------------------------------------------------------------------- numbers, fields and sentences


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_numbers_have_the_count_the_worst_and_its_place(tmp_path, precision):
    asked = {"output__troubles": ["large", "low", "age"], "output__fields": ["u", "large", "age"]}
    ds = growing(tmp_path, precision=precision, **asked).run().ds.load()
    peak = 2.25 / (1 - 2.25 * ds.time.values)
    np.testing.assert_allclose(ds.large_worst, peak, rtol=1e-4)  # the error of the steps
    np.testing.assert_array_equal(ds.large_cells, 1.0)
    np.testing.assert_array_equal(np.stack([ds.large_x, ds.large_y]), [[0.625] * 4, [0.3125] * 4])
    np.testing.assert_array_equal(np.stack([ds.low_x, ds.low_y]), [[0.125] * 4, [0.9375] * 4])
    assert ds.low_worst[0] == -1 and "low_cells" not in ds
    # Zero everywhere at the start is nowhere; then the first of equal ones counts.
    np.testing.assert_array_equal(ds.age_x, [np.nan, 0.125, 0.125, 0.125])
    np.testing.assert_array_equal(ds.age_y, [np.nan, 0.0625, 0.0625, 0.0625])
    np.testing.assert_array_equal(ds.large, np.abs(ds.u))
    assert ds.large.attrs["units"] == "m-2" and ds.large.attrs["long_name"] == "size of u"
    assert ds.large_cells.attrs["long_name"] == "cells with |u| beyond 2"
    assert (ds.low_worst.attrs["long_name"], ds.low_y.attrs["units"]) == ("lowest value of u", "m")
    drawn = [name for name in curves.diagnostics(ds) if name != "courant"]  # the model's own numbers first
    assert len(drawn) > 10 and [name for name in drawn if "trouble" in ds[name].attrs] == drawn[-10:]


def test_a_cell_at_the_threshold_does_not_count(tmp_path):
    """Of the values 2 and 3 one is larger than 2."""
    found = growing(
        tmp_path, initial__u="where(x<0.25, 2, where(x>0.75, 3, 0))", physics__growth=0.0, output__troubles=["large"]
    ).run()
    np.testing.assert_array_equal(found.ds.large_cells, 8.0)
    assert "8 cells with |u| beyond 2 (largest size of u 3 m-2 at x=0.875, y=0.0625) at most, at t=0." in log_of(
        found.folder
    )


def test_a_run_tells_when_a_trouble_was_worst(tmp_path):
    asked = {"output__troubles": ["large", "low", "age"], "physics__source": -5.0}
    result = growing(tmp_path, **asked).run()
    ds, log = result.ds.load(), log_of(result.folder)
    least = int(np.argmin(ds.low_worst.values))
    assert least == 3
    assert f"Lowest value of u {float(ds.low_worst[3]):.4g} m-2 at x=0.125, y=0.9375, at t=0.3." in log
    assert "Largest age 0.3 s at x=0.125, y=0.0625, at t=0.3." in log
    none = growing(tmp_path / "none", initial__u="1", physics__growth=0.0, output__troubles=["large"]).run()
    assert "No cell with |u| beyond 2 at any output time." in log_of(none.folder)


@pytest.mark.slow
def test_a_report_has_the_sentences(tmp_path):
    result = growing(tmp_path, output__troubles=["large"], output__report=True).run()
    assert "1 cell with |u| beyond 2 (largest size of u" in (result.folder / "report.html").read_text()


@pytest.mark.parametrize("mesh", [{"x": 2, "y": 2}, {"y": 8}])
@pytest.mark.slow
def test_places_are_those_of_the_whole_grid(tmp_path, mesh):
    """Also of equal cells in several blocks, of which the first along x, then y counts."""
    asked = {
        "initial__u": "where(maximum(abs(x-0.5)/0.25, abs(y-0.5)/0.2) < 1, 2.5, 0.1)",
        "output__troubles": ["large", "low", "age"],
        "output__fields": ["large"],
    }
    one, many = (
        growing(tmp_path / name, **asked, **more).run().ds.load()
        for name, more in (("one", {}), ("many", {f"mesh__{axis}": n for axis, n in mesh.items()}))
    )
    assert (one.large_x[0], one.large_y[0], one.large_cells[0]) == (0.375, 0.3125, 8)
    for name in one.data_vars:
        if name.startswith(("large", "low", "age")):
            np.testing.assert_array_equal(many[name], one[name], err_msg=name)


@pytest.mark.slow
def test_each_member_has_its_own(tmp_path):
    varied = {
        "initial__u": "where(x>0.75, a, 0.1)",
        "parameters__a": 1.0,
        "ensemble__size": 3,
        "ensemble__vary": {"parameters.a": {"values": [1.0, 2.5, 1.5]}},
        "output__troubles": ["large"],
    }
    result = growing(tmp_path, **varied).run()
    ds = result.ds.load()
    np.testing.assert_array_equal(ds.large_cells[:, 0], [0, 8, 0])
    np.testing.assert_array_equal(ds.large_x[:, 0], [0.875] * 3)
    assert "at most, at t=0, member 1 (parameters.a=2.5)." in log_of(result.folder)
    groups = growing(tmp_path / "groups", **varied, ensemble__batch=2, output__report=True).run()
    np.testing.assert_array_equal(groups.ds.large_worst, ds.large_worst)
    assert "at most, at t=0, member 1 (parameters.a=2.5)." in (groups.folder / "report.html").read_text()


def test_conditions_and_instruments_take_troubles(tmp_path):
    looked = {
        "outputs": [{"probe": {"points": [[0.625, 0.3125]]}, "of": ["large"], "every": "step"}],
        "stop": {"when": "large_worst > 3", "every": "step"},
        "output__troubles": ["large"],
    }
    result = growing(tmp_path, **looked).run()
    probe = sj.open_output(result.folder, "probe")
    # 2.25 / (1 - 2.25 t) is 3 at t = 1/9.
    assert float(result.ds.time[-1]) == pytest.approx(0.12) and "large_worst = 3.0" in result.message
    # The same state seen by two programs, which may round in other ways.
    np.testing.assert_allclose(probe.large[0, -1], result.ds.large_worst[-1], rtol=1e-14)


def test_a_run_that_goes_on_tells_of_all_its_parts(tmp_path):
    asked = {"initial__u": "where(x>0.75, 3, 0)", "output__troubles": ["large"], "physics__growth": 0.0}
    asked["physics__source"] = -1.0
    first = growing(tmp_path, **asked).run()
    again = growing(tmp_path, **asked, time__end=0.5).run(resume=first.folder)
    told = [line for line in log_of(again.folder).splitlines() if "beyond 2" in line]
    assert len(told) == 2 and all(line.endswith("at most, at t=0.") for line in told)
    with pytest.raises(ConfigurationError, match=r"output\.troubles was \['large'\] and is None now"):
        growing(tmp_path, **{**asked, "output__troubles": None}, time__end=0.6).run(resume=first.folder)


# ---------------------------------------------------------------------- a run that stops


def stopped(folder, **changes):
    with pytest.raises(NumericalError) as error:
        growing(folder, **{"time__end": 2.0, **changes}).run()
    said = str(error.value)
    assert said in log_of(folder / "run")
    return said, said.partition("Before the fault, at step ")[2]


@pytest.mark.parametrize("mesh", [{}, {"mesh__x": 2, "mesh__y": 4}], ids=["one", "cut"])
def test_a_run_that_stops_names_the_troubles_before_it(tmp_path, mesh):
    """Those of the state before the step in which it failed, not of the last one that was kept."""
    said, before = stopped(tmp_path, **mesh)
    assert "u is not finite at index (2, 2), step " in said
    failed = int(said.partition("index (2, 2), step ")[2].partition(",")[0])
    step, _, rest = before.partition(", t=")
    assert int(step) == failed - 1
    time, _, told = rest.partition(": ")
    assert 1 / 2.25 < float(time) < 0.6  # Runge-Kutta steps pass the time at which the solution ends
    assert told.startswith("1 cell with |u| beyond 2 (largest size of u ")
    assert "e+" in told and "at x=0.625, y=0.3125); lowest value of u -0.6" in told
    assert "at x=0.125, y=0.9375; largest age 0.4" in told or "at x=0.125, y=0.9375; largest age 0.5" in told


def test_what_a_member_stopped_with_is_told(tmp_path):
    """All members fail: the first of those that have values which are not finite is named."""
    said, before = stopped(
        tmp_path,
        initial__u="where(x>0.75, a, 0.1)",
        parameters__a=1.0,
        ensemble__size=2,
        ensemble__vary={"parameters.a": {"values": [3.0, 5.0]}},
        time__dt=0.05,
    )
    assert "of member " in before and "(parameters.a=" in before and "x=0.875" in before, said


def test_a_trouble_that_is_wrong_does_not_hide_a_fault(tmp_path):
    said, before = stopped(tmp_path, of=Wrong)
    assert "u is not finite at index (2, 2)" in said
    assert "what troubled cells could not be found (Wrong.troubles: flat has the shape (); expected (4, 8)" in before


def test_a_model_without_troubles_stops_as_before(tmp_path):
    class Silent(Growing):
        """The same without troubles."""

        troubles = ()

    said, before = stopped(tmp_path, of=Silent)
    assert "u is not finite at index (2, 2)" in said and not before


GAS = {
    "grid": {"shape": [24, 8]},
    "boundaries": {"x": "outflow", "y": "slip"},
    "initial": {"density": "1", "velocity": ["where(x<0.5, -20, 20)", "0"], "pressure": "where(y<0.75, 0.4, 0.2)"},
    "physics": {"reconstruction": "mc", "variables": "primitive", "flux": "hll"},
    "time": {"end": 0.02, "output_every": 0.01, "courant": 0.95, "integrator": "rk4"},
    "precision": "float64",
    "output": {"report": False, "animation": False},
}


@pytest.mark.slow
def test_a_gas_that_stops_says_where_it_was_in_trouble(tmp_path):
    """A gas torn apart by a scheme that does not keep it positive: in the middle, on one device as on four."""
    torn, told = {"physics": {"reconstruction": "weno5"}, "initial.density": "1 + 0.01*y + 0.01*x"}, []
    for name, mesh in (("one", {}), ("cut", {"x": 2, "y": 2})):
        with pytest.raises(NumericalError) as error:
            changes = torn | {"output.root": str(tmp_path / name), "mesh": mesh}
            sj.configure(sj.Compressible, **changed(GAS, changes)).run()
        told.append(str(error.value).partition("Before the fault, ")[2])
    assert told[0] == told[1] and "cells with a limited flux (largest share" in told[0]
    assert "cells with a sonic point (largest change of velocity" in told[0] and "lowest pressure" in told[0]
    place = float(told[0].partition("lowest density")[2].partition("x=")[2].partition(",")[0])
    assert abs(place - 0.5) <= 1 / 24  # beside the middle


FLOWS = {
    "incompressible": {"physics": {"viscosity": 0.01}, "initial": {}},
    "passive_scalar": {"physics": {"viscosity": 0.01, "diffusivity": 0.01}, "initial": {"concentration": "x"}},
    "boussinesq": {
        "physics": {"viscosity": 0.01, "diffusivity": 0.01, "gravity": [0.0, -1.0]},
        "initial": {"temperature": "cos(2*pi*x)"},
    },
}


@pytest.mark.parametrize("model", FLOWS)
def test_a_flow_says_where_its_divergence_is_largest(tmp_path, model):
    """Also a flow that carries something: the worst is the diagnostic's, at the cell where the field has it."""
    physics, more = FLOWS[model].values()
    ds = (
        sj.configure(
            model,
            grid={"shape": [8, 16]},
            boundaries={"y": "no_slip"},
            physics=physics,
            initial={"velocity": ["sin(2*pi*x)*sin(pi*y)", "sin(2*pi*x)*sin(pi*y)"], **more},
            time={"end": 0.02, "output_every": 0.01, "dt": 0.01},
            precision="float64",
            output={
                "root": str(tmp_path),
                "report": False,
                "animation": False,
                "troubles": ["divergence"],
                "fields": ["divergence"],
            },
        )
        .run()
        .ds.load()
    )
    np.testing.assert_array_equal(ds.divergence_worst, ds.max_divergence)
    assert (ds.divergence_worst > 0).all()
    for at in range(ds.sizes["time"]):
        there = ds.isel(time=at).sel(x=ds.divergence_x[at].item(), y=ds.divergence_y[at].item(), method="nearest")
        assert float(there.divergence) == float(ds.divergence_worst[at])


# ---------------------------------------------------------------------- what is refused, and what nobody pays for


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output.troubles": ["limitd"]}, "output.troubles[0] = 'limitd': expected one of limited, at_floor, sonic"),
        (
            {"output.troubles": ["at_floor"]},
            "output.troubles[0] = 'at_floor': expected a gas with physics.density_floor",
        ),
        ({"output.fields": ["at_floor"]}, "output.fields[0] = 'at_floor': expected a gas with physics.density_floor"),
        ({"output.troubles": ["sonic", "wall_flux"]}, "output.troubles[1] = 'wall_flux': expected a gas with physics."),
        (
            {"output.troubles": ["wall_flux"], "physics.viscosity": 1.0, "boundaries": {"x": "outflow"}},
            "output.troubles[0] = 'wall_flux': expected a gas with walls (slip or no_slip)",
        ),
        (
            {"output.troubles": ["wall_stress"], "boundaries": {"x": "outflow"}},
            "output.troubles[0] = 'wall_stress': expected a gas with walls (slip or no_slip)",
        ),
        ({"output.fields": ["low_pressure"]}, "output.fields[0] = 'low_pressure': expected one of"),
        (
            {
                "model": "advection_diffusion",
                "output.troubles": ["limited"],
                "physics": {"diffusivity": 0.1, "velocity": [1.0, 0.0]},
                "initial": {"concentration": "x"},
                "boundaries": {},
                "time": {"end": 0.1, "output_every": 0.1},
            },
            "output.troubles: model=advection_diffusion names none; leave it out",
        ),
    ],
)
def test_troubles_that_cannot_be_are_refused(changes, said):
    assert said in refusal(changed({"model": "compressible", **GAS}, changes))


def test_a_gas_with_what_they_need_takes_them():
    asked = {
        "output.troubles": ["at_floor", "wall_flux", "wall_stress"],
        "physics.prandtl": 0.7,
        "physics.viscosity": 0.1,
        "physics.pressure_floor": 1e-6,
    }
    config = validate(changed({"model": "compressible", **GAS}, asked))
    assert [one.name for one in config.troubles] == ["at_floor", "wall_flux", "wall_stress"]


def test_a_trouble_that_is_no_field_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"Wrong\.troubles: flat has the shape \(\); expected \(4, 8\)"):
        growing(tmp_path, of=Wrong, output__troubles=["flat"]).run()
    with pytest.raises(ConfigurationError, match=r"output\.troubles\[0\] = 'flat': expected physics\.growth above"):
        growing(tmp_path, of=Wrong, output__troubles=["flat"], physics__growth=0.0)


@pytest.mark.slow
def test_closures_and_balances_have_the_troubles_of_their_model(tmp_path):
    asked = {"output__troubles": ["large"], "time__end": 0.1}
    closed = growing(tmp_path / "closed", **asked, closure={"u": "0*u"}).run().ds
    plain = growing(tmp_path / "plain", **asked).run().ds
    np.testing.assert_array_equal(closed.large_x, plain.large_x)
    # Adding a term of zero leaves each value, but another program may round in another way.
    assert float(plain.large_worst[-1]) > float(plain.large_worst[0]) > 0
    np.testing.assert_allclose(closed.large_worst, plain.large_worst, rtol=1e-14)
    kept = changed(GAS, {"output.root": str(tmp_path), "time": {"end": 1e-3, "output_every": 1e-3, "dt": 1e-3}})
    kept["initial"]["velocity"] = ["0", "0"]
    kept |= {"outputs": [{"balance": ["mass"]}], "output": {**kept["output"], "troubles": ["steep"]}}
    ds = sj.configure(sj.Compressible, **kept).run().ds
    assert ds.steep_worst[0] == pytest.approx(1.0) and ds.steep_y[0] == 0.6875 and ds.steep_x[0] == 0.5 / 24


def texts(config):
    """The programs of ten steps and of what is observed, as they are given to the compiler."""
    programs = compiled_run(config)
    schedule = plan_frames(config, 1).schedule
    given = programs.values, programs.files, *programs.template({})
    advance = programs.advance(schedule, 10).lower(*given, jax.ShapeDtypeStruct((), jnp.int32))
    observe = programs.observe().lower(*given, jax.ShapeDtypeStruct((), programs.dtype))
    return advance.as_text(), observe.as_text()


def test_steps_are_compiled_as_if_there_were_no_troubles(tmp_path):
    """Asked for or not; and what observes is, where they are not, as that of a model that names none."""

    class Silent(Growing):
        """The same without troubles."""

        troubles = ()

    asked = {"output__troubles": ["large", "low"]}
    off, on, silent = (texts(growing(tmp_path, **own).config) for own in ({}, asked, {"of": Silent}))
    assert off == silent
    assert on[0] == off[0] and on[1] != off[1]


@pytest.mark.slow
def test_steps_of_a_gas_are_compiled_as_if_there_were_no_troubles():
    off, on = (
        texts(validate(changed({"model": "compressible", **GAS}, {"output.troubles": asked})))
        for asked in (None, ["limited", "sonic", "steep", "wall_stress"])
    )
    assert on[0] == off[0] and on[1] != off[1]
