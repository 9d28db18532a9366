"""What an inverse problem leaves: a file that everyone opens, pictures that show something, a page that names all."""

import dataclasses
import warnings
from types import SimpleNamespace

import flows
import numpy as np
import pytest
import xarray
from field_files import read_field
from PIL import Image

from simjax.errors import InputOutputError
from simjax.grid import CENTER, FACE, Grid
from simjax.io.inverse_output import FieldResult, InstrumentResult, InversionResult, NumberResult, write_inversion
from simjax.io.read import open_run
from simjax.report.inverse_figures import _residual_rows, write_pictures
from simjax.report.inverse_report import write_inversion_report
from simjax.report.inverse_rows import ProfileRow

GRIDS = {
    1: Grid((64,), (0.0,), (2.0,)),
    2: Grid((48, 32), (0.0, 0.0), (3.0, 2.0)),
    3: Grid((16, 12, 10), (0.0, 0.0, 0.0), (1.6, 1.2, 1.0)),
}
ITERATIONS = 12


def wave(grid: Grid, offset, phase: float = 0.0) -> np.ndarray:
    """A smooth field `[x, y, z]` on `grid`."""
    values = np.ones(())
    for axis in range(grid.ndim):
        place = (grid.coordinates(axis, offset[axis]) - grid.lower[axis]) / grid.lengths[axis]
        values = values[..., None] * np.sin(2 * np.pi * place + phase + 0.4 * axis)
    return values


def sought_field(grid: Grid, path: str, units: str, names, offsets, *, known: bool) -> FieldResult:
    """A field that is approached by halves; its truth and deviation only where they are `known`."""
    truth = tuple(wave(grid, offset) for offset in offsets)
    start = tuple(0.3 * wave(grid, offset, 1.0) for offset in offsets)
    numbers = (0, 1, 2, 4, 8, ITERATIONS)
    iterates = tuple(
        tuple(t + (g - t) * (0.04 + 0.96 * 0.6**k) for t, g in zip(truth, start, strict=True)) for k in numbers
    )
    deviation = tuple(0.02 + 0.03 * np.abs(t) for t in truth)
    return FieldResult(
        path,
        units,
        names,
        offsets,
        start,
        iterates[-1],
        truth if known else None,
        deviation if known else None,
        iterates,
        numbers,
    )


def instruments(grid: Grid, variable: str, offset) -> tuple[InstrumentResult, ...]:
    """Seven sensors over time, two of whose readings are missing, and two snapshots of the field."""
    generator = np.random.default_rng(3)
    times = np.linspace(0.1, 2.0, 20).round(12)  # as files have them: to their digits
    positions = np.asarray(grid.lower) + generator.uniform(0.1, 0.9, (7, grid.ndim)) * np.asarray(grid.lengths)
    exact = np.exp(-times)[:, None] * np.sin(3 * times[:, None] + np.arange(7))
    measured = exact + 0.05 * generator.standard_normal(exact.shape)
    present = np.ones(exact.shape, bool)
    present[3, 1] = present[7, 0] = False
    measured[~present] = np.nan
    whole = wave(grid, offset) * np.array([1.0, 0.8]).reshape(2, *(1,) * grid.ndim)
    seen = whole + 0.1 * generator.standard_normal(whole.shape)
    return (
        InstrumentResult(
            f"0_{variable}", "points", variable, "s-1", times, measured, 0.4 * exact, exact, present, 0.05, positions
        ),
        InstrumentResult(
            f"1_{variable}",
            "snapshot",
            variable,
            "s-1",
            np.array([1.0, 2.0]),
            seen,
            0.3 * whole,
            whole,
            deviation=np.full(grid.shape, 0.1),
            offset=offset,
        ),
    )


def found(ndim: int, *, known: bool = True, **changes) -> InversionResult:
    """A search for the vorticity or, in 3-D, the velocity, and for three numbers."""
    grid = GRIDS[ndim]
    if ndim == 3:
        offsets = tuple(tuple(FACE if axis == own else CENTER for axis in range(3)) for own in range(3))
        sought = sought_field(
            grid, "initial.velocity", "m s-1", ("velocity_x", "velocity_y", "velocity_z"), offsets, known=known
        )
    else:
        sought = sought_field(grid, "initial.vorticity", "s-1", ("vorticity",), ((FACE,) * ndim,), known=known)
    numbers = (
        NumberResult("physics.viscosity", "m2 s-1", 2e-3, 9.8e-4, 1e-3, 9.3e-4, 1.04e-3),
        NumberResult("physics.drag", "s-1", 0.5, 0.31, 0.3, 0.27, 0.35),
        NumberResult("parameters.tilt", "1", 0.0, -0.21, -0.2),
    )
    if not known:
        numbers = tuple(dataclasses.replace(n, truth=None, lower=None, upper=None) for n in numbers)
    described = {
        "title": "Vorticity from seven sensors",
        "command": "python -m simjax.run inverse",
        "grid": grid,
        "solver": "lbfgs",
        "losses": 3e4 * 0.4 ** np.arange(ITERATIONS) + 90,
        "gradient_norms": 2e3 * 0.5 ** np.arange(ITERATIONS),
        "numbers": numbers,
        "fields": (sought,),
        "instruments": instruments(grid, sought.names[0], sought.offsets[0]),
        "notes": ("The truth is that of the configuration.",),
        "attributes": {"simjax_version": "0.1.0", "simjax_seed": 7, "simjax_config_yaml": "seed: 7\ntitle: a & b\n"},
        "gradient_check": {"norms": np.array([3.0, 5.0, 9.0, 20.0]), "cosine": 0.99999, "first_bad": None},
        "exit_message": "converged after 12 iterations: the loss fell by less than 1e-4",
    }
    return InversionResult(**(described | changes))


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
@pytest.mark.parametrize("ndim", GRIDS)
@pytest.mark.slow
def test_the_file_holds_what_was_found(tmp_path, ndim, engine):
    result = found(ndim)
    sought, points, snapshots = result.fields[0], *result.instruments
    with xarray.open_dataset(write_inversion(tmp_path, result), engine=engine) as file:
        for i, (name, offset) in enumerate(zip(sought.names, sought.offsets, strict=True)):
            for suffix, values in (("", sought.estimate), ("_truth", sought.truth), ("_deviation", sought.deviation)):
                variable = file[name + suffix]
                assert values is not None
                np.testing.assert_array_equal(variable, values[i].T)
                assert variable.attrs["units"] == sought.units
                dims = tuple("xyz"[a] + ("_face" if offset[a] == FACE else "") for a in reversed(range(ndim)))
                assert variable.dims == dims
                for axis, dim in zip(reversed(range(ndim)), dims, strict=True):
                    np.testing.assert_array_equal(file[dim], result.grid.coordinates(axis, offset[axis]))
                    assert file[dim].attrs["units"] == "m"
        number = file["physics.viscosity"]
        assert float(number) == 9.8e-4 and number.attrs["truth"] == 1e-3 and number.attrs["units"] == "m2 s-1"
        assert "lower" not in file["parameters.tilt"].attrs
        np.testing.assert_array_equal(file["loss"], result.losses)
        np.testing.assert_array_equal(file[f"measured_{points.name}"], points.measured)
        np.testing.assert_array_equal(file[f"present_{points.name}"], points.present)
        np.testing.assert_array_equal(file[f"time_{points.name}"], points.times)
        np.testing.assert_array_equal(file[f"x_{points.name}"], points.positions[:, 0])
        assert f"x_{points.name}" in file[f"measured_{points.name}"].coords
        seen = file[f"measured_{snapshots.name}"]
        assert seen.dims[1:] == file[sought.names[0]].dims
        np.testing.assert_array_equal(seen, snapshots.measured.transpose(0, *reversed(range(1, ndim + 1))))
        assert file[f"deviation_{snapshots.name}"].dims == seen.dims
        np.testing.assert_array_equal(file["health_norms"], result.gradient_check["norms"])
        assert file.attrs["Conventions"].startswith("CF") and file.attrs["simjax_seed"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["inversion.h5"]


@pytest.mark.parametrize("ndim", GRIDS)
def test_a_run_can_begin_with_the_estimate(tmp_path, ndim):
    result = found(ndim, known=False)
    path, sought = write_inversion(tmp_path, result), result.fields[0]
    with pytest.raises(InputOutputError, match="holds no run but a search; write xarray.open_dataset"):
        open_run(tmp_path)
    for name, offset, values in zip(sought.names, sought.offsets, sought.estimate, strict=True):
        read, _ = read_field(path, name, result.grid, offset, periodic=(True,) * ndim, units=sought.units)
        np.testing.assert_array_equal(read, values)


def test_an_ensemble_has_a_loss_for_each_member(tmp_path):
    losses = np.arange(1.0, 13.0)[:, None] * np.array([1.0, 2.0])
    result = found(
        2, losses=losses, gradient_norms=np.zeros(0), numbers=(), fields=(), instruments=(), gradient_check=None
    )
    with xarray.open_dataset(write_inversion(tmp_path, result), engine="h5netcdf") as file:
        assert file["loss"].dims == ("member", "iteration")
        np.testing.assert_array_equal(file["loss"], losses.T)
        assert "gradient_norm" not in file


def test_what_does_not_fit_is_refused_and_leaves_no_file(tmp_path):
    result = found(2)
    for wrong, message in (
        ({"gradient_norms": np.ones(3)}, "'gradient_norm' has shape"),
        ({"fields": result.fields * 2}, "2 variables named 'vorticity"),
    ):
        with pytest.raises(InputOutputError, match=message):
            write_inversion(tmp_path, dataclasses.replace(result, **wrong))
    assert not list(tmp_path.iterdir())


def ensemble() -> InversionResult:
    """Members of which one fails, numbers without a truth or far from it, and an instrument that is no point."""
    losses = 1e3 * 0.5 ** np.arange(6.0)[:, None] * np.array([1.0, 1.5, 0.7])
    losses[3:, 1] = np.nan
    average = InstrumentResult("0_temperature", "box_average", "temperature", "K", np.ones(1), *np.ones((3, 1, 2)))
    numbers = (
        NumberResult("physics.far", "m", 1e3, 1.0, 1.0, 0.9, 1.1),
        NumberResult("physics.zero", "1", 0.0, 0.0, 0.0),
        NumberResult("physics.unknown", "1", 0.0, np.nan),
    )
    return found(
        2, losses=losses, gradient_norms=np.zeros(0), instruments=(average,), numbers=numbers, gradient_check=None
    )


def without(**changes) -> InversionResult:
    """A search for a field alone, whose arrays are changed."""
    result = found(2, numbers=(), instruments=(), gradient_check=None)
    return dataclasses.replace(result, fields=(dataclasses.replace(result.fields[0], **changes),))


CASES = {
    "1-D": lambda: found(1),
    "1-D, truth unknown": lambda: found(1, known=False),
    "2-D": lambda: found(2),
    "2-D, truth unknown": lambda: found(2, known=False),
    "3-D": lambda: found(3),
    "3-D, truth unknown": lambda: found(3, known=False),
    "ensemble": ensemble,
    "truth but no deviation": lambda: without(deviation=None),
    "truth of zero": lambda: without(truth=(np.zeros((48, 32)),)),
    "not finite": lambda: without(estimate=(np.full((48, 32), np.nan),)),
    "no iterates": lambda: without(iterates=(), iterate_numbers=()),
    "numbers alone": lambda: found(2, fields=()),
    "nothing but a loss": lambda: found(
        2, fields=(), numbers=(), instruments=(), losses=np.ones(1), gradient_norms=np.zeros(0)
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_every_result_is_drawn_and_told_without_a_warning(name, tmp_path):
    result = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_inversion(tmp_path, result)
        drawn = write_pictures(tmp_path, result)
        page = write_inversion_report(tmp_path, result)
    names = {"convergence.png"} | ({"unknowns.png"} if result.numbers or result.fields else set())
    names |= {"residuals.png"} if result.instruments else set()
    names |= {"search.webp"} if any(sought.iterates for sought in result.fields) else set()
    assert {path.name for path in drawn} == names
    for path in drawn:
        with Image.open(path) as picture:
            assert np.asarray(picture.convert("L")).std() > 2  # something is drawn
    text = page.read_text(encoding="utf-8")
    for sought in (*result.numbers, *result.fields):
        assert f"<td>{sought.path}</td>" in text
    assert text.count("data:image/") == len(drawn)
    assert page.stat().st_size < 3_000_000
    assert {path.name for path in tmp_path.iterdir()} == {"inversion.h5", "report.html"} | names


@pytest.mark.parametrize("kind, reference", [("snapshot", "measured"), ("target", "target")])
def test_the_last_snapshot_is_drawn_beside_what_was_measured_or_wanted(kind, reference):
    _, snapshot = instruments(GRIDS[3], "vorticity", (CENTER,) * 3)
    result = found(3, instruments=(dataclasses.replace(snapshot, kind=kind),))
    *others, together, alone = _residual_rows(result)
    # The normal distribution is that of noise.
    assert len(others) == (kind != "target")
    assert together.heading == "Vorticity (at t = 2 s) at z = 0.55 m"
    middle = GRIDS[3].shape[2] // 2
    shown = {panel.title.partition(",")[0]: panel.values for panel in together.panels}
    assert list(shown) == [reference, "guess", "estimate"]
    np.testing.assert_array_equal(shown[reference], snapshot.measured[-1][..., middle].T)
    (error,) = alone.rows[0].panels if hasattr(alone, "rows") else alone.panels
    assert error.title == f"estimate − {reference}"


def test_the_band_around_a_profile_holds_95_percent_of_a_normal_distribution():
    bands, x, estimate, deviation = [], np.arange(3.0), np.array([1.0, -2.0, 0.5]), np.array([0.1, 0.3, 0.2])
    versions = {"estimate": estimate[None], "deviation": deviation[None]}
    sought = SimpleNamespace(versions=versions, names=("vorticity",), path="initial.vorticity")
    row = ProfileRow(sought, 0, SimpleNamespace(coordinate=lambda axis: x), np.zeros((0, 1)))
    row._band(SimpleNamespace(fill_between=lambda x, low, high, **style: bands.append((low, high))), estimate)
    ((low, high),) = bands
    # Two digits after the point are enough for a picture.
    np.testing.assert_allclose((high - estimate) / deviation, 1.959964, rtol=1e-4)
    np.testing.assert_allclose((estimate - low) / deviation, 1.959964, rtol=1e-4)


def test_the_page_tells_what_was_found(tmp_path):
    result = found(2)
    write_inversion(tmp_path, result)
    text = write_inversion_report(tmp_path, result).read_text(encoding="utf-8")
    for told in (
        result.title,
        result.command,
        "Converged after 12 iterations",
        result.notes[0],
        "a &amp; b",
        "<td>0.001 m² s⁻¹</td><td>0.002 m² s⁻¹</td><td>9.8×10⁻⁴ m² s⁻¹</td>",
        "9.3×10⁻⁴ to 0.00104 m² s⁻¹",
        "<td>2 %</td>",
        "3, 5, 9, 20",
        "<td>138</td>",
        "variable: [vorticity]",
    ):
        assert told in text
    error = np.linalg.norm(result.fields[0].estimate[0] - result.fields[0].truth[0])
    assert f"<td>{100 * error / np.linalg.norm(result.fields[0].truth[0]):.3g} %</td>" in text


@pytest.mark.parametrize("known", [True, False])
def test_tables_have_no_column_of_which_nothing_is_known(tmp_path, known):
    text = write_inversion_report(tmp_path, found(2, known=known)).read_text(encoding="utf-8")
    for head in ("Truth", "95 % interval", "Relative error", "Relative L2 error of the guess", "of the estimate"):
        assert text.count(f"<th>{head}</th>") == known, head


@pytest.mark.slow
def test_hostile_text_stays_text(tmp_path):
    plain = dict.fromkeys(("title", "command", "solver", "exit_message"), flows.HOSTILE)
    numbers = (NumberResult(flows.HOSTILE, flows.HOSTILE, 1.0, 2.0),)
    result = found(2, **plain, numbers=numbers, notes=(flows.HOSTILE,), attributes={flows.HOSTILE: flows.HOSTILE * 2})
    write_pictures(tmp_path, result)
    text = write_inversion_report(tmp_path, result).read_text(encoding="utf-8")
    assert "<script" not in text and "<img src=x" not in text


@pytest.mark.slow
def test_the_animation_shows_the_estimate_beside_the_truth(tmp_path):
    paths = {known: tmp_path / str(known) for known in (True, False)}
    for known, folder in paths.items():
        folder.mkdir()
        write_pictures(folder, found(2, known=known))
    with Image.open(paths[True] / "search.webp") as beside, Image.open(paths[False] / "search.webp") as alone:
        assert beside.n_frames == alone.n_frames == 6  # pyright: ignore[reportAttributeAccessIssue]
        assert beside.width > 1.3 * alone.width
        truth, first = (half(beside, 0, side) for side in (0, 1))
        _, last = (half(beside, 5, side) for side in (0, 1))
        assert np.abs(last - truth).mean() < 0.2 * np.abs(first - truth).mean()


def half(animation: Image.Image, frame: int, side: int) -> np.ndarray:
    """A piece in the middle of the left or the right panel."""
    animation.seek(frame)
    pixels = np.asarray(animation.convert("RGB"), float)
    left = (80, 469)[side]
    return pixels[120:300, left : left + 330]
