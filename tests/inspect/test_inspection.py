"""Inspections of runs: on virtual devices of this machine, at the command line, in a picture."""

import json

import pytest

import simjax as sj
from simjax.errors import ConfigurationError, ResourceError
from simjax.inspect import __main__ as command
from simjax.inspect import run_program
from simjax.report.inspection_page import write_inspection

SMALL = ["grid.shape=[16,24]", "time.integrator=euler"]


@pytest.fixture(scope="module")
def flow():
    return sj.inspect_program(sj.load("fluid", [*SMALL, "time.dt=1e-3"]), "cpu:8")


def test_virtual_devices_show_the_collectives_that_are_planned(flow):
    """Those of `test_collectives`: three exchanges for each stage, and a transpose for each axis and direction.

    Divergence and gradient read one side of each axis, the tendency both.
    """
    assert flow.mesh == {"x": 2, "y": 4} and flow.block == (8, 6)
    assert flow.counts() == {"collective-permute": 8, "all-to-all": 4}
    # Once in a call it is asked whether all is finite.
    assert [(one.kind, one.count, one.bytes) for one in flow.call.exchanges] == [("all-reduce", 1, 4)]


def test_a_courant_step_has_one_reduction_more():
    found = sj.inspect_program(sj.load("fluid", SMALL), "cpu:8", scaling=False)
    assert found.counts() == {"collective-permute": 8, "all-to-all": 4, "all-reduce": 1}


def test_bytes_are_those_of_the_halo(flow):
    # Two components with one ghost line, then those with corners; one for a divergence or a gradient.
    sizes = sorted(one.bytes for one in flow.exchanges if one.kind == "collective-permute")
    lines = {2 * 6 * 4, 2 * (8 + 2) * 4, 6 * 4, (8 + 2) * 4}
    assert set(sizes) == lines
    # The first transpose hands over the whole block. The second one hands over half of the waves along x, 9 of 16, with
    # zeros up to two for each of eight devices: complex numbers at the 24 places along y.
    assert {one.bytes for one in flow.exchanges if one.kind == "all-to-all"} == {8 * 6 * 4, 2 * 24 * 8}


def test_nothing_is_said_of_times_that_are_not_known(flow):
    content = flow.as_dict()
    assert content["chip"] is None and "seconds" not in content["step"] and content["scaling"] == []
    assert json.loads(json.dumps(content)) == content
    text = str(flow)
    assert "collective-permute" in text and "Estimated" not in text and "synchronous" in text


def test_an_own_mesh_has_as_many_devices_as_the_target():
    with pytest.raises(ConfigurationError, match=r"= 2, and target=cpu:8 has 8 devices; write mesh.x=2 mesh.y=4\.$"):
        sj.inspect_program(sj.load("fluid", [*SMALL, "mesh.x=2"]), "cpu:8")


def test_a_plugin_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(run_program, "GPU_PLUGINS", ("no_such_module",))
    with pytest.raises(ResourceError, match=r"^target=h100:8: .*pip install 'simjax\[compile-gpu\]'\.$"):
        sj.inspect_program(sj.load("fluid", SMALL), "h100:8")


def test_what_is_no_run_is_refused():
    with pytest.raises(ConfigurationError, match=r"^inspect_program\(dict\): expected a Simulation or a Config"):
        sj.inspect_program({}, "cpu:8")


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "inspection.json"
    line = ["experiment=dye", "grid.shape=[16,16]", "target=cpu:2", "--json", str(path)]
    assert command.main(line) == 0
    content = json.loads(path.read_text())
    assert content["target"] == "cpu:2" and content["mesh"] == {"y": 2}
    assert "dye on cpu:2: 16 x 16 cells in float32, 16 x 8 on each device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["experiment=dye"], "expected target=TARGET, such as target=v5e:16x16"),
        (["target=cpu:2"], "expected experiment=NAME, one of airfoil, "),
        (
            ["experiment=dye", "target=cpu:2", "--picture", "a.jpg"],
            "--picture a.jpg: expected a name that ends in .png.",
        ),
        (["experiment=dye", "target=v5e:banana"], "target=v5e:banana: expected one of v4, v5e,"),
    ],
)
def test_mistakes_are_told_in_a_sentence(line, told, capsys):
    assert command.main(line) == 2
    assert capsys.readouterr().err.startswith(f"simjax: {told}")


EXCHANGE = {
    "kind": "collective-permute",
    "count": 3.0,
    "bytes": 4096,
    "asynchronous": True,
    "links": ["x+"],
    "hops": 1,
    "seconds": 2e-6,
    "exposed_s": 1e-6,
}


def sizes():
    for devices, efficiency in ((1, 1.0), (4, 0.8)):
        yield {
            "devices": devices,
            "seconds": 1e-3,
            "exposed_s": 1e-4,
            "by_limit_s": {"memory": 9e-4},
            "efficiency": efficiency,
        }


@pytest.mark.parametrize("scaling", [[], [*sizes()]])
def test_a_picture_is_drawn(tmp_path, scaling):
    step = {"seconds": 1e-3, "exposed_s": 1e-4, "by_limit_s": {"memory": 9e-4}, "exchanges": [EXCHANGE]}
    content = {
        "experiment": "dye",
        "target": "v5e:2x2",
        "shape": [64, 64],
        "block": [32, 32],
        "devices": 4,
        "chip": {},
        "memory": {"refusal": None},
        "step": step,
        "scaling": scaling,
    }
    assert write_inspection(content, tmp_path / "program.png").stat().st_size > 10_000
