"""Groups of slow and long tests: their names, the sources on which they depend, and the ledger of their last runs.

A group is the slow tests of one file, or the long ones; large files are cut into shares. The ledger says of each group
on which sources it last passed, so that a test which nobody has run lately can be found.
"""

import functools
import hashlib
import json
import math
import re
import zlib
from pathlib import Path, PurePosixPath

from paths import REFERENCE, ROOT, SUPPORT, TESTS

LEDGER = REFERENCE / "ledger.json"
# A group whose sources have changed since it last passed has to pass again within so many landings.
MOST_LANDINGS = 15
# The landing at which the ledger began.
BEGINNING = 1
# Files of which a group takes longer than five minutes, and the number of shares.
SHARES = {
    "long tests/parallel/test_equivalence.py": 22,
    "long tests/parallel/test_configured_runs.py": 8,
    "long tests/project/test_mutations.py": 24,
    "long tests/certificate/test_certify.py": 12,
    "long tests/certificate/test_certify_particles.py": 4,
    "long tests/models/molecular/test_molecular_dynamics.py": 5,
    "long tests/models/sph/test_sph.py": 2,
    "slow tests/parallel/test_equivalence.py": 4,
    "slow tests/project/test_pages.py": 2,
}
# Long tests that need packages of their own: `.ci/run` installs these and runs the files.
ELSEWHERE = (
    "tests/export/test_tesseract.py",
    "tests/stencil/kernels/test_kernel_compilation.py",
    "tests/particles/test_gpu_launches.py",
    "tests/inspect/test_gpu_programs.py",
    "tests/inspect/test_gpu_program_costs.py",
)
# What a folder of tests is about, where the package has no folder of that name.
ABOUT = {"project": ("README.md", "docs")}
NEVER_READ = (".md", ".pyc")


def group_of(item) -> str | None:
    """The group of a test that pytest has collected; None for a test of the default set and for one of `ELSEWHERE`."""
    path = PurePosixPath(item.path.relative_to(ROOT)).as_posix()
    kind = next((mark for mark in ("long", "slow") if item.get_closest_marker(mark)), None)
    if kind is None or kind == "long" and path in ELSEWHERE:
        return None
    shares = SHARES.get(f"{kind} {path}")
    if shares is None:
        return f"{kind} {path}"
    # The tests of a case share its programs, so they stay together.
    case = getattr(item, "callspec", None) and item.callspec.params.get("case")
    name = getattr(case, "name", None) or item.name
    return f"{kind} {path} {zlib.crc32(name.encode()) % shares + 1}/{shares}"


def file_of(group: str) -> str:
    """The file of a group's tests, from the root of the checkout."""
    return group.split()[1]


def own_sources(group: str, root: Path = ROOT) -> list[Path]:
    """Files that a group is about: a change of one of them touches it.

    For `tests/models/flow/test_x.py` these are the test file, what it imports of `tests/support`, and
    `simjax/models/flow` without the folders in it that have tests of their own.
    """
    path = PurePosixPath(file_of(group))
    folder = path.relative_to("tests").parent.as_posix()
    own = [root / name for name in ABOUT.get(folder, (f"simjax/{folder}", f"simjax/{folder}.py"))]
    files = {file for place in own for file in _files(place) if _about(folder, file, root)}
    return sorted(files | _imported(root / path, root))


def all_sources(group: str, root: Path = ROOT) -> list[Path]:
    """Files on which the outcome of a group may depend: the package, its configurations, what tests share, its own."""
    return sorted({*_shared_sources(root), *own_sources(group, root)})


@functools.cache
def _shared_sources(root: Path) -> tuple[Path, ...]:
    folders = ("simjax", "conf", "tests/support", "tests/reference")
    files = {file for folder in folders for file in _files(root / folder)}
    files |= {file for folder in ("tests", "experiments") for file in (root / folder).glob("*.*")}
    ledger = root / LEDGER.relative_to(ROOT)
    return tuple(sorted(file for file in files if file != ledger and file.suffix not in NEVER_READ))


def _about(folder: str, file: Path, root: Path) -> bool:
    """Whether no deeper folder of tests is about this file."""
    home = file.parent.relative_to(root / "simjax").as_posix() if file.is_relative_to(root / "simjax") else folder
    while home not in (folder, "."):
        if (root / "tests" / home).is_dir():
            return False
        home = PurePosixPath(home).parent.as_posix()
    return True


def _files(place: Path) -> set[Path]:
    if place.is_file():
        return {place}
    return {file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts}


def _imported(file: Path, root: Path) -> set[Path]:
    """A test file and the modules of `tests` and `tests/support` that it imports, at any depth."""
    found, waiting = set(), [file]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        names = re.findall(r"^(?:from|import) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        folders = (root / SUPPORT.relative_to(ROOT), root / TESTS.relative_to(ROOT))
        waiting += [folder / f"{name}.py" for name in names for folder in folders]
    return found


def digest(files, root: Path = ROOT) -> str:
    """A number of files' names and contents, in hexadecimal digits."""
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(root).as_posix()} {_digest_of(file)}\n".encode())
    return total.hexdigest()[:12]


@functools.cache
def _digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Ledger:
    """The ledger: of each group the landing and sources at which it last passed, and the failure since, if any.

    landing: the number of the landing that is being prepared. groups: by name, `since` (the landing at which the group
    was entered), `own` (digest of its own sources when it was entered or last passed), `seconds` (of the tests when
    it last passed), and what happened last: `passed` and `failed`, each None or a landing, a commit and a digest of
    all sources; a failure names tests too.
    """

    def __init__(self, landing: int, groups: dict[str, dict], root: Path = ROOT):
        self.landing, self.groups, self.root = landing, groups, root

    @classmethod
    def read(cls, text: str, root: Path = ROOT) -> "Ledger":
        content = json.loads(text)
        return cls(content["landing"], content["groups"], root)

    def text(self) -> str:
        """The file's text: a line for each group, in order, so that two branches seldom change the same line."""
        lines = [f"  {json.dumps(name)}: {json.dumps(self.groups[name])}" for name in sorted(self.groups)]
        return f'{{"landing": {self.landing},\n "groups": {{\n' + ",\n".join(lines) + "\n }}\n"

    def enter(self, names) -> None:
        """Enter groups that are new, with this landing as the start of their time, and drop those that are no more."""
        names = set(names)
        for name in names - self.groups.keys():
            self.groups[name] = {
                "since": self.landing,
                "own": self.own(name),
                "seconds": None,
                "passed": None,
                "failed": None,
            }
        for name in self.groups.keys() - names:
            del self.groups[name]

    def own(self, name: str) -> str:
        return digest(own_sources(name, self.root), self.root)

    def sources(self, name: str) -> str:
        return digest(all_sources(name, self.root), self.root)

    def is_stale(self, name: str) -> bool:
        """Whether a group has not passed on the sources that are here."""
        passed = self.groups[name]["passed"]
        return passed is None or passed["sources"] != self.sources(name)

    def failed_here(self, name: str) -> bool:
        """Whether a group is known to fail on the sources that are here."""
        failed = self.groups[name]["failed"]
        return failed is not None and failed["sources"] == self.sources(name)

    def was_ever_known(self, name: str) -> bool:
        """Whether a group has passed, or is younger than the ledger.

        The others stood before it, and no machine may have run them for long: their failure says nothing of a change.
        """
        return self.groups[name]["passed"] is not None or self.groups[name]["since"] > BEGINNING

    def age(self, name: str) -> int:
        """Landings since a group last passed, or was entered."""
        group = self.groups[name]
        return self.landing - (group["passed"] or {"landing": group["since"]})["landing"]

    def changed_since(self, sources: dict[str, str]) -> set[str]:
        """Groups that had other sources before, as `sources` says; files are read again."""
        _digest_of.cache_clear()
        _shared_sources.cache_clear()
        return {name for name, before in sources.items() if self.sources(name) != before}

    def overdue(self) -> list[str]:
        return [name for name in sorted(self.groups) if self.age(name) > MOST_LANDINGS and self.is_stale(name)]

    def touched(self) -> list[str]:
        """Slow groups whose own sources have changed since they were entered or last passed."""
        return [
            name
            for name in self._oldest_first()
            if name.startswith("slow ") and self.groups[name]["own"] != self.own(name) and self.is_stale(name)
        ]

    def owed(self) -> list[str]:
        """Groups that have not passed here, the oldest first; what is known to fail here is not tried again."""
        return [name for name in self._oldest_first() if self.is_stale(name) and not self.failed_here(name)]

    def _oldest_first(self) -> list[str]:
        # Groups of one age in an order that has nothing to do with their folders, so that every run sees many of these,
        # and that changes with the landing, as continuous integration cannot write down which it has run; first those
        # that have never passed.
        def order(name):
            turn = zlib.crc32(f"{self.landing} {name}".encode())
            return -self.age(name), self.groups[name]["passed"] is not None, turn

        return sorted(self.groups, key=order)

    def record(self, name: str, commit: str, failures: list[str], seconds: float) -> None:
        """Write down a complete run of a group on the sources that are here."""
        group = self.groups[name]
        ran = {"landing": self.landing, "commit": commit, "sources": self.sources(name)}
        if failures:
            group["failed"] = {**ran, "tests": failures[:5]}
        else:
            group.update(own=self.own(name), seconds=math.ceil(seconds), passed=ran, failed=None)
