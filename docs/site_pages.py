"""Pages of the site: those of this folder, some that stand elsewhere, tutorials as they run, and every public name."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tutorial_pages import notebooks
from tutorial_pages import page as tutorial

import simjax

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
GATHERED = ROOT / "build" / "pages"
ELSEWHERE = ("experiments/README.md", "benchmarks/README.md", "CHANGELOG.md")
PICTURES = (DOCS / "images", ROOT / "experiments" / "images")


def sources() -> dict[str, tuple[Path, Callable[[Path], str | bytes]]]:
    """Files of the site by their places: what each is made from, and the function that makes it."""
    files: dict[str, tuple[Path, Callable[[Path], str | bytes]]] = {"site.css": (DOCS / "site.css", Path.read_bytes)}
    files |= {page.name: (page, _beside) for page in DOCS.glob("*.md")}
    files |= {path: (ROOT / path, _elsewhere) for path in ELSEWHERE}
    files |= {f"tutorials/{notebook.stem}.md": (notebook, tutorial) for notebook in notebooks()}
    files["api.md"] = (ROOT / "simjax" / "__init__.pyi", _reference)
    for folder in PICTURES:
        place = folder.relative_to(DOCS if folder.is_relative_to(DOCS) else ROOT).as_posix()
        files |= {f"{place}/{picture.name}": (picture, Path.read_bytes) for picture in folder.iterdir()}
    return files


def gather(made: dict[str, float]) -> None:
    """Writes the files whose sources have changed; `made` keeps when the source of each was changed last."""
    if not made:
        shutil.rmtree(GATHERED, ignore_errors=True)
    for path, (source, content) in sources().items():
        changed = source.stat().st_mtime
        if made.get(path) == changed:
            continue
        written = content(source)
        (GATHERED / path).parent.mkdir(parents=True, exist_ok=True)
        (GATHERED / path).write_bytes(written.encode() if isinstance(written, str) else written)
        made[path] = changed


def _beside(page: Path) -> str:
    """A page of this folder: links lead to pages beside it on the site, those to tutorials to their pages."""
    text = page.read_text(encoding="utf-8").replace("](../", "](")
    return re.sub(r"\]\((tutorials/[\w-]+)\.py\)", r"](\1.md)", text)


def _elsewhere(page: Path) -> str:
    """A page elsewhere in the repository: links to pages of the site are kept, those to sources become plain text."""
    path = page.relative_to(ROOT).as_posix()

    def changed(link: re.Match) -> str:
        words, target = link[1], link[2]
        if target.startswith(("http", "#", "images/")):
            return link[0]
        inside = (page.parent / target.partition("#")[0]).resolve().relative_to(ROOT).as_posix()
        if inside not in ELSEWHERE and not inside.startswith("docs/"):
            return words
        up = "../" * path.count("/")
        return f"[{words}]({up}{target.replace('../', '').removeprefix('docs/')})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", changed, page.read_text(encoding="utf-8"))


def _reference(names: Path) -> str:
    """Every public name by subject, from its docstring."""
    parts = ["# Public names", "", "`import simjax as sj`; each name is imported when it is first asked for.", ""]
    for subject, name in re.findall(r"^# (.*)$|\w+ as (\w+)", names.read_text(encoding="utf-8"), re.MULTILINE):
        if subject:
            parts += [f"## {subject[0].upper()}{subject[1:]}", ""]
        else:
            heading = ["    options:", f"      heading: sj.{name}", f"      toc_label: {name}"]
            parts += [f"::: {simjax._HOMES[name]}.{name}", *heading, ""]
    return "\n".join(parts)
