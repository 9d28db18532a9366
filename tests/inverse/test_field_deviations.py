"""Error bars of fields that a model projects or cuts, against posteriors that are known exactly in Fourier space."""

import numpy as np
import pytest
from inverse_problems import BASE, FIELD, SNAPSHOT

import simjax as sj
from simjax.config import validate
from simjax.inverse import search as sj_search
from simjax.inverse.estimate import answer

N, NU, DT = 8, 0.05, 0.05
NOISE, PRIOR = 0.1, 2.0
DRAWS = 60
INDEX = np.fft.fftfreq(N, 1 / N)
KX, KY = np.meshgrid(INDEX, INDEX, indexing="ij")


def posed(model, field, values, **more):
    """A field that only decays: the run is linearised at rest, where nothing is carried, so that this is exact."""
    unknown = {
        "guess": "0" if isinstance(values, str) else ["0", "0"],
        "prior": {"gaussian": {"mean": 0, "deviation": PRIOR}},
    }
    inverse = {
        "unknowns": {f"initial.{field}": unknown},
        "observations": [{"output": "fields", "of": field, "deviation": NOISE}],
        "solver": {"name": "gauss_newton", "iterations": 1},
        "uncertainty": {"samples": DRAWS},
    }
    return {
        "model": model,
        "grid": {"shape": [N, N], "upper": ["2*pi", "2*pi"]},
        "physics": {"viscosity": NU},
        "precision": "float64",
        "initial": {field: values},
        "time": {"end": 2 * DT, "output_every": DT, "dt": DT, **more},
        "inverse": inverse,
    }


FLOW = posed("incompressible", "velocity", ["sin(y)", "0.2*cos(x)"], integrator="euler")
WAVES = posed("vorticity", "vorticity", "sin(y)*cos(x)")


def deviations(config):
    """Pointwise ones of all components, and the problem."""
    problem, numbers = sj.InverseProblem(validate(config)), []
    found = answer(problem, problem.start(), None, numbers.append)  # the posterior is as wide everywhere
    assert numbers == list(range(1, DRAWS + 1)) and not found.doubts
    (of_field,) = found.deviations.values()
    return np.asarray(of_field), problem


def require(found, modes, decay, problem, components):
    """`modes`: how many degrees of freedom the model has at each wavenumber; `decay`: by the time t of an amplitude."""
    precision = PRIOR**-2 + sum(decay(t) ** 2 for t in problem.instruments[0].times) / NOISE**2
    exact = (np.sum(modes / precision) / (components * N**2)) ** 0.5
    biased = exact * (1 - 1 / DRAWS) ** 0.5  # of the mean of the draws
    # Draws and degrees of freedom are that many normal numbers: four standard errors of their root mean square.
    tolerance = 4 / (2 * DRAWS * np.sum(modes)) ** 0.5
    assert np.mean(found**2) ** 0.5 == pytest.approx(biased, rel=tolerance)


@pytest.mark.slow
def test_a_velocity_has_no_error_in_its_divergence():
    """One of two components of each wave, both of the mean; by Euler's scheme and differences of second order."""
    found, problem = deviations(FLOW)
    h = 2 * np.pi / N
    step = 1 - NU * DT * (4 / h**2) * (np.sin(KX * h / 2) ** 2 + np.sin(KY * h / 2) ** 2)
    modes = np.where((KX == 0) & (KY == 0), 2, 1)
    require(found, modes, lambda t: step ** (t / DT), problem, components=2)


@pytest.mark.slow
def test_a_vorticity_has_no_error_in_waves_that_are_cut():
    """Of eight points 2/3 of the wavenumbers are -2 to 2, and a vorticity has no mean."""
    found, problem = deviations(WAVES)
    square = KX**2 + KY**2
    modes = (abs(KX) <= 2) & (abs(KY) <= 2) & (square > 0)
    require(found, modes, lambda t: np.exp(-NU * square * t), problem, components=1)


def taken(sizes):
    draw = np.random.default_rng(0).normal(size=(2, N, N))
    problem = sj.InverseProblem(validate(FLOW), sizes=sizes)
    return draw, np.asarray(problem.taken({"initial.velocity": tuple(draw)})["initial.velocity"])


def test_a_draw_is_the_flow_that_a_run_begins_with():
    draw, (u, v) = taken({})
    divergence = np.roll(u, -1, 0) - u + np.roll(v, -1, 1) - v
    assert np.abs(divergence).max() < 1e-13  # some roundings of numbers of order one
    # What is taken away is a gradient: orthogonal to every flow, and half of a random field.
    gone = draw - (u, v)
    assert abs(np.sum(gone * (u, v))) < 1e-12 and 0.3 < np.sum(gone**2) / np.sum(draw**2) < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"x": 2, "y": 4}, {"x": 4, "y": 2}], ids=["2x4", "4x2"])
def test_what_is_taken_does_not_depend_on_the_mesh(sizes):
    np.testing.assert_allclose(taken(sizes)[1], taken({})[1], rtol=0, atol=1e-13)  # transforms of other lengths


DYE = {**BASE, "grid": {"shape": [8, 8]}, "time": {"end": 0.1, "output_every": 0.1, "dt": 0.05}}


def search(root):
    inverse = {"unknowns": FIELD, "observations": [SNAPSHOT], "uncertainty": {"samples": 3}}
    solver = {"name": "gauss_newton", "iterations": 1}
    output = {"root": str(root), "report": False}
    return sj.Search(validate({**DYE, "outputs": None, "output": output, "inverse": {**inverse, "solver": solver}}))


@pytest.mark.slow
def test_draws_are_shown_and_stop_where_the_time_is_up(tmp_path, monkeypatch, capsys):
    reached = []
    monkeypatch.setattr("simjax.inverse.search.limit_reached", lambda *_: reached[0] if reached else None)
    answer_of = sj_search.answer

    def out_of_time(*given):
        reached.append("the wall-clock limit of 9 s")
        return answer_of(*given)

    monkeypatch.setattr("simjax.inverse.search.answer", out_of_time)
    stopped = search(tmp_path).run(progress=True, on_stop="return")
    assert stopped.exit_code == 75
    assert stopped.message == "stopped by the wall-clock limit of 9 s at draw 1 of 3 after 1 iterations, resumable"
    monkeypatch.undo()
    found = search(tmp_path).run(resume=stopped.folder, progress=True)
    assert found.exit_code == 0 and found.answer.deviations["initial.concentration"][0].shape == (8, 8)
    shown = capsys.readouterr().out
    assert "up to 3 draws" in shown and "draw 1/3" in shown
