"""What is wrong in a built site, of all that a browser gets: text, navigation, docstrings and pictures."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """Anchors of a page, what it links to, what a browser fetches with it, and whether an equation is in LaTeX."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.latex = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors.update(given[name] for name in ("id", "name") if name in given and (name == "id" or tag == "a"))
        self.latex |= given.get("class") == "arithmatex"
        if "href" in given and tag == "a":
            self.links.append(given["href"])
        elif "src" in given or "href" in given and tag == "link":
            self.fetched.append(given.get("src") or given["href"])


def troubles(site: Path) -> list[str]:
    """A sentence for each link that leads nowhere, file that another host would send, and page with LaTeX."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        place = path.relative_to(site).as_posix()
        if page.latex:
            wrong.append(f"{place} shows an equation in LaTeX, not in MathML")
        for target in dict.fromkeys(page.links + page.fetched):
            url = urlsplit(target)
            if url.netloc and target in page.fetched:
                wrong.append(f"{place} fetches {target} from another host")
            if url.netloc or url.scheme:
                continue
            whole = _file(site, path, unquote(url.path))
            if not whole.is_file():
                wrong.append(f"{place} links to {target}, which is not there")
            elif url.fragment and whole in pages and unquote(url.fragment) not in pages[whole].anchors:
                wrong.append(f"{place} links to {target}, which has no such anchor")
    return wrong


def _file(site: Path, page: Path, target: str) -> Path:
    """The file that a browser gets for a path on a page."""
    if not target:
        return page
    whole = (site / target.lstrip("/") if target.startswith("/") else page.parent / target).resolve()
    return whole / "index.html" if whole.is_dir() else whole
