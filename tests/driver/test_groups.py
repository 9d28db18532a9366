"""Ensembles in groups: what is finished survives, members are the same, statistics are those of the full output."""

import json
import re
import shutil
import signal
import sys
import time

import numpy as np
import pytest
from prepared import PreparedProcess
from process_groups import environment

import simjax as sj
from simjax.driver.loop import grouping, single_run
from simjax.driver.output import run_folder
from simjax.errors import ConfigurationError, NumericalError, ResourceError

QUIET = ["output.animation=false", "output.report=false"]
# The cheapest model to compile.
DYE = [
    "grid.shape=[8,8]",
    "precision=float64",
    "time.dt=0.002",
    "time.courant=null",
    "time.end=0.04",
    "exact=null",
    "time.output_every=0.02",
    "initial={concentration: 'sin(2*pi*x)*cos(2*pi*y)'}",
]
STATISTICS = "ensemble.statistics=[mean,variance,min,max,{quantiles:[0.05,0.5]}]"
MERGED = "ensemble.statistics=[variance,min,max]"


def vary(count):
    return [f"ensemble.size={count}", "+ensemble.vary.physics.diffusivity={uniform:[0.001,0.01]}"]


def run(tmp_path, name, *overrides, resume=None):
    return sj.load(name, overrides=[*overrides, *QUIET, f"output.root={tmp_path}"]).run(resume=resume)


def require_statistics(statistics, full, variables=("concentration",), least=("variance", "min", "max")):
    """Statistics of the first dataset, at `least` these, are those that xarray makes of the members in the second."""
    for name in variables:
        u = full[name]
        expected = {
            "mean": u.mean("member"),
            "variance": u.var("member"),
            "min": u.min("member"),
            "max": u.max("member"),
        }
        if f"{name}_quantile" in statistics:
            expected["quantile"] = u.quantile(statistics["quantile"].values, "member")
        written = [statistic for statistic in expected if f"{name}_{statistic}" in statistics]
        assert {*least} <= {*written}
        for statistic in written:
            scale = float(np.abs(u).max()) ** (2 if statistic == "variance" else 1)
            # Sums over members in another order.
            np.testing.assert_allclose(
                statistics[f"{name}_{statistic}"], expected[statistic], rtol=0, atol=1e-14 * scale, err_msg=statistic
            )


@pytest.mark.slow
def test_statistics_are_those_of_the_full_output_and_need_no_members_on_disk(tmp_path):
    full = run(tmp_path, "dye", *DYE, *vary(6), STATISTICS).ds.load()
    require_statistics(full, full)
    assert full["members_counted"].values.tolist() == [6, 6, 6]
    assert full["concentration_mean"].attrs["cell_methods"] == "member: mean"
    alone = run(tmp_path, "dye", *DYE, *vary(6), STATISTICS, "output.fields=[]")
    with sj.open_run(alone.folder) as dataset:
        assert "concentration" not in dataset
        require_statistics(dataset, full)
    # Members spread over devices, each of them cut.
    split = run(tmp_path, "dye", *DYE, *vary(6), STATISTICS, "output.fields=[]", "mesh.ensemble=3", "mesh.x=2")
    with sj.open_run(split.folder) as dataset:
        require_statistics(dataset, full)


@pytest.mark.slow
def test_a_member_has_the_same_bits_alone_in_batches_and_on_eight_devices(tmp_path):
    """Its steps, that is: a formula with a tanh may be rounded in another way by a program for several devices."""
    flow = [
        "grid.shape=[64,64]",
        "time.dt=0.002",
        "time.courant=null",
        "time.end=0.02",
        "time.output_every=0.02",
        "initial={velocity: ['y*(1-y)', 'x*(1-x)*y']}",
    ]
    sweep = [*flow, "ensemble.size=8", "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}"]
    together = run(tmp_path, "fluid", *sweep).ds.load()
    viscosity = together["viscosity"].values.tolist()
    assert len(set(viscosity)) == 8
    alone = ["ensemble.numbers=[5]", f"+ensemble.vary.physics.viscosity={{values:[{viscosity[5]!r}]}}"]
    for name, members, overrides in (
        ("batches", slice(None), [*sweep, "ensemble.batch=2"]),
        ("eight devices", slice(None), [*sweep, "mesh.ensemble=8"]),
        ("alone", slice(5, 6), [*flow, *alone]),
    ):
        other = run(tmp_path, "fluid", *overrides).ds.load()
        for field in ("velocity_x", "velocity_y", "pressure", "vorticity"):
            np.testing.assert_array_equal(other[field], together[field].isel(member=members), err_msg=name)


@pytest.mark.slow
def test_groups_of_members_are_bitwise_those_of_one_run(tmp_path, monkeypatch):
    whole = run(tmp_path, "dye", *DYE, *vary(7)).ds.load()
    compiled, begin = [], single_run.SingleRun.begin

    def begin_one(self, folder):
        compiled.append([program._program._cache_size() for program in self.programs._advance.values()])
        return begin(self, folder)

    monkeypatch.setattr(single_run.SingleRun, "begin", begin_one)
    grouped = run(tmp_path, "dye", *DYE, *vary(7), "ensemble.group=3", MERGED)
    dataset = grouped.ds.load()
    for name in whole.data_vars:
        np.testing.assert_array_equal(dataset[name], whole[name], err_msg=name)
    np.testing.assert_array_equal(dataset["diffusivity"], whole["diffusivity"])
    require_statistics(dataset, whole)
    assert dataset["members_counted"].values.tolist() == [7, 7, 7] and sj.check_files(grouped.folder) == []
    # One program of steps, compiled by the first group: the others share it, and the last one is filled up.
    assert len(compiled) == 3 and len(compiled[1]) == 1 and compiled[2] == compiled[1]


@pytest.mark.slow
def test_finished_groups_are_not_computed_again(tmp_path, monkeypatch):
    overrides = [*DYE, *vary(4), "ensemble.group=2", MERGED]
    whole = run(tmp_path, "dye", *overrides, f"output.folder={tmp_path / 'whole'}").ds.load()
    begin = single_run.SingleRun.begin
    begun = []

    def begin_one(self, folder):
        begun.append(folder.name)
        if len(begun) == 2:
            raise KeyboardInterrupt  # as abrupt as a kill: nothing of the second group is there
        return begin(self, folder)

    monkeypatch.setattr(single_run.SingleRun, "begin", begin_one)
    folder = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "dye", *overrides, f"output.folder={folder}")
    with sj.open_run(folder) as dataset:  # what is finished can be read
        np.testing.assert_array_equal(dataset["concentration"][:2], whole["concentration"][:2])
    before = (folder / "groups" / "g0000" / "fields.h5").stat().st_mtime_ns
    resumed = run(tmp_path, "dye", *overrides, resume=str(folder))
    assert begun == ["g0000", "g0001", "g0001"]
    assert (folder / "groups" / "g0000" / "fields.h5").stat().st_mtime_ns == before
    assert resumed.ds.load().drop_attrs().equals(whole.drop_attrs())
    with pytest.raises(ConfigurationError, match="another simulation"):
        run(tmp_path, "dye", *overrides, "time.dt=0.001", resume=str(folder))


@pytest.mark.slow
def test_a_limit_stops_groups_resumably_where_some_step_was_taken(tmp_path, monkeypatch):
    """And is told as a mistake where it was not, since no resume would get any further."""
    overrides = [*DYE, *vary(4), "ensemble.group=2", MERGED, f"output.folder={tmp_path / 'run'}"]
    monkeypatch.setattr(
        run_folder.RunFolder,
        "time_is_up",
        lambda self, elapsed: "limits.until" if self.folder.name == "g0001" else None,
    )
    with pytest.raises(sj.Stopped, match="stopped by limits.until"):
        run(tmp_path, "dye", *overrides)
    assert [one["name"] for one in json.loads((tmp_path / "run" / "groups.json").read_text())["finished"]] == ["g0000"]
    with pytest.raises(ConfigurationError, match="limits.until is reached before the first step"):
        run(tmp_path, "dye", *overrides, resume=str(tmp_path / "run"))
    monkeypatch.undo()
    assert run(tmp_path, "dye", *overrides, resume=str(tmp_path / "run")).message.startswith("completed")


@pytest.mark.slow
def test_a_member_that_failed_is_run_again_with_half_the_step(tmp_path):
    """A wind that rises in time passes the limit of the step for one member, and not with half of it."""
    overrides = [
        "grid.shape=[8,8]",
        "precision=float64",
        "time.dt=0.02",
        "time.courant=null",
        "time.end=1.2",
        "time.output_every=0.2",
        "parameters={push: 1.0}",
        "forcing={velocity: ['push*sin(2*pi*y)', '0']}",
        "ensemble.size=4",
        "+ensemble.vary.parameters.push={values:[1,25,2,3]}",
        "ensemble.statistics=[mean]",
    ]
    plain = run(tmp_path, "fluid", *overrides).ds.load()
    assert plain["status"].values.tolist() == [0, 1, 0, 0]
    assert plain["members_counted"].values[0] == 4 and plain["members_counted"].values[-1] == 3
    require_statistics(plain, plain, ["vorticity"], least=["mean"])  # without the member, once it is frozen
    result = run(tmp_path, "fluid", *overrides, "ensemble.retry=true")
    dataset = result.ds.load()
    assert dataset["status"].values.tolist() == [0, 0, 0, 0] and np.all(np.isfinite(dataset["velocity_x"]))
    assert dataset["step_halvings"].values.tolist() == [0, 1, 0, 0]
    assert dataset["members_counted"].values.tolist() == [4] * 7
    for member in (0, 2, 3):
        np.testing.assert_array_equal(dataset["velocity_x"][member], plain["velocity_x"][member])
    log = (result.folder / "run.log").read_text()
    assert "time step halved 1 time" in log
    step, frame = map(
        int, re.search(r"member 1 \(parameters.push=25\) failed at step (\d+), after frame (\d+)", log).groups()
    )
    assert 10 * frame < step <= 10 * (frame + 1)  # ten steps a frame


@pytest.mark.parametrize("step", ["dt", "courant"])
def test_a_second_attempt_has_half_the_step(step):
    """Whatever gives its length, and the same members and frames."""
    given = {"dt": "time.dt=0.002", "courant": "time.courant=0.4"}[step]
    config = sj.load("dye", [*DYE, "time.dt=null", given, *vary(3)]).config
    first, second = (grouping.of_group(config, grouping.Group("g", (1, 2), 2, halvings)) for halvings in (0, 1))
    assert getattr(first.time, step) == getattr(config.time, step) > 0
    assert getattr(second.time, step) == 0.5 * getattr(config.time, step)
    assert second.ensemble == first.ensemble and second.time.output_every == first.time.output_every


def test_an_ensemble_that_does_not_fit_runs_in_groups(tmp_path):
    overrides = ["grid.shape=[32,32]", "precision=float64", "exact=null"]
    config = sj.load("dye", [*overrides, *vary(64), "limits.memory=1e-3"]).config
    programs, grouped = grouping.first_programs(config, None)
    assert grouped and programs.members < 64
    few = [*overrides, *vary(64), "limits.memory=1e-3", "ensemble.statistics=[{quantiles:[0.5]}]"]
    with pytest.raises(ResourceError):  # quantiles need all members at once
        grouping.first_programs(sj.load("dye", few).config, None)


def test_groups_that_the_devices_do_not_share_evenly_are_refused(tmp_path):
    (tmp_path / "groups.json").write_text('{"group": 3, "finished": []}')
    config = sj.load("dye", [*DYE, *vary(6), "mesh.ensemble=2"]).config
    with pytest.raises(ConfigurationError, match="mesh.ensemble=2: expected a divisor of 3"):
        grouping.first_programs(config, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["ensemble.statistics=[mode]"], "expected each once: a list of mean, variance, min, max"),
        (["ensemble.statistics=[{quantiles:[1.5]}]"], "<= 1"),
        (["ensemble.statistics=[{quantiles:[0.5]}]", "ensemble.group=2"], "need all members at once"),
        (["ensemble.group=3", "mesh.ensemble=2"], "a multiple of mesh.ensemble=2"),
        (["ensemble.numbers=[1,1,2,3]"], "4 different numbers"),
    ],
)
def test_what_cannot_be_is_refused(overrides, sentence):
    with pytest.raises(ConfigurationError, match=sentence.replace("[", r"\[")):
        sj.load("dye", [*DYE, *vary(4), *overrides])


def test_statistics_of_one_run_are_refused():
    with pytest.raises(ConfigurationError, match="expected an ensemble; write ensemble.size"):
        sj.load("dye", [*DYE, "ensemble.statistics=[mean]"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:All-NaN")  # of the check of a frame whose numbers overflow from the start
def test_where_all_fail_the_run_is_a_failure_with_groups(tmp_path):
    with pytest.raises(NumericalError, match="all 2 members failed, the first because a field became infinite"):
        run(
            tmp_path,
            "dye",
            *DYE,
            "ensemble.size=2",
            "ensemble.group=1",
            "parameters={push: 1.0}",
            "+ensemble.vary.parameters.push={values:[1.6e308,1.7e308]}",
            "initial={concentration: 'push*exp(-20*((x - 0.5)**2 + (y - 0.5)**2))'}",
            "time.end=0.4",
        )


SWEEP = [
    "experiment=fluid",
    "grid.shape=[16,16]",
    "time.end=0.08",
    "time.output_every=0.02",
    "precision=float64",
    *QUIET,
    "time.dt=0.005",
    "time.courant=null",
    "ensemble.size=48",
    "ensemble.group=12",
    "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}",
    "checkpoint.every_frames=1",
]


@pytest.mark.slow
def test_a_sweep_killed_twice_ends_as_if_it_had_not_been(tmp_path):
    def start(*overrides):
        return PreparedProcess([sys.executable, "-m", "simjax.run", *overrides], environment(1))

    def finish(process):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output

    folder, root = tmp_path / "killed", f"output.root={tmp_path}"
    command = [*SWEEP, MERGED, root, f"output.folder={folder}"]
    for number in (1, 2):
        process = start(*command)
        wanted = folder / "groups" / f"g{number:04d}" / "checkpoints"
        while process.poll() is None and not any(wanted.glob("[0-9]*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done = len(json.loads((folder / "groups.json").read_text())["finished"])
        assert done >= number
        command = [f"resume={folder}"]
    finish(start(*command))
    finish(start(*SWEEP, STATISTICS, root, f"output.folder={tmp_path / 'whole'}", "ensemble.group=null"))
    alone = ["ensemble.numbers=[17]", "ensemble.size=1", "ensemble.group=null"]
    with sj.open_run(folder) as killed, sj.open_run(tmp_path / "whole") as whole:
        for name in ("velocity_x", "vorticity", "status"):
            np.testing.assert_array_equal(killed[name], whole[name], err_msg=name)
        assert np.all(whole["kinetic_energy"] > 0.1)  # so that 1e-13 of it is less than any step changes
        # A program of eight members adds up its 1024 cells in another order than one of all: some roundings.
        np.testing.assert_allclose(killed["kinetic_energy"], whole["kinetic_energy"], rtol=1e-13)
        require_statistics(killed, whole, ["velocity_x", "vorticity"])
        require_statistics(whole, whole, ["velocity_x", "vorticity"])
        viscosity = float(whole["viscosity"][17])
        alone[2:] = ["ensemble.group=null", f"+ensemble.vary.physics.viscosity={{values:[{viscosity!r}]}}"]
        few = [o for o in SWEEP[1:] if not o.startswith(("ensemble.", "+ensemble"))]
        single = run(tmp_path, "fluid", *few, *alone).ds
        # Transforms on a CPU round by the number of fields that they take at once, and here machine code is plain.
        np.testing.assert_allclose(single["velocity_x"][0], whole["velocity_x"][17], rtol=0, atol=1e-13)
        assert single["member"].values.tolist() == [17]
    log = (folder / "run.log").read_text()
    assert all(log.count(f"group g{number:04d}:") == 1 for number in range(4))
    shutil.rmtree(folder)
