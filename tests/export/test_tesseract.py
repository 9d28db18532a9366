"""An export is a Tesseract that gives the run's results and gradients, where simjax is not installed."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import simjax as sj
from simjax.export.__main__ import main

SMALL = ["grid.shape=[12,10]", "time.end=0.2", "time.output_every=0.1", "time.dt=0.05", "precision=float64"]

ALONE = """
import sys
sys.modules["simjax"] = None  # importing it fails
import json
from pathlib import Path
import numpy as np
from tesseract_core import Tesseract
from tesseract_core.sdk.api_parse import validate_tesseract_api

validate_tesseract_api(Path("."))  # as before a container is built
made = Tesseract.from_tesseract_api("tesseract_api.py")
given = dict(np.load("arguments.npz"))
inputs = {"initial": {"concentration": given.pop("initial.concentration")}, **given}
paths, output = ["diffusivity", "initial.concentration"], "variance_concentration"
results = made.apply(inputs)
gradients = made.vector_jacobian_product(inputs, paths, [output], {output: np.asarray([0.0, 2.0, 1.0])})
rows = made.jacobian(inputs, paths, [output])[output]
field = {"shape": [12, 10], "dtype": "float64"}
shapes = {name: {"shape": [], "dtype": "float64"} for name in given}
told = made.abstract_eval({"initial": {"concentration": field}, **shapes})
print(json.dumps({
    "results": {name: np.asarray(u).tolist() for name, u in results.items()},
    "gradients": {name: np.asarray(u).tolist() for name, u in gradients.items()},
    "rows": {name: np.asarray(u).tolist() for name, u in rows.items()},
    "shapes": {name: list(one["shape"]) for name, one in told.items()},
}))
"""


@pytest.mark.long
def test_a_tesseract_is_the_run(tmp_path):
    """It needs the extra `tesseract`, whose upper bounds suit an environment of its own."""
    assert main(["experiment=dye", *SMALL, "--folder", str(tmp_path), "--tesseract"]) == 0
    (tmp_path / "alone.py").write_text(ALONE, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "alone.py"], cwd=tmp_path, env={**os.environ, "XLA_FLAGS": ""}, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    told = json.loads(process.stdout.splitlines()[-1])

    run = sj.load("dye", SMALL).differentiable(fields=["initial.concentration"])

    def variance(number, start):
        return run({"diffusivity": number}, {"initial.concentration": (start,)}).observed["variance_concentration"]

    arguments = jax.numpy.asarray(run.values["diffusivity"]), run.fields["initial.concentration"][0]
    wanted, back = jax.vjp(variance, *arguments)
    assert wanted[0] > wanted[-1] > 0  # the dye spreads
    close = {"rtol": 1e-12, "atol": 1e-15}  # the same program, compiled by itself: its rounding
    np.testing.assert_allclose(told["results"]["variance_concentration"], wanted, **close)
    gradients, rows = back(np.asarray([0.0, 2.0, 1.0])), jax.jacrev(variance, (0, 1))(*arguments)
    for number, name in enumerate(["diffusivity", "initial.concentration"]):
        np.testing.assert_allclose(told["gradients"][name], gradients[number], **close)
        np.testing.assert_allclose(told["rows"][name], rows[number], **close)
    assert told["shapes"] == {name: list(np.shape(u)) for name, u in run().observed.items()}


def test_a_tesseract_without_gradients_is_refused(tmp_path, capsys):
    assert main(["experiment=dye", "vjp_order=0", "--folder", str(tmp_path), "--tesseract"]) == 2
    assert "vjp_order=0: expected 1 for a Tesseract, which has gradients." in capsys.readouterr().err
