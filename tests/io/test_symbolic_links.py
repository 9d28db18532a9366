"""Links, pipes and devices in a run's folder: nothing outside is truncated, appended to or waited for."""

import os

import pytest

from simjax.errors import InputOutputError
from simjax.io.files import new_hdf5, open_in_run, replaced
from simjax.io.lock import LOCK_NAME, FolderLock

WORDS = "precious\n"


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text(WORDS)
    (tmp_path / "run").mkdir()
    return path


@pytest.mark.parametrize(
    "name",
    [
        LOCK_NAME,
        "run.log",
        "metrics.jsonl",
        "provenance.json",
        ".hydra/config.yaml",
        ".hydra/overrides.yaml",
        "checkpoints/3/simjax_manifest.json",
        "fields.h5.tmp",
    ],
)
def test_a_folder_with_a_link_is_refused_before_anything_is_written(victim, name):
    link = victim.parent / "run" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    with (
        pytest.raises(InputOutputError, match=f"{link.name} is a link to .*victim") as refused,
        FolderLock(victim.parent / "run"),
    ):
        pass
    assert refused.value.exit_code == 4 and victim.read_text() == WORDS
    assert name == LOCK_NAME or not (victim.parent / "run" / LOCK_NAME).exists()


@pytest.mark.parametrize("name", ["checkpoints", "data", ".hydra"])
def test_a_folder_that_is_a_link_is_refused(victim, name):
    (victim.parent / "run" / name).symlink_to("..")
    with pytest.raises(InputOutputError, match=f"{name} is a link to"), FolderLock(victim.parent / "run"):
        pass


@pytest.mark.parametrize("mode", ["a", "w"])
def test_files_of_a_run_are_not_opened_through_a_link(victim, mode):
    """The link was put there while the run was going on."""
    (victim.parent / "run" / "run.log").symlink_to(victim)
    with pytest.raises(InputOutputError, match="is a link to"):
        open_in_run(victim.parent / "run" / "run.log", mode)
    assert victim.read_text() == WORDS
    with open_in_run(victim, mode) as file:
        file.write("more\n")
    assert victim.read_text() == {"a": WORDS + "more\n", "w": "more\n"}[mode]


@pytest.mark.parametrize("reader", [False, True])
def test_a_pipe_is_not_waited_for(victim, reader):
    pipe = victim.parent / "run" / "run.log"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if reader else None
    with pytest.raises(InputOutputError, match="not a regular file"):
        open_in_run(pipe)
    if end is not None:
        os.close(end)


def test_new_content_never_goes_through_a_link_of_the_temporary_name(victim):
    path = victim.parent / "run" / "a.json"
    path.with_name("a.json.tmp").symlink_to(victim)
    with replaced(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and victim.read_text() == WORDS
    linked = victim.parent / "run" / "linked.h5"
    linked.symlink_to(victim)
    with pytest.raises(InputOutputError, match="is a link to"), new_hdf5(linked):
        pass
    assert victim.read_text() == WORDS
