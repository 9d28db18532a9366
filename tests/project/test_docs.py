"""Generated parts of the pages are what the declarations say."""

import re
import runpy

import pytest
from cases import CASES
from paths import ROOT

from simjax.core.domain import Domain

PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))
NAMES = PAGES["pages"]()


@pytest.mark.parametrize("page", NAMES)
def test_a_generated_page_is_current(page):
    text, expected = PAGES["current"](page)
    assert text == expected, f"docs/{page} is not current: run python docs/generate.py"


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_page_of_outputs_names_what_models_record(case):
    page = (ROOT / "docs" / "outputs.md").read_text(encoding="utf-8")
    for name in case.build(Domain(case.grid)).measures():
        # One name stands for all axes, scalars and octaves, and four for the statistics of any field.
        known = re.sub(r"_([xyz]|\d+)$", "", name)
        statistic = name.split("_")[0] in STATISTICS and "statistics" in page
        assert re.search(rf"`{known}(_x|_0)?`", page) or statistic, f"docs/outputs.md: no line names {name}"
