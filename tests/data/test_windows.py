"""Windows and batches are the runs' own states: across segments, runs, members, processes and interruptions."""

import pickle

import grain
import h5py
import numpy as np
import orbax.checkpoint as ocp
import pytest
from written_frames import MEMBERS, VISCOSITY, frames, make_writer, write_frames

import simjax as sj
from simjax.errors import ConfigurationError, InputOutputError
from simjax.io.coarse import coarsened
from simjax.io.particle_output import ParticleWriter

FRAMES, ALONE = 8, 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An ensemble in segments of three states, and a run of its first ones that is one plain file."""
    root = tmp_path_factory.mktemp("runs")
    ensemble = make_writer(root / "ensemble")
    write_frames(ensemble, range(FRAMES))
    ensemble.close(False)
    alone = make_writer(root / "alone", members=None)
    write_frames(alone, range(ALONE), members=None)
    alone.close(True)
    assert len(list((root / "ensemble" / "data").iterdir())) == 3 and not (root / "alone" / "data").exists()
    return [root / "ensemble", root / "alone"]


def written(place, name):
    """The values that were written where a window is, in the solver's order of axes."""
    _, _, fields, _ = frames(place.states, members=None if place.member is None else MEMBERS)
    values = np.asarray(fields[name], np.float32)
    return values if place.member is None else values[:, place.member]


@pytest.mark.parametrize(("length", "stride", "every"), [(4, 1, 1), (2, 3, 1), (2, 1, 3), (1, 1, 1)])
def test_every_window_is_what_the_run_wrote(runs, length, stride, every):
    windows = sj.TrajectoryWindows(runs, length=length, stride=stride, every=every)
    span = (length - 1) * every
    starts = [(MEMBERS, range(0, FRAMES - span, stride)), (1, range(0, ALONE - span, stride))]
    assert len(windows) == sum(members * len(begins) for members, begins in starts)
    seen = set()
    for number in range(len(windows)):
        place, window = windows.place(number), windows[number]
        seen.add((place.folder, place.member, place.states[0]))
        assert len(place.states) == length and place.states.step == every
        for name in ("velocity_x", "velocity_y", "temperature"):
            np.testing.assert_array_equal(window[name], written(place, name))
        np.testing.assert_array_equal(window["time"], np.round(0.1 * np.asarray(place.states), 1))
        assert window["viscosity"] == (1e-3 if place.member is None else VISCOSITY[place.member])
    assert len(seen) == len(windows)


def test_fields_members_and_diagnostics_are_chosen(runs):
    windows = sj.TrajectoryWindows(runs[:1], ["temperature", "energy"], length=2, members=[0, 2])
    assert windows.fields == ("temperature", "energy") and windows.parameters == ("viscosity",)
    assert {windows.place(number).member for number in range(len(windows))} == {0, 2}
    np.testing.assert_array_equal(windows[-1]["energy"], [FRAMES - 1.5, FRAMES - 0.5])
    with pytest.raises(IndexError):
        windows[len(windows)]


def test_windows_begin_where_they_may_and_stay_in_memory(runs):
    late = sj.TrajectoryWindows(runs, length=2, since=0.2)
    assert {late.place(number).states[0] for number in range(len(late))} == {*range(2, FRAMES - 1)}
    kept = sj.TrajectoryWindows(runs, length=2, since=0.2, in_memory=True)
    for number in range(len(late)):
        for name, values in late[number].items():
            np.testing.assert_array_equal(kept[number][name], values)
    with pytest.raises(ConfigurationError, match="from t = 5 on, the longest has 0"):
        sj.TrajectoryWindows(runs, length=2, since=5.0)


@pytest.mark.parametrize("beyond", [0, 1])
def test_joined_cells_have_the_same_fluxes(beyond):
    """Velocities of a stream function at corners: no divergence, with walls (beyond) or periodic, on either grid."""
    psi = np.random.default_rng(0).normal(size=(3, 8 + beyond, 12 + beyond))
    psi = psi if beyond else np.pad(psi, ((0, 0), (0, 1), (0, 1)), mode="wrap")
    u, v = np.diff(psi, axis=1)[..., : 12 + beyond], -np.diff(psi, axis=2)[:, : 8 + beyond]  # (time, y, x_face), ...
    u, v = coarsened(u, ("y", "x_face"), 4), coarsened(v, ("y_face", "x"), 4)
    np.testing.assert_allclose(u[..., 0], psi[:, ::4][:, 1:, 0] / 4 - psi[:, ::4][:, :-1, 0] / 4, atol=1e-15)
    wrapped = u if beyond else np.pad(u, ((0, 0), (0, 0), (0, 1)), mode="wrap")
    above = v if beyond else np.pad(v, ((0, 0), (0, 1), (0, 0)), mode="wrap")
    np.testing.assert_allclose(np.diff(wrapped, axis=2) + np.diff(above, axis=1), 0, atol=1e-14)  # rounding


@pytest.mark.slow
def test_windows_on_a_coarser_grid_are_those_that_a_run_there_begins_with(tmp_path):
    few = ["grid.shape=[12,12]", "time.end=0.1", "time.output_every=0.05", "output.report=false", "precision=float64"]
    run = sj.load("cavity", [*few, "output.animation=false", f"output.root={tmp_path}"])
    folder = run.run().folder
    window = sj.TrajectoryWindows(folder, ["velocity_x", "pressure"], length=2, coarsen=3)[0]
    fine = sj.TrajectoryWindows(folder, ["velocity_x", "pressure"], length=2)[0]
    assert np.abs(fine["velocity_x"]).max() > 0.01
    assert window["velocity_x"].shape == (2, 5, 4) and window["pressure"].shape == (2, 4, 4)
    means = fine["velocity_x"][:, ::3].reshape(2, 5, 4, 3).mean(-1), fine["pressure"].reshape(2, 4, 3, 4, 3)
    # Means in another order: rounding; the pressure has both signs.
    np.testing.assert_allclose(window["velocity_x"], means[0], rtol=1e-14)
    np.testing.assert_allclose(window["pressure"], means[1].mean((2, 4)), rtol=1e-12, atol=1e-15)
    with pytest.raises(ConfigurationError, match="coarsen=5: .* has 12 cells along y; write a factor that divides"):
        sj.TrajectoryWindows(folder, length=2, coarsen=5)


def test_states_after_the_end_of_a_member_are_in_no_window(tmp_path):
    steps, times, fields, diagnostics = frames(range(6))
    late = np.arange(6) >= 4
    fields = {
        n: np.where(late[:, None, None, None] & (np.arange(3) == 1)[:, None, None], np.nan, u)
        for n, u in fields.items()
    }
    diagnostics["energy"] = np.where(late[:, None] & (np.arange(3) == 1), np.nan, diagnostics["energy"])
    writer = make_writer(tmp_path / "run")
    writer.write(steps, times, fields, diagnostics)
    writer.close(True)
    windows = sj.TrajectoryWindows(tmp_path / "run", length=2)
    assert [sum(windows.place(i).member == m for i in range(len(windows))) for m in range(3)] == [5, 3, 5]
    assert all(np.isfinite(windows[i]["temperature"]).all() for i in range(len(windows)))


@pytest.mark.parametrize("members", [None, 2])
def test_particles_are_in_the_order_of_their_numbers(tmp_path, members):
    rng, lead = np.random.default_rng(1), (4,) if members is None else (4, members)
    position, density = rng.normal(size=(*lead, 2, 5)), rng.normal(size=(*lead, 5))
    writer = ParticleWriter(
        tmp_path / "run",
        lower=(0, 0),
        upper=(1, 1),
        periodic=(True, True),
        names=["position", "density"],
        scalars=["density"],
        species=np.zeros(5, int),
        mass=np.ones(5),
        charge=None,
        members=members,
        parameters={"epsilon": np.asarray(2.0)},
        diagnostics=["energy"],
        attributes={"simjax_run_id": "a"},
        title="a test",
        segment_bytes=200,
    )
    for k in range(4):
        now = {"position": position[k : k + 1], "density": density[k : k + 1]}
        writer.write([k], [0.5 * k], now, {"energy": np.full((1, *lead[1:]), k)})
    writer.close(False)
    windows = sj.TrajectoryWindows(tmp_path / "run", length=3)
    assert len(windows) == 2 * (members or 1) and len(list((tmp_path / "run" / "data").iterdir())) > 1
    for number in range(len(windows)):
        place, window = windows.place(number), windows[number]
        chosen = (slice(place.states[0], place.states[0] + 3), *(() if members is None else (place.member,)))
        np.testing.assert_array_equal(window["position"], position[chosen].astype("f4"))
        np.testing.assert_array_equal(window["density"], density[chosen].astype("f4"))
        assert window["epsilon"] == 2.0 and window["time"][0] == 0.5 * place.states[0]


def taken(batches):
    """First temperature and viscosity of each window: which one it is, as the lone run has another viscosity."""
    both = ((batch["temperature"][:, 0, 0, 0].tolist(), batch["viscosity"].tolist()) for batch in batches)
    return [key for first, viscosity in both for key in zip(first, viscosity, strict=True)]


def test_batches_hold_each_window_once_an_epoch_in_another_order(runs):
    windows = sj.TrajectoryWindows(runs, length=2)
    every = [sj.batches(windows, 4, seed=3, epochs=2, drop_remainder=False) for _ in range(2)]
    batch = next(every[0])
    assert batch["temperature"].shape == (4, 2, 6, 4) and batch["viscosity"].shape == (4,)
    first, again = taken([batch, *every[0]]), taken(every[1])
    assert first == again
    epochs = first[: len(windows)], first[len(windows) :]
    in_order = taken(sj.batches(windows, 4, seed=None, epochs=1, drop_remainder=False))
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(in_order) and len({*in_order}) == len(windows)
    assert epochs[0] != epochs[1] and epochs[0] != in_order
    assert in_order == [(windows[i]["temperature"][0, 0, 0], windows[i]["viscosity"]) for i in range(len(windows))]


def test_parts_of_processes_are_disjoint_and_cover(runs):
    windows = sj.TrajectoryWindows(runs, length=2)
    assert len(windows) % 2 == 1
    options = {"seed": 5, "epochs": 3}
    parts = [[*sj.batches(windows, 2, part=(k, 2), drop_remainder=False, **options)] for k in range(2)]
    epochs = [taken(part) for part in parts]
    for epoch in range(3):
        own = [found[epoch * len(found) // 3 : (epoch + 1) * len(found) // 3] for found in epochs]
        assert not {*own[0]} & {*own[1]} and len({*own[0], *own[1]}) == len(windows)
    full = [[len(batch["time"]) for batch in sj.batches(windows, 2, part=(k, 2), **options)] for k in range(2)]
    # Both take as many full batches: half of an even number of windows, three times, in twos.
    assert full[0] == full[1] == [2] * (len(windows) // 2 * 3 // 2)


def test_a_state_restored_in_the_midst_of_an_epoch_gives_exactly_the_rest(runs, tmp_path):
    windows = sj.TrajectoryWindows(runs, length=2)

    def begun():
        return sj.batches(windows, 3, seed=7, epochs=3)

    iterator = begun()
    for _ in range(4):
        next(iterator)
    state = iterator.get_state()
    with ocp.Checkpointer(grain.checkpoint.CheckpointHandler()) as saver:
        saver.save(tmp_path / "iterator", args=grain.checkpoint.CheckpointSave(iterator))
        rest = taken(iterator)
        restored = saver.restore(tmp_path / "iterator", args=grain.checkpoint.CheckpointRestore(begun()))
    other = begun()
    other.set_state(state)
    assert len(rest) > len(windows) and rest == taken(restored) == taken(other)


def test_windows_are_read_by_other_processes(runs):
    windows = sj.TrajectoryWindows(runs, length=2)
    assert isinstance(windows, grain.sources.RandomAccessDataSource)
    windows[0]  # files are open
    copy = pickle.loads(pickle.dumps(windows))
    np.testing.assert_array_equal(copy[5]["velocity_x"], windows[5]["velocity_x"])


@pytest.mark.slow
def test_workers_give_what_threads_give(runs):
    windows = sj.TrajectoryWindows(runs, length=2)
    options = {"seed": 2, "epochs": 2}
    iterator = sj.batches(windows, 3, workers=2, **options)
    begin = taken([next(iterator) for _ in range(3)])
    other = sj.batches(windows, 3, workers=2, **options)
    other.set_state(iterator.get_state())
    rest = taken(iterator)
    assert rest == taken(other)
    assert sorted(begin + rest) == sorted(taken(sj.batches(windows, 3, **options)))


def test_few_files_stay_open(runs, monkeypatch):
    monkeypatch.setattr("simjax.io.state_windows.MOST_OPEN", 1)
    windows = sj.TrajectoryWindows(runs, length=1)
    for number in (0, len(windows) - 1, 0):
        np.testing.assert_array_equal(windows[number]["temperature"], written(windows.place(number), "temperature"))
        assert len(windows._open) == 1


def test_a_segment_that_vanishes_later_is_no_nan(tmp_path):
    writer = make_writer(tmp_path / "run")
    write_frames(writer, range(7))
    writer.close(False)
    windows = sj.TrajectoryWindows(tmp_path / "run", length=2)
    sorted((tmp_path / "run" / "data").iterdir())[1].unlink()
    with pytest.raises(InputOutputError, match="states 3 to 4 of .* are not there any more"):
        windows[3]
    with pytest.raises(InputOutputError, match="is missing"):
        sj.TrajectoryWindows(tmp_path / "run", length=2)


def test_what_does_not_fit_is_told(runs, tmp_path):
    other = make_writer(tmp_path / "other", grid=sj.Grid((4, 4), (0.0, 0.0), (1.0, 1.0)), members=None)
    write_frames(other, range(3), grid=other.grid, members=None)
    other.close(True)
    wrong = [
        (dict(length=0), "length=0: expected a whole number"),
        (dict(length=9), "expected a run with 9 saved states or more, the longest has 8"),
        (dict(length=2, fields=["temprature"]), "no variable 'temprature'; did you mean 'temperature'?"),
        (dict(length=2, fields="temperature"), r"write \['temperature'\]"),
        (dict(length=2, members=[0]), "alone is no ensemble"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            sj.TrajectoryWindows(runs, **options)
    with pytest.raises(ConfigurationError, match="members=.9.: expected numbers of members"):
        sj.TrajectoryWindows(runs[:1], length=2, members=[9])
    with pytest.raises(ConfigurationError, match=r"velocity_x' is float32 of shape \(4, 4\) in .* one grid"):
        sj.TrajectoryWindows([runs[1], tmp_path / "other"], length=2)
    with pytest.raises(ConfigurationError, match="expected folders of runs, got none"):
        sj.TrajectoryWindows([], length=2)
    with pytest.raises(InputOutputError, match="holds no run"):
        sj.TrajectoryWindows(tmp_path / "nowhere", length=2)
    windows = sj.TrajectoryWindows(runs, length=2)
    for options, message in [
        (dict(size=0), "size=0: expected a whole number, 1 or more"),
        (dict(size=1, epochs=0), "epochs=0: expected a whole number, 1 or more"),
        (dict(size=99, epochs=1), "size=99: part 0 of 1 has 25 windows, too few for a batch"),
        (dict(size=1, part=(2, 2)), r"part=\(2, 2\)"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            sj.batches(windows, seed=0, **options)


def test_a_damaged_value_names_the_file(tmp_path):
    writer = make_writer(tmp_path / "run")
    write_frames(writer, range(4))
    writer.close(True)
    windows = sj.TrajectoryWindows(tmp_path / "run", ["temperature"], length=2)
    path = tmp_path / "run" / "fields.h5"
    with h5py.File(path, "r") as file:
        place = file["temperature"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputOutputError, match=r"fields.h5: 'temperature' cannot be read"):
        windows[0]
