"""Plugin of pytest for `tests/ledger.py`: runs the tests of some groups, and writes what became of each.

The environment names the folder of results, GROUP_RESULTS. Read is `chosen.json`, a list of groups in their order, of
which an empty one stands for all. Written are `collected.json`, the tests of each group, and `ended.jsonl`, a line for
each part of a test that has ended.
"""

import json
import os
from pathlib import Path

import pytest
from owed_groups import group_of

FOLDER = Path(os.environ["GROUP_RESULTS"])


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    # After all other plugins: these drop what is not to run, and names have what tells pytest-xdist where a test runs.
    result = yield
    groups = {item: group_of(item) for item in items}
    chosen = json.loads((FOLDER / "chosen.json").read_text()) or sorted({*groups.values()} - {None})
    rank = {group: place for place, group in enumerate(chosen)}
    kept = sorted((item for item in items if groups[item] in rank), key=lambda item: rank[groups[item]])
    config.hook.pytest_deselected(items=[item for item in items if groups[item] not in rank])
    items[:] = kept
    collected = {}
    for item in kept:
        collected.setdefault(groups[item], []).append(item.nodeid)
    # Each worker writes the same.
    part = FOLDER / f"collected.{os.getpid()}"
    part.write_text(json.dumps(collected))
    part.replace(FOLDER / "collected.json")
    return result


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # the process that distributes tests hears of all
        config.pluginmanager.register(Results())


class Results:
    """The part of the plugin that writes what has ended, in one process."""

    def pytest_runtest_logreport(self, report):
        skipped = report.skipped and not hasattr(report, "wasxfail")
        outcome = "skipped" if skipped else "failed" if report.failed else "passed"
        ended = {"test": report.nodeid, "when": report.when, "outcome": outcome, "seconds": report.duration}
        with (FOLDER / "ended.jsonl").open("a") as file:
            file.write(json.dumps(ended) + "\n")
