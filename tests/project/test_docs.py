"""Generated parts of the pages are what the declarations say."""

import re
import runpy

from cases import CASES
from paths import ROOT

import simjax as sj
from simjax.core.domain import Domain
from simjax.schema.config import BodyFile

PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))
NAMES = PAGES["pages"]()


def test_generated_pages_are_current():
    pairs = {page: PAGES["current"](page) for page in NAMES}
    assert len(pairs) > 10
    stale = [page for page, (text, expected) in pairs.items() if text != expected]
    assert not stale, "run python docs/generate.py"


def test_every_generated_part_stands_on_one_page():
    texts = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in NAMES]
    used = [name for text in texts for _, name, _ in PAGES["MARKS"].findall(text)]
    assert sorted(used) == sorted({*PAGES["GENERATED"]} - {"molecular"}), (
        "its page shows the parts of molecular dynamics"
    )


def test_every_model_has_a_row_with_its_equation():
    rows = PAGES["equations"]().splitlines()[2:]
    for name, row in zip(PAGES["HOMES"], rows, strict=True):
        cells = [cell.strip() for cell in row.replace("\\|", "/").split("|")]
        assert cells[1] == f"`{name}`" and len(cells[2]) > 10 and len(cells) == 6, row


STATISTICS = ("mean", "variance", "minimum", "maximum")


def test_the_page_of_outputs_names_what_models_record():
    page = (ROOT / "docs" / "outputs.md").read_text(encoding="utf-8")

    def told(name):
        # One name stands for all axes, scalars and octaves, and four for the statistics of any field.
        known = re.sub(r"_([xyz]|\d+)$", "", name)
        return re.search(rf"`{known}(_x|_0)?`", page) or name.split("_")[0] in STATISTICS and "statistics" in page

    recorded = {case.name: case.build(Domain(case.grid)).measures() for case in CASES}
    missing = {case: [name for name in names if not told(name)] for case, names in recorded.items()}
    assert {case: names for case, names in missing.items() if names} == {}, "docs/outputs.md has no line for them"


def by_hand(name):
    """A page without its generated parts."""
    return PAGES["MARKS"].sub("", (ROOT / "docs" / name).read_text(encoding="utf-8"))


def code_of_pages():
    """All that stands as code on pages other than the table of all keys, tutorials and the README included."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md") if path.name != "keys.md"]
    found = [part for text in [*texts, (ROOT / "README.md").read_text()] for part in CODE.findall(text)]
    return "\n".join([*found, *(path.read_text() for path in (ROOT / "docs" / "tutorials").glob("*.py"))])


CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)


def test_a_page_tells_of_every_key_beside_the_table_of_all():
    code, table = code_of_pages(), (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    keys = {key.rsplit(".", 1)[-1] for key in re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)}
    assert len(keys) > 150
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", code)) == []


def test_pages_tell_of_what_stands_in_the_place_of_a_formula():
    files = "\n".join(CODE.findall(by_hand("input-files.md") + by_hand("flow.md")))
    names = {"file", "variable", "time", "member", "order"} | {*vars(BodyFile)["__dataclass_fields__"]} - {"variables"}
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", files)) == []
    assert "signal: {file:" in by_hand("waves.md") and "forces=" in by_hand("python.md")
    assert "StochasticCellRescaling" in by_hand("molecular-dynamics.md")


def test_every_public_name_has_a_line():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert [name for name in sj.__all__ if not re.search(rf"^\| `{name}` \| \S", page, re.MULTILINE)] == []
