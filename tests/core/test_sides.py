"""Declarations of sides: a kind of a user's own, and names that are not declared."""

import subprocess
import sys

import pytest
from paths import ROOT

import simjax as sj
from simjax.config import validate
from simjax.schema import side_declarations
from simjax.schema.side_declarations import declared_sides, sides_of

DYE = {
    "model": "advection_diffusion",
    "physics": {"diffusivity": 0.1, "velocity": [0]},
    "grid": {"shape": [8]},
    "time": {"end": 1, "output_every": 1, "dt": 0.01},
    "initial": {"concentration": "x"},
}


def test_a_side_of_ones_own_is_a_kind_in_configurations(monkeypatch):
    monkeypatch.setattr(side_declarations, "_DECLARED", declared_sides())

    @sj.side("draining", groups=("scalar",), about="loses what reaches it", keys=(sj.FieldSchema("speed"),))
    class Draining(sj.Side):
        speed: float

        def velocity_boundary(self, component, axis):
            return sj.Dirichlet(0.0)

        def scalar_boundary(self):
            return sj.Robin(self.speed)

    config = validate({**DYE, "boundaries": {"x": {"lower": {"kind": "draining", "speed": 3.0}, "upper": "draining"}}})
    assert [side.kind for side in (config.boundaries[0].lower, config.boundaries[0].upper)] == ["draining"] * 2
    assert config.boundaries[0].lower.write() == {"kind": "draining", "speed": 3.0}
    pair = (Draining(1.0), sj.Outflow())
    assert sj.AdvectionDiffusion(sj.Domain(sj.Grid((8,))), [pair]).layout.boundaries[0][0] == sj.Robin(1.0)
    with pytest.raises(sj.ConfigurationError, match="of the kinds periodic, no_slip, inflow, outflow, slip, open"):
        sj.Incompressible(sj.Domain(sj.Grid((8, 8))), [pair, pair])
    with pytest.raises(sj.ConfigurationError, match="did you mean 'draining'"):
        validate({**DYE, "boundaries": {"x": "drainin"}})


def test_a_group_that_no_side_is_declared_for_is_told():
    assert list(sides_of(("scalar.neumann",))) == ["neumann"]
    with pytest.raises(sj.ConfigurationError, match="'scalr'; write some of .*scalar.neumann"):
        sides_of(("scalr",))


@pytest.mark.parametrize("order", [1, -1])
def test_modules_are_known_by_the_groups_of_their_sides(order):
    """A module that is missing for a group is not missed where another group has brought it: so both orders."""
    program = f"""
from simjax.schema.side_declarations import HOMES, declared_sides, sides_of
groups = sorted({{group for own in HOMES.values() for group in own}})[::{order}]
found = {{group: [*sides_of((group,))] for group in groups}}
assert {{group for one in declared_sides() for group in one.groups}} == {{*groups}}
assert found == {{group: [*sides_of((group,))] for group in groups}}, found
"""
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
