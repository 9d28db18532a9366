"""A potential of a user's own, named by module and class, runs like those of simjax."""

import re
import sys

import numpy as np
import pytest
from paths import ROOT

import simjax as sj
from simjax import run
from simjax.config import load_config
from simjax.errors import ConfigurationError
from simjax.models.molecular.part_registry import POTENTIALS

PAGE = (ROOT / "docs" / "molecular-dynamics.md").read_text(encoding="utf-8")
FILE, SCRIPT = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "my_forces" in block]
MELT = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
YUKAWA = '''

class Screened(sj.DistancePotential):
    """Screened charges: U = strength exp(-screening r) / r."""

    parameters = {"strength": 1.0, "screening": 1.0}

    def at(self, r, here, there, params):
        return params["strength"] * jnp.exp(-params["screening"] * r) / r


number = 1
'''
QUIET = [
    "model=molecular_dynamics",
    "box.upper=[8,8]",
    "particles.placement=square",
    "particles.count=36",
    "physics.cutoff=1.7",
    "particles.temperature=1",
    "time={end: 0.05, output_every: 0.05, dt: 0.005}",
    "precision=float64",
    "physics.mode=force_shifted",
    "output.report=false",
    "output.animation=false",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a user's file."""
    (tmp_path / "my_forces.py").write_text(FILE + YUKAWA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_forces", None)
    for name in [name for name in POTENTIALS if "." in name]:
        POTENTIALS._declared.pop(name)


def screened(position):
    """Energy of particles `(count, 2)` in a periodic box of 8: force-shifted pairs of 3 exp(-r / 2) / r up to 1.7."""
    apart = position[:, None] - position[None]
    r = np.sqrt(np.sum((apart - 8 * np.round(apart / 8)) ** 2, axis=-1))[np.triu_indices(len(position), 1)]
    edge = 3 * np.exp(-0.85) / 1.7
    pairs = 3 * np.exp(-r / 2) / r - edge + (r - 1.7) * edge * (1 / 2 + 1 / 1.7)
    return np.sum(pairs, where=r < 1.7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh",
    [pytest.param([], id="one device"), pytest.param(["mesh.x=2", "mesh.y=2"], id="2x2")],
)
def test_a_potential_of_a_file_is_that_of_simjax(folder, mesh):
    """The screened charges of a user's file move as simjax's own, also where they are decomposed."""
    named = {"own": "my_forces.Screened", "yukawa": "yukawa"}
    ends = {}
    for folder_name, name in named.items():
        chosen = f"physics.potential={{{name}: {{strength: 3, screening: 0.5}}}}"
        assert run.main([*QUIET, *mesh, chosen, f"output.folder=outputs/{folder_name}"]) == 0
        ends[folder_name] = sj.open_run(f"outputs/{folder_name}").isel(time=-1)
        # Rounding, of some hundred pairs.
        assert ends[folder_name].potential_energy == pytest.approx(
            screened(ends[folder_name].position.values), rel=1e-11
        )
    # Rounding: the same sums, written in another order of factors.
    np.testing.assert_allclose(ends["own"].position, ends["yukawa"].position, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ends["own"].energy, ends["yukawa"].energy, rtol=1e-12)


@pytest.mark.slow
def test_the_lines_of_the_page(folder, monkeypatch):
    names = {}
    exec(SCRIPT, names)
    result, potential = names["result"], names["simulation"].config.physics.potential
    assert potential.name == "my_forces.Gaussian" and (potential.keys.width, potential.keys.height) == (0.8, 2)
    energy = result.ds.energy.values
    # Velocity Verlet keeps the energy to the square of its step times a frequency: here (0.01)^2 of about 500 kT.
    assert np.ptp(energy) < 1e-4 * abs(energy[0])
    # The run goes on from its folder, which names the file.
    assert run.main([f"resume={result.folder}", "time.end=0.6", "output.report=false", "output.animation=false"]) == 0


def test_the_melt_of_the_page_is_a_configuration(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "melt.yaml").write_text(f"# @package _global_\n{MELT}")
    physics = load_config("melt", config_dir=tmp_path).physics
    assert (physics.bond.name, physics.bond.keys.extension, physics.angle.keys.stiffness) == ("fene", 1.5, 2)


@pytest.mark.parametrize(
    ("potential", "said"),
    [
        ("my_forces.Gaussian: {width: wide}", "physics.potential.my_forces.Gaussian.width = 'wide': expected a finite"),
        ("my_forces.Gaussian: {size: 1}", "my_forces.Gaussian.size: unknown key; known here: height, width"),
        ("my_forces.Gausian: {}", "has no class Gausian; did you mean my_forces.Gaussian?"),
        ("my_force.Gaussian: {}", "physics.potential=my_force.Gaussian: no module my_force; expected my_force.py"),
        ("my_forces.number: {}", "my_forces.number: expected a class of a potential, a subclass of Interaction; got 1"),
    ],
)
def test_what_is_wrong_with_it_is_told(folder, potential, said, capsys):
    with pytest.raises(ConfigurationError) as error:
        load_config(None, [*QUIET, f"physics.potential={{{potential}}}"])
    assert said in str(error.value)


def test_a_model_that_there_is_not():
    with pytest.raises(ConfigurationError, match="configure.'molecular_dynamic'.*did you mean 'molecular_dynamics'"):
        sj.configure("molecular_dynamic")
    with pytest.raises(ConfigurationError, match="models of particles are known by their names; write 'molecular_d"):
        sj.configure(sj.MolecularDynamics)
