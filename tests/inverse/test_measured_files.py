"""Measurements from files and arrays: what is compared with what, what a mask hides, and each refusal."""

import jax
import numpy as np
import pytest
import xarray as xr
from configurations import changed, refusal
from inverse_problems import evaluated, searched

import simjax as sj
from simjax.config import validate
from simjax.driver.differentiable_run import DifferentiableRun
from simjax.errors import ConfigurationError, InputOutputError
from simjax.instruments.everything import Snapshot
from simjax.instruments.image import Image
from simjax.inverse.problem_instruments import instruments_of

TRUE, DEVIATION = 0.02, 0.05
DYE = {
    "model": "advection_diffusion",
    "precision": "float64",
    "physics": {"diffusivity": TRUE, "velocity": [0.3]},
    "grid": {"shape": [24]},
    "boundaries": {"x": "neumann"},
    "initial": {"concentration": "exp(-40*(x - 0.4)**2)"},
    "time": {"end": 0.4, "output_every": 0.1, "dt": 0.02},
    "output": {"report": False, "animation": False},
    "outputs": [{"probe": {"points": [[0.3], [0.61]]}, "of": "concentration", "every": 0.1}],
}
SOUGHT = {"physics.diffusivity": {"guess": 0.05, "positive": True}}
X = np.linspace(0.95, 0.1, 8)
"""Where the pictures have their pixels: not in the order nor at the places of the grid."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run that pictures are taken of, its folder and its frames."""
    root = tmp_path_factory.mktemp("measured")
    folder = root / "truth"
    place = {"output.root": str(root), "output.folder": str(folder)}
    sj.Simulation(validate(changed(DYE, place))).run()
    with sj.open_run(folder) as frames:
        return root, folder, frames.load()


def seen(frames, x):
    """The frames interpolated linearly to places, beyond the outermost centres along the last line."""
    centres = frames.x.values
    below = np.clip(np.searchsorted(centres, x) - 1, 0, len(centres) - 2)
    share = (x - centres[below]) / (centres[below + 1] - centres[below])
    u = frames.concentration.values
    return u[:, below] * (1 - share) + u[:, below + 1] * share


def pictures(frames, under_the_mask=np.nan):
    """Pictures of the run with errors of their deviation, of which a part was not measured."""
    rng = np.random.default_rng(3)
    error = DEVIATION * rng.uniform(0.5, 2.0, len(X))
    values = seen(frames, X) + error * rng.standard_normal((5, len(X))) * 0.1
    mask = rng.random((5, len(X))) < 0.7
    return xr.Dataset(
        {
            "pixels": (("x", "time"), np.where(mask, values, under_the_mask).T, {"units": "1"}),
            "mask": (("time", "x"), mask.astype("i1")),
            "error": (("time", "x"), np.where(mask, error, under_the_mask), {"units": "1"}),
        },
        coords={"x": ("x", X, {"units": "m"}), "time": ("time", frames.time.values, {"units": "s"})},
    )


def posed(root, observation, base=DYE, **solver):
    section = {"unknowns": SOUGHT, "observations": [observation]}
    section["solver"] = {"name": "gauss_newton", "iterations": 8, **solver}
    return validate(changed(base, {"output.root": str(root), "inverse": section}), folders=[root])


@pytest.fixture(scope="module")
def problem(run):
    root, _, frames = run
    pictures(frames).to_netcdf(root / "pictures.nc")
    return sj.InverseProblem(
        posed(root, {"output": "fields", "of": "concentration", "file": "pictures.nc", "variable": "pixels"})
    )


@pytest.mark.slow
def test_pictures_on_another_grid_recover_what_was_sought(problem, run):
    root, _, frames = run
    (instrument,) = problem.instruments
    assert isinstance(instrument.operator, Image) and not problem.is_twin
    mask = pictures(frames).mask.values != 0
    assert instrument.count == mask.sum() and 0 < mask.sum() < mask.size
    assert problem.notes == [f"'pixels' in pictures.nc: its variable {name} is taken" for name in ("mask", "error")]
    # The model is interpolated to the pixels; the true run reads what numpy makes of its frames, to rounding.
    series = problem.series(problem.truth())
    np.testing.assert_allclose(np.asarray(series[instrument.name]), seen(frames, X), rtol=0, atol=1e-14)
    found = searched(problem)
    value = float(found.answer.estimate["physics.diffusivity"])
    # A tenth of the errors that are told of, over 28 readings: a few per cent, and well inside of what is claimed.
    assert abs(value / TRUE - 1) < 0.1
    lower, upper = found.answer.intervals["physics.diffusivity"]
    assert lower < TRUE < upper
    # The same file by the configuration alone, as on the command line, goes the same way.
    assert validate(problem.config.write(), folders=[root]).inverse == problem.config.inverse


@pytest.mark.slow
def test_what_lies_under_the_mask_does_not_matter_to_the_bit(problem, run):
    root, _, frames = run
    told = {"output": "fields", "of": "concentration", "variable": "pixels"}
    expected = evaluated(problem)
    for number in (1e30, -7.0, 0.0):
        # From Python, a dataset in the place of a file.
        other = sj.InverseProblem(
            validate(changed(DYE, {"output.root": str(root)})),
            unknowns=SOUGHT,
            observations=[{**told, "data": pictures(frames, number)}],
            solver={"name": "gauss_newton", "iterations": 8},
        )
        for a, b in zip(jax.tree.leaves(evaluated(other)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)
    value, _, gradient = expected
    assert np.isfinite(value) and np.isfinite(gradient["physics.diffusivity"])


@pytest.mark.slow
def test_the_loss_is_that_of_numpy_and_its_slope_a_difference(problem, run):
    _, _, frames = run
    data = pictures(frames)
    loss, _, gradient = evaluated(problem)
    latent = problem.start()
    (name,) = (instrument.name for instrument in problem.instruments)
    read = problem.readings(latent)[name]
    apart = np.where(data.mask != 0, (read - data.pixels.values.T) / data.error.values, 0)
    assert float(loss) == pytest.approx(0.5 * np.sum(apart**2), rel=1e-12)
    step = 1e-4

    def at(shift):
        moved = {path: value + shift for path, value in latent.items()}
        return 0.5 * sum(float(np.sum(np.square(r))) for r in jax.tree.leaves(problem.least_squares().residuals(moved)))

    # Central differences of a loss of order 100: step^2 of its third derivative, and rounding over the step.
    assert float(gradient["physics.diffusivity"]) == pytest.approx((at(step) - at(-step)) / (2 * step), rel=1e-6)


def instrument(root, observation, run=None, base=DYE):
    """The instrument of one observation, of which nothing is compiled."""
    config = posed(root, observation, base)
    assert config.inverse is not None
    return instruments_of(config.inverse.observations, run or DifferentiableRun(config))[0]


def test_samples_of_another_run_are_taken_as_they_are(run):
    root, folder, frames = run
    samples = "truth/outputs/probe/samples.h5"
    by_name = instrument(root, {"output": "probe", "file": samples, "deviation": 0.01})
    by_place = instrument(root, {"output": "fields", "of": "concentration", "file": samples, "deviation": 0.01})
    for one in (by_name, by_place):
        assert one.operator.positions == ((0.3,), (0.61,))
        np.testing.assert_allclose(one.measured, seen(frames, np.asarray([0.3, 0.61])), rtol=0, atol=1e-14)
        np.testing.assert_array_equal(one.below, range(5))
        assert not one.fraction.any() and one.present is None
    whole = instrument(root, {"output": "fields", "of": "concentration", "file": "truth/fields.h5", "fraction": 0.1})
    assert isinstance(whole.operator, Snapshot)
    np.testing.assert_array_equal(whole.measured, frames.concentration)
    mean = instrument(
        root, {"output": "diagnostics", "of": "mean_concentration", "file": "truth/fields.h5", "deviation": 0.1}
    )
    np.testing.assert_array_equal(mean.measured, frames.mean_concentration)
    assert folder.name == "truth"


@pytest.mark.slow
def test_what_instruments_of_several_fields_read_in_one_run_is_fitted_by_another(tmp_path):
    wave = {
        "model": "acoustic",
        "precision": "float64",
        "grid": {"shape": [8, 8]},
        "parameters": {"height": 1.0},
        "initial": {"pressure": "height*cos(2*pi*x)*(1 + 0.3*sin(2*pi*y))"},
        "time": {"end": 0.2, "output_every": 0.1, "dt": 0.02},
        "output": {"report": False, "animation": False, "root": str(tmp_path), "folder": str(tmp_path / "truth")},
        "outputs": [
            {"surface_integral": {"x": 0.25}, "of": "velocity", "name": "flux"},
            {"structure_function": "velocity", "along": "x", "separations": [0.25, 0.5]},
            {"correlation": "pressure", "along": "x", "separations": [0.5], "normalised": False},
            {"slice": {"y": 0.3}, "of": "pressure"},
        ],
    }
    sj.Simulation(validate(wave)).run()
    names = ("flux", "structure_function", "correlation", "slice")
    seen = [{"output": one, "file": f"truth/outputs/{one}/samples.h5", "deviation": 0.1} for one in names]
    section = {"unknowns": {"parameters.height": {"guess": 1.2}}, "observations": seen}
    section["observations"].append(
        {"output": "structure_function", "of": "velocity_longitudinal_structure_function", "fraction": 0.1}
    )
    problem = sj.InverseProblem(validate(changed(wave, {"inverse": section}), folders=[tmp_path]))
    assert [i.operator.variable for i in problem.instruments][:2] == [
        "velocity_flux",
        "velocity_longitudinal_structure_function",
    ]
    # What was measured in the run itself is what its file has: the same of one and the other.
    *_, sliced, made = problem.instruments
    assert sliced.measured.shape == (3, 8) and made.measured.shape == (2, 2)
    series = problem.series(problem.truth())
    for one in problem.instruments[:-1]:
        np.testing.assert_allclose(one.at_times(series[one.name]), one.measured, rtol=0, atol=1e-13)
    loss, _, gradient = evaluated(problem)
    latent, step = problem.start(), 1e-4

    def at(shift):
        moved = {path: value + shift for path, value in latent.items()}
        return 0.5 * sum(float(np.sum(np.square(r))) for r in jax.tree.leaves(problem.least_squares().residuals(moved)))

    assert float(loss) > 1
    # A polynomial of the height of fourth degree: its third derivative times step^2, and rounding over the step.
    assert float(gradient["parameters.height"]) == pytest.approx((at(step) - at(-step)) / (2 * step), rel=1e-6)


def test_times_between_frames_lie_between_their_readings(run):
    root, _, frames = run
    data = xr.Dataset({"concentration": (("time", "x"), np.zeros((3, 8)))}, {"time": [0.05, 0.1, 0.375], "x": X})
    data.to_netcdf(root / "between.nc")
    one = instrument(root, {"output": "fields", "of": "concentration", "file": "between.nc", "deviation": 0.1})
    np.testing.assert_array_equal(one.below, [0, 1, 3])
    np.testing.assert_allclose(one.fraction, [0.5, 0, 0.75], rtol=0, atol=1e-12)
    u = seen(frames, X)
    expected = [(u[0] + u[1]) / 2, u[1], u[3] / 4 + 3 * u[4] / 4]
    np.testing.assert_allclose(one.at_times(jax.numpy.asarray(u)), expected, rtol=0, atol=1e-12)


def test_a_picture_of_two_axes_is_read_where_its_pixels_are_on_any_order_of_axes(tmp_path):
    from scipy.interpolate import RegularGridInterpolator

    plate = changed(DYE, {"grid.shape": [12, 10], "physics.velocity": [0.3, 0.0], "outputs": None})
    plate["initial"] = {"concentration": "sin(pi*x)*y"}
    y = np.linspace(0.2, 0.7, 3)
    measured = np.random.default_rng(0).random((2, 3, 8))
    xr.Dataset({"c": (("time", "y", "x"), measured)}, {"time": [0.1, 0.2], "x": X, "y": y}).to_netcdf(tmp_path / "c.nc")
    section = {
        "observations": [{"output": "fields", "of": "concentration", "file": "c.nc", "variable": "c", "deviation": 1.0}]
    }
    config = validate(changed(plate, {"inverse": {"unknowns": SOUGHT, **section}}), folders=[tmp_path])
    assert config.inverse is not None
    run = DifferentiableRun(config)
    (one,) = instruments_of(config.inverse.observations, run)
    np.testing.assert_array_equal(one.measured, measured.transpose(0, 2, 1))
    grid = run.domain.grid
    u = np.random.default_rng(1).random(grid.shape)
    centres = [grid.coordinates(axis, 0.5) for axis in range(2)]
    points = np.stack(np.meshgrid(X[1:], y, indexing="ij"), axis=-1)  # X[0] lies beyond the outermost centre
    expected = RegularGridInterpolator(centres, u)(points)
    read = one.operator.measure(run.domain, jax.numpy.asarray(u), (0.5, 0.5), (False, False))
    np.testing.assert_allclose(read[1:], expected, rtol=0, atol=1e-14)


def test_arrays_of_python_with_their_times(run):
    root, _, frames = run
    values = frames.concentration.values[1:]
    dye = validate(changed(DYE, {"output.root": str(root)}))
    told = {"unknowns": SOUGHT, "solver": {"name": "gauss_newton"}}
    values[0, 3] = np.nan
    observation = {"output": "fields", "of": "concentration", "data": values, "times": frames.time.values[1:].tolist()}
    problem = sj.InverseProblem(dye, observations=[{**observation, "deviation": np.full(24, 0.1)}], **told)
    (one,) = problem.instruments
    assert one.count == values.size - 1 and one.deviation.shape == values.shape
    with pytest.raises(ConfigurationError, match="no coordinate time; write times"):
        sj.InverseProblem(
            dye, observations=[{"output": "fields", "of": "concentration", "data": values, "deviation": 0.1}], **told
        )
    with pytest.raises(ConfigurationError, match="data and file='a.nc'"):
        sj.InverseProblem(dye, observations=[{**observation, "file": "a.nc"}], **told)


def test_places_of_a_file_without_names_of_axes(tmp_path):
    """As many values as coordinates are those of a list of points, else of a picture's axes."""
    plate = changed(DYE, {"grid.shape": [12, 10], "physics.velocity": [0.3, 0.0], "outputs": None})
    told = {"output": "fields", "of": "concentration", "deviation": 1.0, "variable": "c", "times": [0.1, 0.2]}
    x, y = [0.2, 0.4, 0.7], [0.3, 0.6, 0.5]
    np.savez(tmp_path / "points.npz", c=np.arange(6.0).reshape(2, 3), x=x, y=y)
    points = instrument(tmp_path, {**told, "file": "points.npz"}, base=plate)
    assert points.operator.positions == tuple(zip(x, y, strict=True)) and points.measured.tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    np.savez(tmp_path / "picture.npz", c=np.arange(12.0).reshape(2, 2, 3), x=x, y=y[:2])
    pixels = instrument(tmp_path, {**told, "file": "picture.npz", "order": ["y", "x"]}, base=plate)
    assert isinstance(pixels.operator, Image) and pixels.measured[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_table_of_readings_has_places_and_times_of_its_own(tmp_path):
    (tmp_path / "t.csv").write_text("t,x,value,deviation\n0.1,0.3,1.5,0.1\n0.25,0.7,2.5,0.2\n")
    for named in ({}, {"of": "concentration"}):
        one = instrument(tmp_path, {"output": "fields", "file": "t.csv", **named})
        assert one.name == "0_concentration" and one.operator.positions == ((0.3,), (0.7,)) and one.given
        assert one.present.tolist() == [[True, False], [False, True]] and one.deviation[1, 1] == 0.2
    section = {"unknowns": SOUGHT, "observations": [{"output": "probe", "file": "t.csv"}]}
    said = refusal(changed(DYE, {"inverse": section}), folders=[tmp_path])
    assert "file = 't.csv': expected no table of readings, as this output has places of its own" in said
    section = {"unknowns": SOUGHT, "observations": [{"output": "fields", "file": "t.csv", "times": [0.1]}]}
    said = refusal(changed(DYE, {"inverse": section}), folders=[tmp_path])
    assert "times = [0.1]: expected none with a table of readings" in said


def test_every_is_a_time():
    def times(every):
        told = {"output": "probe", "deviation": 1.0} | ({} if every is None else {"every": every})
        return instrument(".", told).times.tolist()

    # The instrument reads every 0.1, and frames end then.
    assert times(None) == times("frame") == pytest.approx([0.1, 0.2, 0.3, 0.4], rel=1e-15)
    assert times(0.2) == [0.2, 0.4] and times(0.15) == pytest.approx([0.15, 0.3], rel=1e-15)


def test_derived_variables_and_arrays_of_an_instrument(tmp_path):
    wave = {
        "model": "acoustic",
        "precision": "float64",
        "grid": {"shape": [8, 6]},
        "parameters": {"height": 1.0},
        "initial": {"pressure": "height*cos(2*pi*x)"},
        "time": {"end": 0.2, "output_every": 0.1, "dt": 0.02},
        "output": {"root": str(tmp_path)},
        "outputs": [{"slice": {"y": 0.3}, "of": ["speed"]}, {"probe": {"points": [[0.2, 0.2]]}, "of": "pressure"}],
    }
    values = np.arange(16.0).reshape(2, 8)
    problem = sj.InverseProblem(
        validate(wave),
        unknowns={"parameters.height": {"guess": 0.5}},
        outputs=[{"box_mean": {"lower": [0, 0], "upper": [0.5, 0.5]}, "of": "pressure"}],
        observations=[
            {"output": "slice", "data": values, "times": [0.1, 0.2], "deviation": np.full(8, 0.5)},
            {"output": "box_mean", "data": np.asarray([1.0, 2.0]), "times": [0.1, 0.2], "deviation": 1.0},
            {"output": "probe", "data": [3.0], "times": [0.2], "deviation": 1.0},
            {"output": "fields", "of": "speed", "data": np.ones((8, 6)), "times": [0.2], "deviation": 1.0},
        ],
    )
    cut, mean, point, field = problem.instruments
    assert (
        cut.operator.variable == "speed" and cut.measured.tolist() == values.tolist() and cut.deviation.shape == (2, 8)
    )
    assert mean.measured.tolist() == [1.0, 2.0] and point.measured.tolist() == [[3.0]]
    assert field.measured.shape == (1, 8, 6) and field.output.units == "m s-1"
    series = problem.series(problem.truth())
    # At rest at the start, and of the size of the pressure later.
    assert not series[cut.name][0].any() and np.abs(series[field.name][-1]).max() > 0.1


def picture(**changes):
    """A small dataset that fits, with variables and coordinates replaced."""
    parts = {
        "c": (("time", "x"), np.ones((2, 8))),
        "e": (("x",), np.ones(8)),
        "time": ("time", [0.1, 0.2]),
        "x": ("x", X),
        **changes,
    }
    return xr.Dataset({name: part for name, part in parts.items() if part is not None})


NOTHING = np.full((2, 8), np.nan)
HOLED = np.where(np.arange(8) == 2, 0.0, np.ones((2, 8)))
REFUSED = {
    "another variable": (picture(), {"variable": "d"}, "a.nc has no variable 'd'; it holds c, e, time, x."),
    "a time after the end": (
        picture(time=("time", [0.1, 0.5])),
        {},
        "measured at t=0.5, but the run goes from t=0 to 0.4",
    ),
    "a time that is none": (picture(time=("time", [0.1, np.nan])), {}, "its coordinate time is not finite"),
    "no times": (picture(time=None), {}, "'c' in a.nc has no coordinate time; write times"),
    "times twice": (picture(), {"times": [0.1, 0.2]}, "its coordinate time says when it was measured; leave out"),
    "too few times": (picture(time=None), {"times": [0.1]}, "measurements at 2 times; expected as many times, got 1"),
    "times in minutes": (picture(time=("time", [0.1, 0.2], {"units": "min"})), {}, "is in 'min'; expected 's'"),
    "values in grams": (picture(c=(("time", "x"), np.ones((2, 8)), {"units": "g"})), {}, "is in 'g'; expected '1'"),
    "errors in grams": (picture(e=("x", np.ones(8), {"units": "g"})), {}, "'e' in a.nc is in 'g'; expected '1'"),
    "nothing measured": (picture(c=(("time", "x"), NOTHING)), {}, "none of its 16 values was measured"),
    "an infinity": (picture(c=(("time", "x"), np.where(HOLED == 0, np.inf, 1.0))), {}, "is infinite at index (0, 2)"),
    "no deviation": (picture(), {"deviation": None}, "its standard deviations are missing; write deviation: NUMBER"),
    "a deviation of zero": (picture(e=(("time", "x"), HOLED)), {}, "'e' in a.nc is 0 at index (0, 2), where something"),
    "too short a mask": (
        picture(m=(("row",), np.ones(3))),
        {"mask": "m"},
        "'m' in a.nc has axes (row) of shape (3,); expected some of",
    ),
    "a pixel outside": (picture(x=("x", X + 0.2)), {}, "has x=1.15 outside of the domain; cut it to 0 <= x <= 1"),
    "no places": (picture(x=None), {}, "'c' in a.nc has 8 values along x and no coordinate x, for 24 cells"),
    "stations": (
        picture(c=(("time", "station"), np.ones((2, 8))), x=None, e=None),
        {"deviation": 0.1},
        "has axes (station) of shape (8,); expected those of the grid, (x), or one number as the coordinate across",
    ),
    "members": (
        picture(c=(("member", "time", "x"), np.ones((3, 2, 8)))),
        {},
        "has 3 values along 'member', and no member of it is asked for; write the number of one, such as member: 0",
    ),
    "a member that is none of the file's": (
        picture(c=(("member", "time", "x"), np.ones((3, 2, 8))), member=("member", [4, 7, 9])),
        {"member": 1},
        "and member 1 is asked for; write the number of one, such as member: 4",
    ),
    "a member of none": (picture(), {"member": 0}, "'c' in a.nc has no dimension 'member'; leave out member: 0"),
}


@pytest.fixture(scope="module")
def rollout(run):
    return DifferentiableRun(validate(DYE))


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_with_what_to_write(what, tmp_path, rollout):
    data, changes, sentence = REFUSED[what]
    data.to_netcdf(tmp_path / "a.nc")
    told = {"output": "fields", "of": "concentration", "file": "a.nc", "variable": "c", "deviation": "e", **changes}
    with pytest.raises(ConfigurationError) as refused:
        instrument(tmp_path, told, rollout)
    message = str(refused.value)
    assert message.startswith("inverse.observations[0]: ") and sentence in message, message


@pytest.mark.slow
def test_members_of_an_ensemble_are_the_measurements_of_runs_of_their_own(tmp_path):
    place, away = {"parameters": {"place": 0.4}, "initial": {"concentration": "exp(-40*(x - place)**2)"}}, [0.3, 0.5]
    several = {"vary": {"parameters.place": {"values": away}}, "numbers": [4, 7], "size": 2}
    root = {"output": {"root": str(tmp_path), "folder": str(tmp_path / "both"), "report": False, "animation": False}}
    sj.Simulation(validate({**DYE, **place, **root, "ensemble": several})).run()
    samples = {"output": "probe", "file": "both/outputs/probe/samples.h5", "deviation": 0.01}
    experiments = {
        f"from_{number}": {"parameters": {"place": at}, "observations": [{**samples, "member": number}]}
        for number, at in zip(several["numbers"], away, strict=True)
    }
    section = {"unknowns": SOUGHT, "experiments": experiments}
    problem = sj.InverseProblem(validate({**DYE, **place, "inverse": section}, folders=[tmp_path]), sizes={})
    assert validate(problem.config.write()) == problem.config
    series = problem.series(problem.truth())
    own = [(i.measured, np.asarray(i.at_times(series[i.name]))) for i in problem.instruments]
    for measured, read in own:
        np.testing.assert_allclose(read, measured, rtol=0, atol=1e-13)  # a run among others and alone: rounding
    assert np.abs(own[0][0] - own[1][0]).max() > 0.1


def test_other_places_than_those_of_the_file_are_refused(run, rollout, tmp_path):
    root, _, _ = run
    samples = {"file": "truth/outputs/probe/samples.h5", "deviation": 0.01}
    away = {**DYE, "outputs": [{"probe": {"points": [[0.3], [0.7]]}, "of": "concentration"}]}
    with pytest.raises(ConfigurationError, match=r"its point 1 has x=0.61, but output probe has x=0.7; write"):
        instrument(root, {"output": "probe", **samples}, rollout, away)
    fewer = {**DYE, "outputs": [{"probe": {"points": [[0.3]]}, "of": "concentration"}]}
    with pytest.raises(ConfigurationError, match=r"has shape \(5, 2\), times first; expected \(5, 1\), what output"):
        instrument(root, {"output": "probe", **samples}, rollout, fewer)
    (tmp_path / "b.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(InputOutputError, match="damaged or incomplete"):
        instrument(tmp_path, {"output": "fields", "of": "concentration", "file": "b.nc", "deviation": 1.0}, rollout)
    (tmp_path / "c.zarr").mkdir()
    (tmp_path / "c.zarr" / "zarr.json").write_text("{}")
    # Where zarr is not installed it is asked for; else the store is damaged.
    with pytest.raises(
        (ConfigurationError, InputOutputError), match=r"c\.zarr (is a Zarr store|is damaged|has no variable)"
    ):
        instrument(tmp_path, {"output": "fields", "of": "concentration", "file": "c.zarr", "deviation": 1.0}, rollout)


def test_keys_that_do_not_go_together_are_refused(tmp_path):
    picture().to_netcdf(tmp_path / "a.nc")

    def told(**keys):
        given = {"output": "fields", "of": "concentration", "deviation": 0.1, **keys}
        section = {"unknowns": SOUGHT, "observations": [given]}
        return refusal(changed(DYE, {"inverse": section}), folders=[tmp_path])

    assert "inverse.observations[0].file = 'b.nc': no such file (looked below" in told(file="b.nc")
    assert "every = 0.2: expected none with a file, whose coordinate time" in told(file="a.nc", every=0.2)
    assert "target and file: expected one of them" in told(file="a.nc", target="x")
    assert "deviation = 'e': expected a number > 0; the name of a variable goes with a file" in told(deviation="e")
    assert "mask = 'm': expected none without a file of measurements" in told(mask="m")
    assert "order = ['x']: expected none without a file of measurements" in told(order=["x"])
    twice = told(file="a.nc", order=["x", "x"])
    assert "order = ['x', 'x']: expected the axes of the grid, such as ['x']" in twice
    assert "fille: unknown key; did you mean" in told(fille="a.nc")
