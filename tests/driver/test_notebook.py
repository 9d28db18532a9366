"""What a notebook shows of simulations, grids and results, and the bar of a run."""

import re
import sys
import types

import pytest

import simjax as sj
from simjax import notebook
from simjax.driver.loop.progress import Progress

SMALL = {
    "physics": {"viscosity": 0.01},
    "grid": {"shape": [16, 16]},
    "time": {"end": 0.02, "dt": 0.01, "output_every": 0.01},
    "initial": {"velocity": ["sin(2*pi*y)", "0"]},
    "output": {"report": False, "animation": False},
}


@pytest.fixture
def run(tmp_path):
    sections = {**SMALL, "output": {**SMALL["output"], "root": str(tmp_path)}}
    return sj.configure("incompressible", title="A <shear> layer", **sections)


def test_a_grid_shows_its_cells_and_its_box():
    shown = sj.Grid((4, 8, 2), upper=(1.0, 2.0, 0.5))._repr_html_()
    assert "4 × 8 × 2" in shown and "[0, 2]" in shown and "<svg" in shown
    # A box of three axes has depth: a top and a side beside its front.
    assert shown.count("<path") >= 2


def test_a_simulation_says_what_it_is_and_escapes_it(run):
    shown = run._repr_html_()
    assert "A &lt;shear&gt; layer" in shown and "<shear>" not in shown
    for text in ("incompressible", "16 × 16", "to 0.02 s", "steps of 0.01"):
        assert text in shown
    assert "Incompressible" in run.model._repr_html_()


@pytest.mark.slow
def test_a_result_draws_itself(run, tmp_path):
    result = run.run()
    picture = result.plot()
    assert picture.content.startswith(b"\x89PNG") and "data:image/png;base64," in picture._repr_html_()
    assert picture.save(tmp_path / "run.png").read_bytes() == picture.content
    with pytest.raises(sj.ConfigurationError, match=r"write 'run\.png'"):
        picture.save(tmp_path / "run.jpg")
    form = result.plot("velocity_x", limits=(-1, 1), palette="haline", format="svg")
    assert b"<svg" in form.content and "data:image/svg+xml;base64," in form._repr_html_()
    for said, call in (
        ("plot: variable='vort': expected one of 'vorticity'", lambda: result.plot("vort")),
        ("plot: limits=3: expected two rising numbers", lambda: result.plot(limits=3)),
        ("plot: palette='hot': expected one of 'diverging'", lambda: result.plot(palette="hot")),
        ("animate: format='png': expected one of 'webp', 'gif', 'mp4'", lambda: result.animate(format="png")),
    ):
        with pytest.raises(sj.ConfigurationError, match=re.escape(said)):
            call()
    animation = result.animate()
    assert animation.content[8:12] == b"WEBP"
    assert "velocity_x" in result._repr_html_() and "16 × 16 cells, 3 frames" in result._repr_html_()


@pytest.mark.slow
def test_a_run_without_fields_has_no_animation(tmp_path):
    sections = {**SMALL, "output": {**SMALL["output"], "root": str(tmp_path), "fields": []}}
    result = sj.configure("incompressible", **sections).run()
    with pytest.raises(sj.ConfigurationError, match="expected a run with fields at several times"):
        result.animate()


class Shown:
    """Stands for the display of a notebook, and keeps what is shown."""

    def __init__(self):
        self.pages = []

    def module(self):
        module = types.ModuleType("IPython.display")
        module.HTML = lambda html: html
        module.display = lambda html, display_id: (self.pages.append(html), self)[1]
        return module

    def update(self, html):
        self.pages.append(html)


@pytest.mark.slow
def test_a_run_in_a_notebook_shows_a_bar(run, monkeypatch):
    shown = Shown()
    monkeypatch.setitem(sys.modules, "IPython.display", shown.module())
    monkeypatch.setattr("simjax.driver.simulation.in_notebook", lambda: True)
    monkeypatch.setattr("simjax.driver.loop.progress.in_notebook", lambda: True)
    run.run()
    assert "compiling" in shown.pages[0]
    assert "width:100.0%" in shown.pages[-1] and "completed" in shown.pages[-1]


@pytest.mark.slow
def test_elsewhere_there_is_no_bar(run, capsys):
    assert not notebook.in_notebook()
    run.run()
    assert capsys.readouterr().out == ""


def test_the_bar_is_filled_by_the_simulated_time():
    progress = Progress("run", 2.0, 10)
    progress.update(0.5, 3, 1e6, {"courant": 0.25})
    assert re.search(r"width:25\.0%", notebook.bar(progress.title, progress.fraction, []))
