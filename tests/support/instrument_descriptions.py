"""Files of one instrument of each kind as other tools read them: run as a script it writes the reference anew."""

import json
import tempfile
from pathlib import Path

import numpy as np
import xarray
from configurations import changed
from paths import ROOT

from simjax.config import validate
from simjax.driver.output.instrument_output import InstrumentOutput
from simjax.driver.programs.programs_of_instruments import CompiledInstruments
from simjax.driver.programs.programs_of_run import compiled_run

REFERENCE = ROOT / "tests" / "reference" / "instrument_files.json"
QUIET = {"report": False, "animation": False}
FIELDS = {
    "model": "boussinesq",
    "grid": {"shape": [8, 8]},
    "physics": {"viscosity": 0.05, "diffusivity": 0.05, "gravity": [0.0, -1.0]},
    "coefficients": {"solid": "sqrt((x - 0.5)**2 + (y - 0.47)**2) - 0.2", "solid_temperature": 1},
    "initial": {"velocity": ["1", "0"], "temperature": "sin(2*pi*x)"},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    "precision": "float64",
    "output": QUIET,
    "outputs": [
        {"probe": {"points": [[0.2, 0.3], [0.9, 0.99]]}, "of": ["pressure", "speed"], "every": "step"},
        {"slice": {"y": 0.3}, "of": ["velocity", "pressure"], "every": 0.02},
        {"line": {"from": [0.1, "1/5"], "to": [0.9, 0.6], "points": 3}, "of": "temperature"},
        {"box_mean": {"lower": [0, 0.25], "upper": [0.5, 0.75]}, "of": "pressure"},
        {"spectrum": ["velocity", "temperature"], "shells": 2, "every": "step"},
        {"spectrum": "pressure", "along": "y"},
        {"histogram": {"bins": 2, "lower": -0.5, "upper": 0.5}, "of": ["velocity_y", "temperature"]},
        {"histogram": {"bins": 2, "lower": -0.5, "upper": 0.5}, "of": "temperature", "name": "heat"},
        {"surface_integral": {"lower": [0.125, 0.25], "upper": [0.75, 1.0]}, "of": ["velocity", "pressure"]},
        {"surface_integral": {"x": 0.3}, "of": "velocity"},
        {"structure_function": ["velocity", "temperature"], "along": "y", "order": 3},
        {"correlation": ["pressure", "temperature"], "along": "x", "separations": [0, 0.25]},
        {"correlation": "pressure", "along": "x", "normalised": False},
        {"line_of_sight": {"from": [[0, 0.5], [0.1, 0.1]], "to": [[1, 0.5], [0.9, 0.3]]}, "of": "temperature"},
        {"diagnostic": ["kinetic_energy", "force_x"], "every": "step"},
        {"body_surface": {"around": [0.5, 0.47], "points": 3}, "every": "step"},
        {"body_surface": {"points": [[0.2, 0.3]]}, "of": ["temperature", "temperature_flux"]},
    ],
}
SCALAR = {
    "model": "transport",
    "grid": {"shape": [8, 4]},
    "physics": {"scheme": "van_leer"},
    "parameters": {"height": 1.0},
    "coefficients": {"velocity": ["1", "0"]},
    "initial": {"concentration": "height*sin(2*pi*x)"},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    "output": QUIET,
    "outputs": [{"balance": "concentration"}],
    "ensemble": {"size": 2, "vary": {"parameters.height": {"values": [1.0, 0.5]}}},
}
PARTICLES = {
    "model": "molecular_dynamics",
    "precision": "float64",
    "physics": {"potential": "lennard_jones", "cutoff": 2.0, "mode": "shifted"},
    "box": {"upper": [9.0, 9.0]},
    "particles": {"placement": "square", "count": 64, "temperature": 1.0},
    "time": {"end": 0.02, "output_every": 0.01, "dt": 0.005},
    "output": QUIET,
    "outputs": [
        {"radial_distribution": [0.9, 1.1], "width": 0.05},
        {"mean_square_displacement": None, "every": "step"},
        {"tracks": {"ids": [5, 63]}, "every": "step"},
        {"density": {"shape": [6, 4]}, "of": ["number_density", "velocity", "temperature"]},
        {"density": {"shape": [6, 4]}},
        {"diagnostic": "temperature", "every": "step"},
        {"balance": ["momentum_x", "energy"]},
    ],
}
WAVES = {
    "model": "acoustic",
    "grid": {"shape": [8, 6]},
    "physics": {"receivers": [[0.2, 0.3], [0.9, 0.99]]},
    "initial": {"pressure": "sin(2*pi*x)"},
    "time": {"end": 0.02, "output_every": 0.02, "dt": 0.01},
    "output": QUIET,
    "outputs": [{"receivers": None, "every": "step"}],
}
CASES = {"fields": FIELDS, "scalar": SCALAR, "particles": PARTICLES, "waves": WAVES}


def descriptions(name, root):
    """The section `outputs` as it is written, and the variables of each file with all but what would be computed."""
    config = validate(changed(CASES[name], {}))
    files = InstrumentOutput(root / name, CompiledInstruments(compiled_run(config)), {}, None)
    files.close(True)
    found = {"outputs": config.outputs.write()}
    for one in config.outputs:
        with xarray.open_dataset(root / name / "outputs" / one.name / "samples.h5", decode_times=False) as dataset:
            found[one.name] = {str(key): _described(variable) for key, variable in dataset.variables.items()}
    return found


def _described(variable):
    attributes = {key: value for key, value in variable.attrs.items() if key != "_FillValue"}
    about = {"dims": variable.dims, "dtype": str(variable.dtype), **attributes}
    if "time" not in variable.dims:
        about["values"] = np.round(np.asarray(variable.values, np.float64), 12)
    return json.loads(json.dumps(about, default=lambda value: value.tolist()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = {name: descriptions(name, Path(folder)) for name in CASES}
    REFERENCE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
