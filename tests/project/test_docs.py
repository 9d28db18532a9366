"""Generated parts of the pages are what the declarations say."""

import runpy

import pytest
from paths import ROOT

PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("page", sorted(PAGES["GENERATED"]))
def test_a_generated_page_is_current(page):
    text, expected = PAGES["current"](page)
    assert text == expected, f"docs/{page} is not current: run python docs/generate.py"
    assert text.count("<!-- generated -->") == 1


def test_every_model_has_a_row_with_its_equation():
    rows = PAGES["equations"]().splitlines()[2:]
    for name, row in zip(PAGES["HOMES"], rows, strict=True):
        cells = [cell.strip() for cell in row.replace("\\|", "/").split("|")]
        assert cells[1] == f"`{name}`" and len(cells[2]) > 10 and len(cells) == 8, row
