"""Fourier integrals in time are sums over all steps, however a run is cut; energy fluxes of waves are made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configurations import changed, refusal

import simjax as sj
from simjax.config import validate
from simjax.report.statistics_pictures import statistics_figures

FREQUENCIES = [0.0, 0.5, 1.25]
WAVE = {
    "model": "acoustic",
    "grid": {"shape": [16, 8]},
    "coefficients": {"speed": "1 + 0.2*sin(2*pi*x)"},
    "initial": {"pressure": "height*exp(-20*((x - 0.5)**2 + (y - 0.4)**2))"},
    "parameters": {"height": 0.7},
    "time": {"end": 0.6, "output_every": 0.2, "dt": 0.02},
    "precision": "float64",
    "output": {"report": False, "animation": False},
    "outputs": [{"probe": {"points": [[0.1, 0.3], [0.6, 0.4]]}, "of": "pressure", "every": "step"}],
    "statistics": [
        {"of": "pressure", "frequencies": FREQUENCIES, "name": "field"},
        {"of": "probe", "frequencies": FREQUENCIES, "from": 0.2, "name": "points"},
        {"of": "pressure", "kinds": ["mean", "fourier"], "frequencies": [1.25], "over": ["y"], "name": "lines"},
    ],
}
NAMES = ("field", "points", "lines")


def run(folder, changes=(), **options):
    place = {"output.root": str(folder.parent), "output.folder": str(folder)}
    sj.Simulation(validate(changed(WAVE, {**place, **dict(changes)}))).run(**options)
    return folder


def read(folder, names=NAMES):
    found = {}
    for name in names:
        with sj.open_output(folder, name) as dataset:
            found[name] = dataset.load()
    return found


def complex_of(dataset, name="pressure"):
    return (dataset[f"{name}_fourier_real"] + 1j * dataset[f"{name}_fourier_imag"]).isel(time=-1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("fourier") / "whole")


def test_integrals_are_sums_over_the_steps(whole):
    found = read(whole)
    with sj.open_output(whole, "probe") as seen:
        times, u = seen.time.values, seen.pressure.values
    lengths = np.diff(times)
    late = times[1:] > 0.2 + 1e-9  # those that begin at 0.2 or later
    for frequency in FREQUENCIES:
        wave = lengths * np.exp(-2j * np.pi * frequency * times[1:])
        # Sums of thirty numbers of order 0.01: rounding.
        np.testing.assert_allclose(
            complex_of(found["points"]).sel(frequency=frequency), (u[:, 1:] * (wave * late)).sum(axis=1), atol=1e-15
        )
    assert found["points"].pressure_fourier_real.dims == ("time", "frequency", "station")
    assert found["field"].pressure_fourier_imag.attrs["units"] == "Pa s"
    assert found["field"].frequency.attrs["units"] == "s-1"
    # A mean over y is linear, so its integral is the mean of the integrals.
    of_lines = complex_of(found["field"]).sel(frequency=1.25).mean("y")
    np.testing.assert_allclose(complex_of(found["lines"]).sel(frequency=1.25), of_lines, atol=1e-15)
    assert len([*statistics_figures(whole)]) == 4


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        ({"mesh": {"x": 2, "y": 2}}, 1e-15),
        ({"mesh": {"x": 4, "y": 2}}, 1e-15),
        # A tenth of the digits of float32, for numbers of order 0.1.
        ({"precision": "float32"}, 1e-7),
    ],
    ids=("2x2", "4x2", "float32"),
)
def test_integrals_do_not_depend_on_devices(whole, tmp_path, changes, exact):
    other, one = read(run(tmp_path / "other", changes)), read(whole)
    for name in NAMES:
        np.testing.assert_allclose(complex_of(other[name]), complex_of(one[name]), rtol=0, atol=exact)


def test_members_have_their_own(whole, tmp_path):
    vary = {"ensemble": {"size": 2, "vary": {"parameters.height": {"values": [0.7, 1.4]}}}}
    found = complex_of(read(run(tmp_path / "members", vary))["field"])
    one = complex_of(read(whole)["field"])
    # Twice the wave has twice the integral; rounding.
    np.testing.assert_allclose(found.sel(member=1), 2 * one, atol=1e-14)


def test_a_run_that_goes_on_has_the_same(whole, tmp_path):
    stopped = run(tmp_path / "stopped", {"time.end": 0.4})
    run(tmp_path / "stopped", resume=stopped)
    for name, dataset in read(stopped).items():
        np.testing.assert_array_equal(complex_of(dataset), complex_of(read(whole)[name]))


def differentiable(changes=(), **options):
    return sj.Simulation(validate(changed(WAVE, dict(changes)))).differentiable(
        variables=[*NAMES], fields=["coefficients.speed"], **options
    )


def amount(observed):
    field, points, lines = (observed[name] for name in NAMES)
    total = jnp.sum(field["pressure_fourier_imag"] ** 2) + jnp.sum(points["pressure_fourier_real"] ** 2)
    return total + jnp.sum(lines["pressure_mean"] ** 2)


def test_a_differentiable_run_has_the_statistics_of_a_run(whole):
    observed = differentiable()().observed
    for name, dataset in read(whole).items():
        assert observed[name].keys() == {*dataset.data_vars} - {"time_bounds"}
        for variable, values in observed[name].items():
            of_file = dataset[variable].isel(time=-1).values
            values = np.asarray(values)
            values = values.swapaxes(1, 2) if values.ndim == 3 else values  # files have y before x
            assert np.any(values != 0)
            # Two programs add the same numbers of order 0.1 in another order: rounding.
            np.testing.assert_allclose(of_file, values, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{}, {"mesh": {"x": 2, "y": 2}}], ids=("one", "2x2"))
@pytest.mark.parametrize("plan", ["none", "two_level", "every_few", sj.Binomial(4)], ids=str)
def test_the_gradient_is_that_of_differences(mesh, plan):
    function = differentiable(mesh, checkpoint=plan)

    def loss(height, scale):
        speed = tuple(scale * u for u in function.fields["coefficients.speed"])
        return amount(function({"height": height}, {"coefficients.speed": speed}).observed)

    place = (jnp.asarray(0.7), jnp.asarray(1.0))
    found = jax.grad(loss, argnums=(0, 1))(*place)
    step = 1e-5
    for number, slope in enumerate(found):
        ends = [[x + sign * step * (k == number) for k, x in enumerate(place)] for sign in (1, -1)]
        difference = (loss(*ends[0]) - loss(*ends[1])) / (2 * step)
        # Of central differences: third derivatives times 1e-10, rounding over 1e-5.
        np.testing.assert_allclose(slope, difference, rtol=1e-7)


# ---------------------------------------------------------------------- energy fluxes of waves

STEPS = 64
THROUGH = {"box": {"lower": [0.25, 0.25], "upper": [0.75, 0.75]}, "plane": {"x": 0.75}}
PULSE = "exp(-60*((x - 0.5)**2 + (y - 0.5)**2))"
MODELS = {
    "acoustic": {"pressure": PULSE},
    "maxwell_tm": {"electric": PULSE},
    "maxwell_te": {"magnetic": PULSE},
}


def passing(model, initial, folder, **more):
    dt = 1 / 64
    bins = [k / (STEPS * dt) for k in range(STEPS // 2 + 1)]
    sections = {
        "grid": {"shape": [32, 16], "upper": [1, 1]},
        "initial": initial,
        "boundaries": {"x": "absorbing", "y": "absorbing"},
        "physics": {"layer_cells": 3},
        "time": {"end": STEPS * dt, "output_every": STEPS * dt, "dt": dt},
        "precision": "float64",
        "outputs": [{"flux": {"through": at}, "of": "energy", "every": "step", "name": n} for n, at in THROUGH.items()],
        "statistics": [{"of": name, "frequencies": bins, "name": f"{name}_by_frequency"} for name in THROUGH],
        "output": {"report": False, "animation": False, "root": str(folder.parent), "folder": str(folder)},
    }
    return sj.configure(model, **{**sections, **more}).run()


@pytest.mark.parametrize("model", MODELS)
def test_energy_by_frequency_adds_up_to_the_energy_that_passed(model, tmp_path):
    found = passing(model, MODELS[model], tmp_path / "run")
    for name in THROUGH:
        with sj.open_output(found.folder, name) as seen:
            in_time = float(seen.energy_flux[1:].sum()) / 64
        with sj.open_output(found.folder, f"{name}_by_frequency") as seen:
            spectrum = seen.energy_flux_spectrum.isel(time=-1).values
        # Parseval's theorem of the discrete transform, in which the first and the last frequency count once.
        weights = np.where((np.arange(len(spectrum)) % (len(spectrum) - 1)) == 0, 0.5, 1.0)
        assert in_time > 0.001  # a third of the pulse's energy passes the plane, all of it the box
        np.testing.assert_allclose((spectrum * weights).sum() / (STEPS / 64), in_time, rtol=1e-12)
    # All that was in the box leaves it, to (k h)^2 / 8 with four cells over the width of the pulse.
    with sj.open_output(found.folder, "box") as seen:
        left = float(seen.energy_flux[1:].sum()) / 64
    np.testing.assert_allclose(left, float(found.ds.energy[0]), rtol=0.03)


WAVES = {
    "acoustic": ([32, 4], {"pressure": "sin(2*pi*x)", "velocity": ["sin(2*pi*x)", "0"]}, {}),
    "maxwell_tm": ([32, 4], {"electric": "sin(2*pi*x)", "magnetic": ["0", "-sin(2*pi*x)"]}, {}),
    "maxwell_te": ([32, 4], {"magnetic": "sin(2*pi*x)", "electric": ["0", "sin(2*pi*x)"]}, {}),
    "maxwell": (
        [32, 4, 4],
        {
            "electric": ["0", "0.6*sin(2*pi*x)", "0.8*sin(2*pi*x)"],
            "magnetic": ["0", "-0.8*sin(2*pi*x)", "0.6*sin(2*pi*x)"],
        },
        {"mesh": {"x": 2, "y": 2}},
    ),
}


@pytest.mark.parametrize("model", WAVES)
def test_a_wave_carries_its_energy_at_its_speed(model, tmp_path):
    shape, initial, more = WAVES[model]
    found = sj.configure(
        model,
        grid={"shape": shape, "upper": [1.0] * len(shape)},
        initial=initial,
        time={"end": 1.0, "output_every": 1.0, "dt": 1 / 64},
        precision="float64",
        outputs=[
            {"flux": {"through": {"x": at}}, "of": "energy", "every": "step", "name": n} for n, at in PLANES.items()
        ],
        output={"report": False, "animation": False, "root": str(tmp_path)},
        **more,
    ).run()
    for name in PLANES:
        with sj.open_output(found.folder, name) as seen:
            mean = float(seen.energy_flux[1:].mean())
        # In one period all of the energy passes each plane of a box of length 1; an error of (2 pi / 32)^2 / 8.
        np.testing.assert_allclose(mean, float(found.ds.energy[1]), rtol=0.006)


PLANES = {"middle": 0.5, "between_blocks": 0.25, "side": 0.0}


@pytest.mark.slow
def test_a_slab_lets_pass_what_it_should(tmp_path):
    reference = {"parameters.density": 1, "parameters.speed": 1}
    planes = {"behind": 3.0, "before": 1.5}
    errors = []
    for cells in (256, 512):
        slab = "where(abs(x - 2.125) < 0.125, {}, 1)"
        found = sj.configure(
            "acoustic",
            grid={"shape": [cells], "upper": [4.0]},
            boundaries={"x": "absorbing"},
            coefficients={name: slab.format(name) for name in ("speed", "density")},
            parameters={"speed": 0.5, "density": 6.0},
            physics={"sources": [{"position": [0.75], "signal": "exp(-(3*(t - 1.5))**2)*cos(4*pi*(t - 1.5))"}]},
            time={"end": 10.0, "output_every": 5.0, "dt": 2 / cells},
            precision="float64",
            outputs=[{"flux": {"through": {"x": at}}, "of": "energy", "name": name} for name, at in planes.items()],
            statistics=[
                {"of": n, "frequencies": [1.5, 2.0, 2.5], "reference": reference, "name": f"{n}_by_frequency"}
                for n in planes
            ],
            output={"report": False, "animation": False, "root": str(tmp_path), "folder": f"slab_{cells}"},
        ).run()
        behind, before = (sj.open_output(found.folder, f"{name}_by_frequency").isel(time=-1) for name in planes)
        impedance, phase = 3.0, 2 * np.pi * behind.frequency.values / 0.5 * 0.25
        passed = 1 / (1 + 0.25 * (impedance - 1 / impedance) ** 2 * np.sin(phase) ** 2)
        sent_back = -before.energy_flux_spectrum_scattered / before.energy_flux_spectrum_reference
        # The scheme keeps energy; what is missing is still in the slab at the end, or comes back from layers.
        np.testing.assert_allclose(behind.energy_flux_spectrum_relative + sent_back, 1.0, atol=2e-3)
        errors.append(np.abs(behind.energy_flux_spectrum_relative.values - passed).max())
    assert errors[1] < 0.005
    assert errors[0] / errors[1] > 3  # second order


def test_what_is_scattered_is_what_the_reference_run_has_less(tmp_path):
    changes = {
        "outputs": [{"flux": {"through": {"x": 0.5}}, "of": "energy", "name": "power"}],
        "statistics": [
            {"of": of, "frequencies": [0.5, 2.0], "reference": {"parameters.height": 0.35}, "name": name}
            for of, name in (("pressure", "field"), ("power", "by_frequency"))
        ],
    }
    found = read(run(tmp_path / "run", changes), ("field", "by_frequency"))
    field, power = (one.isel(time=-1) for one in found.values())
    # Of a linear wave of half the height half is left, and a quarter of its energy; rounding.
    for part in ("real", "imag"):
        np.testing.assert_allclose(
            field[f"pressure_scattered_{part}"], field[f"pressure_fourier_{part}"] / 2, atol=1e-15
        )
    np.testing.assert_allclose(power.energy_flux_spectrum_relative, 4.0, rtol=1e-9)
    np.testing.assert_allclose(power.energy_flux_spectrum_scattered, power.energy_flux_spectrum_reference, rtol=1e-9)
    with sj.open_output(tmp_path / "run" / "references" / "field", "field") as reference:
        np.testing.assert_allclose(complex_of(reference), complex_of(found["field"]) / 2, atol=1e-15)


# ---------------------------------------------------------------------- what is refused

PLANE = {"outputs": [{"flux": {"through": {"x": 0.5}}, "of": "energy", "name": "power"}]}
REFUSED = {
    "fourier alone": ({"of": "pressure", "kinds": ["fourier"]}, ["statistics[0].frequencies is missing"]),
    "another kind": ({"of": "pressure", "kinds": ["mean"], "frequencies": [1.0]}, ["expected fourier among kinds"]),
    "negative": ({"of": "pressure", "frequencies": [-1.0]}, ["frequencies[0] = -1"]),
    "a number": ({"of": "pressure", "frequencies": 1.0}, ["statistics[0].frequencies = 1.0"]),
    "no count": ({"of": "pressure", "frequencies": {"from": 1, "to": 2}}, ["frequencies.count is missing"]),
    "turned round": ({"of": "pressure", "frequencies": {"from": 2, "to": 1, "count": 3}}, ["above from=2"]),
    "too few samples": ({"of": "pressure", "frequencies": [6.0], "every": 0.1}, ["below 5", "write every: step"]),
    "phases": (
        {"of": "pressure", "frequencies": [1.0], "phase": {"period": 0.5, "bins": 4}},
        ["statistics[0].phase: expected none beside frequencies"],
    ),
    "reference alone": ({"of": "pressure", "reference": {"parameters.height": 0}}, ["expected frequencies beside it"]),
    "reference that is none": ({"of": "pressure", "frequencies": [1.0], "reference": 3}, ["values by key path"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_told(name):
    entry, told = REFUSED[name]
    text = refusal(changed(WAVE, {"statistics": [entry]}))
    for part in told:
        assert part in text


def test_planes_that_waves_do_not_pass_are_refused():
    side = changed(WAVE, {"boundaries": {"x": "rigid"}, "outputs": [{"flux": {"through": "x_lower"}, "of": "energy"}]})
    side = changed(side, {"statistics": None})
    with pytest.raises(sj.ConfigurationError, match="expected a plane inside the grid"):
        sj.Simulation(validate(side)).run()
    both = changed(WAVE, {**PLANE, "statistics": [{"of": "power", "kinds": ["mean", "fourier"], "frequencies": [1.0]}]})
    with pytest.raises(sj.ConfigurationError, match="is a product of fields"):
        sj.Simulation(validate(both)).run()


def test_a_reference_that_is_no_run_is_told(tmp_path):
    entry = {"of": "pressure", "frequencies": [1.0], "reference": {"coefficients.sped": 1}}
    place = {"output.root": str(tmp_path)}
    with pytest.raises(sj.ConfigurationError, match=r"statistics, statistics.reference.*coefficients.sped"):
        sj.Simulation(validate(changed(WAVE, {**place, "statistics": [entry]}))).run()


# ---------------------------------------------------------------------- far away

SIGNAL = "exp(-(3*(t - 1.5))**2)*cos(4*pi*(t - 1.5))"


def far_away(folder, model, cells, place, directions, frequency):
    """The amplitude far away from a point source in a box of length 2, over the exact one of a source of sound."""
    axes = "xyz"[: len(place)]
    found = sj.configure(
        model,
        grid={"shape": [cells] * len(axes), "upper": [2.0] * len(axes)},
        boundaries=dict.fromkeys(axes, "absorbing"),
        physics={"sources": [{"position": list(place), "signal": SIGNAL}], "layer_cells": 8},
        time={"end": 5.0, "output_every": 5.0, "courant": 0.5},
        precision="float64",
        outputs=[{"flux": {"through": {"lower": [0.5] * len(axes), "upper": [1.5] * len(axes)}}, "of": "energy"}],
        statistics=[{"of": "flux", "frequencies": [frequency], "name": "around"}],
        output={"report": False, "animation": False, "root": str(folder), "folder": f"{model}_{cells}"},
    ).run()
    far = sj.far_field(found.folder, "around", directions).values[0]
    t = np.arange(0, 5, 1e-4)
    strength = (
        np.exp(-((3 * (t - 1.5)) ** 2)) * np.cos(4 * np.pi * (t - 1.5)) * np.exp(-2j * np.pi * frequency * t)
    ).sum()
    k = 2 * np.pi * frequency
    space, plane = 1 / (4 * np.pi), -0.25j * np.sqrt(2 / (np.pi * k)) * np.exp(0.25j * np.pi)
    towards = np.stack([np.cos(directions), np.sin(directions)], 1) if len(axes) == 2 else np.asarray(directions)
    green = (space if len(axes) == 3 else plane) * np.exp(1j * k * towards @ np.asarray(place))
    return far / (1j * k * 1e-4 * strength * green)


@pytest.mark.parametrize(("model", "sign"), [("acoustic", 1), ("maxwell_tm", -1)])  # E = -dA/dt of a current
def test_a_point_source_is_seen_far_away(model, sign, tmp_path):
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    ratio = sign * far_away(tmp_path, model, 60, (0.95, 1.07), angles, 1.5)
    # Twenty cells of a wavelength: sizes are off by (k h)^2 / 8 = 0.012 as values are brought to faces, phases by
    # (k h)^2 / 24 times k r = 5 as the scheme is too slow.
    np.testing.assert_allclose(ratio, 1.0, atol=0.03)
    np.testing.assert_allclose(abs(ratio), 1.0, atol=0.015)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["acoustic", "maxwell_tm"])
def test_the_far_field_is_of_second_order(model, tmp_path):
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    errors = [abs(abs(far_away(tmp_path, model, cells, (0.95, 1.07), angles, 2.0)) - 1).max() for cells in (80, 160)]
    assert errors[0] / errors[1] > 3.3


@pytest.mark.slow
def test_a_point_source_is_seen_far_away_in_space(tmp_path):
    directions = np.array([[1, 0, 0], [0, -1, 0], [0, 0, 1], [0.6, 0, -0.8], [0.48, 0.64, 0.6]])
    ratio = far_away(tmp_path, "acoustic", 48, (0.95, 1.07, 1.02), directions, 1.5)
    np.testing.assert_allclose(ratio, 1.0, atol=0.06)  # as above, sixteen cells of a wavelength and k r up to 9
    np.testing.assert_allclose(abs(ratio), 1.0, atol=0.02)


def test_a_far_field_without_a_box_is_refused(whole):
    with pytest.raises(sj.ConfigurationError, match="flux of energy out of a box"):
        sj.far_field(whole, "field", [0.0])
    with pytest.raises(sj.ConfigurationError, match="vectors of length one"):
        sj.far_field(whole, "field", [[1.0, 1.0, 0.0]])
