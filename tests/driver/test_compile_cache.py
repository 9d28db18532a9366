"""Compiled programs are kept between processes, privately, in a limited room, and never at the cost of a run."""

import errno
import json
import os
import subprocess
import sys
import threading

import pytest
from prepared import PreparedProcess

from simjax.driver.programs import compile_cache
from simjax.driver.programs.compile_cache import Compilations, KeptPrograms, cache_root, host_kind, private_folder

FLOW = [
    "experiment=fluid",
    "grid.shape=[16,8]",
    "time.end=0.04",
    "mesh.x=2",
    "output.report=false",
    "output.animation=false",
]


def run(tmp_path, name, **environment):
    """A run in a process of its own: what it printed, its last part in the provenance, its log and its metrics."""
    folder = tmp_path / name
    given = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "true", "XLA_FLAGS": "", **environment}
    command = [sys.executable, "-m", "simjax.run", *FLOW, f"output.root={tmp_path}", f"output.folder={folder}"]
    process = PreparedProcess(command, given, tmp_path)
    told, _ = process.communicate(300)
    assert process.returncode == 0, told
    part = json.loads((folder / "provenance.json").read_text())["parts"][-1]
    return told, part, (folder / "run.log").read_text(), (folder / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_a_second_process_takes_all_its_programs_from_the_cache(tmp_path):
    """The run of two devices has collectives, and what was kept computes the same to the last bit."""
    _, first, _, metrics = run(tmp_path, "first", XDG_CACHE_HOME=str(tmp_path / "caches"))
    _, second, log, again = run(tmp_path, "second", XDG_CACHE_HOME=str(tmp_path / "caches"))
    of_first, of_second = first["programs"], second["programs"]
    assert of_first["compiled"] > 0 and of_second["compiled"] == 0
    assert of_second["from_cache"] == of_first["compiled"] + of_first["from_cache"]
    assert f"Took all {of_second['from_cache']} programs from the cache in" in log
    assert again == metrics
    root = tmp_path / "caches" / "simjax"
    (folder,) = (entry for entry in root.iterdir() if entry.name != compile_cache.MARKER)
    assert folder.name == host_kind() and folder.stat().st_mode & 0o777 == 0o700
    # Beside them lie compositions, and what a command takes without tracing, by the run that it is of.
    compiled = [file for file in folder.glob("*.program") if not file.name.startswith(("run-", "composed-"))]
    assert len(compiled) == of_first["compiled"]


@pytest.mark.slow
def test_a_command_that_takes_kept_programs_is_silent_about_them(tmp_path):
    """XLA of jax before 0.12 tells of each that it may not fit the processor that made it (jax#38445)."""
    unset = ("TF_CPP_MIN_LOG_LEVEL", "XLA_FLAGS")
    given = {name: value for name, value in os.environ.items() if name not in unset}
    given |= {"JAX_ENABLE_COMPILATION_CACHE": "true", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "simjax.run", "experiment=sod", "time.end=0.005", "output=none"]
    for _ in range(2):
        ended = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0 and ended.stderr.count("cpu_aot_loader") == 0, ended.stderr[:1000]


@pytest.mark.slow
def test_a_run_does_without_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "caches").write_text("a file in the place of a folder")
    told, part, log, _ = run(tmp_path, "run", XDG_CACHE_HOME=str(tmp_path / "caches"))
    sentence = f"Compiled programs are not kept in {tmp_path / 'caches' / 'simjax'}: Not a directory."
    assert sentence in log and part["programs"]["from_cache"] == 0
    assert "Traceback" not in told and "Warning" not in told


@pytest.mark.slow
def test_a_cache_of_the_user_stays_as_it_is(tmp_path):
    own = tmp_path / "own"
    _, part, _, _ = run(
        tmp_path,
        "run",
        XDG_CACHE_HOME=str(tmp_path / "caches"),
        JAX_COMPILATION_CACHE_DIR=str(own),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    assert part["programs"]["compiled"] == len(list(own.glob("*-cache"))) and not (tmp_path / "caches").exists()


# ---------------------------------------------------------------------- the folder


def test_caches_lie_where_the_system_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root({"XDG_CACHE_HOME": "/scratch/me"}, "linux").as_posix() == "/scratch/me"
    assert cache_root({"XDG_CACHE_HOME": "relative"}, "linux") == tmp_path / ".cache"
    assert cache_root({}, "darwin") == tmp_path / "Library" / "Caches"


def test_a_folder_of_someone_else_is_refused_and_an_open_one_is_closed(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir(mode=0o777)
    assert private_folder(tmp_path / "open").stat().st_mode & 0o777 == 0o700
    os.chmod(tmp_path / "open", 0o777)
    assert private_folder(tmp_path / "open").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(PermissionError, match="it belongs to user"):
        private_folder(tmp_path / "open")


@pytest.mark.parametrize("name", ["photo.png", "tmpfile", "notes"])
def test_a_folder_of_other_files_is_left_alone(name, tmp_path):
    """Neither its permissions change, nor its files."""
    folder = tmp_path / "simjax"
    (folder / name).parent.mkdir(parents=True, mode=0o755)
    (folder / name).write_text("mine")
    os.chmod(folder, 0o755)
    with pytest.raises(FileExistsError, match="holds files that simjax did not write"):
        private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o755 and (folder / name).read_text() == "mine"
    assert not (folder / compile_cache.MARKER).exists()


def test_a_link_in_its_place_is_refused_and_an_earlier_versions_folder_taken(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "simjax").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError, match="is a link or a file"):
        private_folder(tmp_path / "simjax")
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755 and not [*(tmp_path / "elsewhere").iterdir()]
    before = tmp_path / "before"
    for name in (host_kind(), "kernels"):
        (before / name).mkdir(parents=True)
    (before / host_kind() / "a.program").write_bytes(b"1")
    assert private_folder(private_folder(before) / host_kind()).is_dir()


def test_hosts_of_other_instructions_have_programs_of_their_own(tmp_path):
    """A program for another processor is never read: XLA would run it until an instruction is missing."""

    def kind(flags, clock):
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(f"processor : 0\ncpu MHz : {clock}\nflags : {flags}\n")
        return host_kind(cpuinfo)

    assert kind("sse avx2", 2400) == kind("avx2 sse", 3100) != kind("sse avx2 avx512f", 2400)
    assert host_kind(tmp_path / "missing").startswith(kind("sse", 1).partition("-")[0])


# ---------------------------------------------------------------------- the programs


def test_what_is_damaged_is_compiled_again_and_replaced(tmp_path):
    programs = KeptPrograms(tmp_path, 1000)
    programs.put("key", b"program")
    (file,) = tmp_path.iterdir()
    for damaged in (b"", b"pro", b"programm" + file.read_bytes()[7:], file.read_bytes()[:-1]):
        file.write_bytes(damaged)
        assert programs.get("key") is None
    programs.put("key", b"program")
    assert programs.get("key") == b"program" and programs.get("other") is None


def test_a_full_disk_ends_the_keeping_and_leaves_no_part(tmp_path, monkeypatch):
    programs = KeptPrograms(tmp_path, 1000)
    programs.put("before", b"program")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        programs.put("key", b"program")
    programs.put("after", b"program")
    assert programs.trouble is not None and "No space left on device" in programs.trouble
    assert [file.name for file in tmp_path.iterdir()] == ["before.program"] and programs.get("before") == b"program"


def test_a_program_in_the_place_of_another_is_not_taken(tmp_path):
    programs = KeptPrograms(tmp_path, 1000)
    for key in "ab":
        programs.put(key, f"program of {key}".encode())
    (tmp_path / "a.program").rename(tmp_path / "c.program")
    (tmp_path / "b.program").rename(tmp_path / "a.program")
    assert programs.get("a") is None and programs.get("c") is None
    programs.put("b", b"program of b")
    (tmp_path / "b.program").rename(tmp_path / "elsewhere")
    (tmp_path / "b.program").symlink_to(tmp_path / "elsewhere")
    assert programs.get("b") is None  # what lies elsewhere is not this user's alone


def test_the_programs_unused_for_longest_make_room(tmp_path):
    """And what a process that was killed has left; what another one is writing stays, as does all that is not ours."""
    folder = private_folder(tmp_path / "simjax")
    programs = KeptPrograms(folder, 2 * (100 + 4) + 10)
    for age, key in enumerate("abc"):
        programs.put(key, bytes(100))
        os.utime(folder / f"{key}.program", (1000.0 + age, 1000.0 + age))
    others = tmp_path / "others"
    (others / "below").mkdir(parents=True)
    (folder / "tuned").mkdir()
    mine = [others / "thesis.program", others / "below" / "thesis.program", folder / "notes", folder / "tuned" / "x"]
    for path in mine:
        path.write_bytes(bytes(500))
    (folder / "link").symlink_to(others)
    (folder / "link.program").symlink_to(others / "thesis.program")
    for name in ("left.program-part", "written.program-part"):
        (folder / name).write_bytes(b"1")
    for path in (*mine, folder / "left.program-part"):
        os.utime(path, (1000.0, 1000.0))
    assert programs.get("a") is not None  # used just now, so that b is the oldest
    KeptPrograms(folder, programs.largest).put("d", b"")
    assert {file.name for file in folder.iterdir()} == {
        "a.program",
        "c.program",
        "d.program",
        "written.program-part",
        "notes",
        "tuned",
        "link",
        "link.program",
        compile_cache.MARKER,
    }
    assert all(path.stat().st_size == 500 for path in mine)


def test_without_its_marker_nothing_is_dropped(tmp_path):
    (tmp_path / "a.program").write_bytes(bytes(100))
    KeptPrograms(tmp_path, 10).trim()
    assert (tmp_path / "a.program").exists()


def test_a_reader_sees_whole_programs_while_others_write_them(tmp_path):
    program, found = bytes(range(256)) * 400, set()
    writers = [
        threading.Thread(target=lambda: [KeptPrograms(tmp_path, 2**30).put("key", program) for _ in range(20)])
        for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found.add(KeptPrograms(tmp_path, 2**30).get("key"))
    assert found <= {None, program} and KeptPrograms(tmp_path, 2**30).get("key") == program


def test_a_program_that_was_loaded_is_not_counted_as_compiled(monkeypatch):
    done = [(1.0, 9.0, False), (5.0, 2.0, False), (6.0, 0.5, True), (6.0, 0.6, False)]
    monkeypatch.setattr(compile_cache._PROCESS, "done", done)
    found = compile_cache.compilations(since=4.0)
    assert found == Compilations(1, pytest.approx(2.1), 1, 0.5)
    assert found.sentence() == "Compiled 1 program in 2.1 s, took 1 from the cache in 0.5 s."
