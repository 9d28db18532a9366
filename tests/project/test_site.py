"""The site: what is wrong in a built one is found, and its navigation has all pages that are gathered."""

import importlib
import re
import tomllib

import pytest
from paths import ROOT

SITE = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def modules(monkeypatch):
    """Those that build the site."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return {name: importlib.import_module(name) for name in ("site_checks", "site_pages")}


@pytest.fixture
def site(tmp_path):
    """Two pages whose links all lead somewhere, by each of the ways in which a page is named."""
    (tmp_path / "flow").mkdir()
    (tmp_path / "images").mkdir()
    for file in ("images/a.svg", "site.css"):
        (tmp_path / file).write_text("", encoding="utf-8")
    anchors = '<h1 id="flow">Flow</h1><a id="a b"></a>'
    away = '<a href="https://example.org/#x">x</a><a href="mailto:a@example.org">y</a>'
    inside = '<a href="#flow">1</a><a href="#">2</a><a href="../">3</a><a href="/flow/#a%20b">4</a><a href=".?q">5</a>'
    fetched = '<link href="../site.css"><img src="../images/a.svg"><img src="data:image/png;base64,AA==">'
    (tmp_path / "flow" / "index.html").write_text(anchors + away + inside + fetched, encoding="utf-8")
    (tmp_path / "index.html").write_text('<a href="flow/">1</a><a href="flow/index.html#flow">2</a>', encoding="utf-8")
    return tmp_path


def test_links_that_lead_somewhere_are_no_trouble(modules, site):
    assert modules["site_checks"].troubles(site) == []


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ('<a href="nowhere/">', "links to nowhere/, which is not there"),
        ('<a href="nowhere.md">', "links to nowhere.md, which is not there"),
        ('<a href="images/">', "links to images/, which is not there"),
        ('<a href="/nowhere/">', "links to /nowhere/, which is not there"),
        ('<a href="flow/#nowhere">', "links to flow/#nowhere, which has no such anchor"),
        ('<meta name="flow"><a href="#flow">', "links to #flow, which has no such anchor"),
        ('<img src="images/b.svg">', "links to images/b.svg, which is not there"),
        ('<script src="nowhere.js"></script>', "links to nowhere.js, which is not there"),
        ('<link href="https://example.org/a.css">', "fetches https://example.org/a.css from another host"),
        ('<span class="arithmatex">\\(p\\)</span>', "shows an equation in LaTeX, not in MathML"),
        ('<img src="//example.org/a.png">', "fetches //example.org/a.png from another host"),
    ],
)
def test_each_trouble_is_told(modules, site, added, told):
    with (site / "index.html").open("a", encoding="utf-8") as page:
        page.write(added)
    assert modules["site_checks"].troubles(site) == [f"index.html {told}"]


def test_the_navigation_has_every_page_once(modules):
    def pages(entry):
        return [entry] if isinstance(entry, str) else [page for part in entry.values() for page in part]

    gathered = [path for path in modules["site_pages"].sources() if path.endswith(".md")]
    assert len(gathered) > 50
    assert sorted(page for entry in SITE["nav"] for page in pages(entry)) == sorted(gathered)


def test_links_of_gathered_pages_lead_to_gathered_files(modules):
    """Those between pages, without anchors, which a build checks too."""
    files, wrong, found = modules["site_pages"].sources(), [], 0
    for path in ("index.md", "install.md", *modules["site_pages"].ELSEWHERE):
        source, content = files[path]
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|webp|svg))[)#]", content(source)):
            place, found = (ROOT / path).parent / target, found + 1
            if place.resolve().relative_to(ROOT).as_posix() not in files:
                wrong.append((path, target))
    assert wrong == [] and found > 100


def test_a_file_is_made_anew_where_its_source_has_changed(modules, monkeypatch, tmp_path):
    pages, made = modules["site_pages"], {}
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    monkeypatch.setattr(pages, "GATHERED", tmp_path / "pages")
    monkeypatch.setattr(pages, "sources", lambda: {"x/a.md": (tmp_path / "a.txt", lambda path: path.read_text() + "!")})
    page = tmp_path / "pages" / "x" / "a.md"
    pages.gather(made)
    assert page.read_text() == "one!"
    page.write_text("untouched")
    pages.gather(made)
    assert page.read_text() == "untouched"
    (tmp_path / "a.txt").write_text("two", encoding="utf-8")
    made["x/a.md"] -= 1  # clocks of file systems may be coarse
    pages.gather(made)
    assert page.read_text() == "two!"
