"""Ensembles in groups, and fields from files, by two processes: as by one, and a kill loses no finished group."""

import json
import sys

import h5py
import numpy as np
import pytest
from prepared import PreparedProcess
from process_groups import environment, free_port, outputs, start

import simjax as sj

PROGRAM = """
import json, os, signal, sys
import simjax as sj
from simjax.driver.loop.single_run import SingleRun
from simjax.errors import ConfigurationError
from simjax.processes import is_of_another

begin, advance, begun = SingleRun.begin, SingleRun._advance_frame, []

def begin_and_note(self, folder):
    begun.append(folder.name)
    return begin(self, folder)

def advance_or_die(self, frame):
    if self.record.folder.name == "g0001" and frame == 2:
        self.record.checkpoints.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    return advance(self, frame)

SingleRun.begin = begin_and_note
for overrides, ends, resume in json.loads(sys.argv[1]):
    begun.clear()
    SingleRun._advance_frame = advance_or_die if ends else advance
    try:
        sj.load(None, [*overrides, *sys.argv[2:]]).run(resume=resume)
    except ConfigurationError as error:
        print("refused by", "another" if is_of_another(error) else "itself", error, flush=True)
    print("begun", json.dumps(begun), flush=True)
"""
FEW = ["precision=float64", "output.report=false", "output.animation=false"]
DYE = [
    "experiment=dye",
    "grid.shape=[16,16]",
    "time.dt=0.001",
    "time.courant=null",
    "time.end=0.04",
    "time.output_every=0.01",
    "exact=null",
    *FEW,
]
SWEEP = [
    *DYE,
    "initial={concentration: 'sin(2*pi*x)*cos(2*pi*y)'}",
    "ensemble.size=6",
    "ensemble.group=4",
    "+ensemble.vary.physics.diffusivity={uniform:[0.001,0.01]}",
    "ensemble.statistics=[variance,min,max]",
    "checkpoint.every_frames=1",
]
# A wind that rises in time passes the limit of the step for one member, and not with half of it.
WIND = [
    "experiment=fluid",
    "grid.shape=[8,8]",
    "time.dt=0.02",
    "time.courant=null",
    "time.end=1.2",
    "time.output_every=0.2",
    "parameters={push: 1.0}",
    "forcing={velocity: ['push*sin(2*pi*y)', '0']}",
    "ensemble.size=4",
    "+ensemble.vary.parameters.push={values:[1,25,2,3]}",
    "ensemble.retry=true",
    "ensemble.group=2",
    "ensemble.statistics=[mean]",
    *FEW,
]


def write_fields(path):
    """A field on a finer grid, and one with a value that is not finite where process 1 is."""
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset("finer", data=random.normal(size=(3, 24, 40)), chunks=(1, 7, 9), compression="gzip")
        file["bad"] = random.normal(size=(16, 16))
        file["bad"][3, 13] = np.nan


def runs(root, fields):
    source = "initial.concentration={file: %s, order: [y, x], variable: %s}"
    own = {
        "finer": [*DYE, source % (fields, "finer, time: -1"), "mesh.x=2", "mesh.y=2"],
        "bad": [*DYE, source % (fields, "bad"), "mesh.x=4"],
        "retried": [*WIND, "mesh.x=2", "mesh.y=2"],
    }
    return {name: [*overrides, *placed(root, name)] for name, overrides in own.items()}


def placed(root, name):
    return [f"output.root={root}", f"output.folder={name}"]


def started(steps, count):
    command = [sys.executable, "-c", PROGRAM, json.dumps(steps)]
    if count > 1:
        return start(command, count, free_port())
    return [PreparedProcess(command, environment(8))]


def groups_begun(told):
    return [json.loads(line[6:]) for line in told.splitlines() if line.startswith("begun ")]


@pytest.mark.slow
def test_groups_and_files_of_two_processes_are_those_of_one(tmp_path):
    fields, several, alone = tmp_path / "fields.h5", tmp_path / "several", tmp_path / "alone"
    write_fields(fields)
    killed = several / "killed"
    sweep = [*SWEEP, "mesh.ensemble=2", "mesh.y=2"]
    last = [[*sweep, *placed(several, "killed")], True, None]
    steps = [*([overrides, False, None] for overrides in runs(several, fields).values()), last]
    told = outputs(started(steps, 2), [-9, -9], timeout=400)
    assert "refused by itself 'bad' in fields.h5 is nan at index y=3, x=13 (1 of 256" in told[0]
    assert "refused by another 'bad' in fields.h5 is nan" in told[1]
    expected = [["finer"], [], ["g0000", "g0001", "retry0000"]]
    assert groups_begun(told[0]) == groups_begun(told[1]) == expected

    first = killed / "groups" / "g0000" / "fields.h5"
    before, record = first.stat().st_mtime_ns, json.loads((killed / "groups.json").read_text())
    assert [one["name"] for one in record["finished"]] == ["g0000"]
    steps = [[overrides, False, None] for overrides in runs(alone, fields).values()]
    steps += [[[*sweep, *placed(alone, "killed")], False, None], [[*SWEEP, "mesh.x=2"], False, str(killed)]]
    (told,) = outputs(started(steps, 1), timeout=400)
    # The second group goes on from its checkpoint.
    assert groups_begun(told) == [*expected, ["g0000", "g0001"], []]
    assert first.stat().st_mtime_ns == before
    log = (killed / "run.log").read_text()
    assert log.count("group g0000:") == log.count("group g0001:") == 1

    for name in ("finer", "retried", "killed"):
        require_same(several / name, alone / name)
    with sj.open_run(several / "retried") as retried:
        assert retried["status"].values.tolist() == [0, 0, 0, 0]
        assert retried["step_halvings"].values.tolist() == [0, 1, 0, 0]
    log = (several / "retried" / "run.log").read_text()
    assert "member 1 (parameters.push=25) failed at step" in log


def require_same(several, alone):
    assert sj.check_files(several) == []
    with sj.open_run(several) as found, sj.open_run(alone) as expected:
        written = {str(name) for name, u in expected.items() if "time" in u.dims}
        assert written == {str(name) for name, u in found.items() if "time" in u.dims}
        for name in written:
            if name == "concentration" or name.endswith(("_min", "_max")):
                np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
                continue
            # Sums over devices and members in another order, also of what cancels in them, and transforms of parts.
            scale = max(float(np.abs(expected[name]).max()), 1.0)
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-12 * scale, err_msg=name)
