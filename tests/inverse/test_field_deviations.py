"""Error bars of fields that a model projects or cuts, against posteriors that are known exactly in Fourier space."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from inverse_problems import BASE, FIELD, SNAPSHOT

import simjax as sj
from simjax.config import validate
from simjax.inverse import estimate
from simjax.inverse import search as sj_search
from simjax.inverse.estimate import answer
from simjax.inverse.methods.laplace import draw_keys, posterior_draws
from simjax.inverse.search import belonging
from simjax.io.field_draws import FieldDraws

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
    # The posterior is as wide everywhere.
    found = answer(problem, problem.start(), None, lambda draws: numbers.append(draws.number))
    assert numbers == list(range(4, DRAWS + 1, 4)) and not found.doubts
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


DYE = {**BASE, "grid": {"shape": [8, 8]}, "time": {"end": 0.1, "output_every": 0.1, "dt": 0.05}, "outputs": None}


POSED = {"unknowns": FIELD, "observations": [SNAPSHOT]}


def search(root, samples=6):
    inverse = {**POSED, "uncertainty": {"samples": samples}}
    solver = {"name": "gauss_newton", "iterations": 1}
    output = {"root": str(root), "report": False}
    return sj.Search(validate({**DYE, "output": output, "inverse": {**inverse, "solver": solver}}))


def deviation(found):
    return found.answer.deviations["initial.concentration"][0]


@pytest.mark.slow
def test_draws_stop_where_the_time_is_up_and_go_on_bit_for_bit(tmp_path, monkeypatch, capsys):
    reached = []
    monkeypatch.setattr("simjax.inverse.search.limit_reached", lambda *_: reached[0] if reached else None)
    answer_of = sj_search.answer

    def out_of_time(*given):
        reached.append("the wall-clock limit of 9 s")
        return answer_of(*given)

    monkeypatch.setattr("simjax.inverse.search.answer", out_of_time)
    stopped = search(tmp_path).run(progress=True, on_stop="return")
    assert stopped.exit_code == 75
    assert stopped.message == "stopped by the wall-clock limit of 9 s at draw 4 of 6 after 1 iterations, resumable"
    monkeypatch.undo()
    solved = []
    batch = estimate.draw_keys
    monkeypatch.setattr(estimate, "draw_keys", lambda numbers: solved.append(list(numbers)) or batch(numbers))
    found = search(tmp_path).run(resume=stopped.folder, progress=True)
    shown = capsys.readouterr().out
    assert "up to 6 draws" in shown and "draw 4/6" in shown
    assert found.exit_code == 0 and solved == [[4, 5, 6, 7]]
    again = search(tmp_path).run(resume=stopped.folder)  # what has finished draws nothing
    assert len(solved) == 1
    more = search(tmp_path, 8).run(resume=stopped.folder)
    assert solved[1:] == [[6, 7, 8, 9]]
    straight, at_once = search(tmp_path).run(), search(tmp_path, 8).run()
    assert solved[2:] == 2 * [[0, 1, 2, 3], [4, 5, 6, 7]]
    np.testing.assert_array_equal(deviation(straight), deviation(found))
    np.testing.assert_array_equal(deviation(again), deviation(found))
    # Draws are solved in other company, with other roundings, which conjugate gradients leave 1e-4 of.
    np.testing.assert_allclose(deviation(more), deviation(at_once), rtol=1e-3)
    assert not np.allclose(deviation(more), deviation(found), rtol=1e-2)


def test_draws_of_another_problem_are_not_taken_over(tmp_path):
    draws = FieldDraws()
    draws.add({"initial.u": (np.ones(3),)}, 0.0)
    draws.add({"initial.u": (np.full(3, 3.0),)}, 1e-5)
    draws.store(tmp_path, "this")
    kept = FieldDraws.stored(tmp_path, "this")
    assert kept.number == 2 and kept.left == 1e-5
    np.testing.assert_array_equal(kept.deviations()["initial.u"], np.ones((1, 3)))  # of 1 and 3 about 2
    assert FieldDraws.stored(tmp_path, "that").number == 0
    config, other = (validate({**DYE, "inverse": {**POSED, "solver": {"iterations": n}}}) for n in (1, 2))
    latent = {"initial.u": jnp.ones(3)}
    texts = {belonging(config, latent), belonging(other, latent), belonging(config, {"initial.u": jnp.zeros(3)})}
    assert len(texts) == 3
    more = validate({**DYE, "inverse": {**POSED, "solver": {"iterations": 1}, "uncertainty": {"samples": 9}}})
    assert belonging(more, latent) in texts


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"x": 2, "y": 4}, {"x": 4, "y": 2}], ids=["2x4", "4x2"])
def test_draws_do_not_depend_on_the_mesh(sizes):
    config = validate(FLOW)

    def drawn(sizes):
        problem = sj.InverseProblem(config, sizes=sizes)
        draws = eqx.filter_jit(posterior_draws)(problem.least_squares(), problem.start(), draw_keys(range(4)))
        return np.asarray(draws.samples["initial.velocity"][0])

    # Conjugate gradients leave 1e-4 of what a draw is sought for, so up to 1e-3 of it.
    one, many = drawn({}), drawn(sizes)
    assert np.abs(many - one).max() < 1e-3 * np.abs(one).max()
    assert np.abs(one[0] - one[1]).max() > 0.1  # each has noise of its own
