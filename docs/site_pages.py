"""Pages of the site that are not in this folder, tutorials as they run, and equations as MathML, without scripts."""

import html
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import simjax

sys.path.insert(0, str(Path(__file__).parent))
from tutorial_pages import notebooks  # noqa: E402
from tutorial_pages import page as tutorial

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = ("experiments/README.md", "benchmarks/README.md", "CHANGELOG.md")


def on_files(files: Files, config) -> Files:
    """Add the pages, and the pictures of the experiments."""
    for path in ELSEWHERE:
        files.append(File.generated(config, path, content=_links(path, (ROOT / path).read_text(encoding="utf-8"))))
    for picture in sorted((ROOT / "experiments" / "images").iterdir()):
        files.append(File.generated(config, f"experiments/images/{picture.name}", abs_src_path=str(picture)))
    for notebook in notebooks():
        files.append(File.generated(config, f"tutorials/{notebook.stem}.md", content=tutorial(notebook)))
    files.append(File.generated(config, "api.md", content=_reference()))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    """Lead links from pages of this folder to those that stand beside it, and those to tutorials to their pages."""
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\]\((tutorials/[\w-]+)\.py\)", r"](\1.md)", markdown.replace("](../", "]("))


def on_page_content(content: str, **_) -> str:
    """Equations between dollars, which the extension arithmatex marks, as MathML."""
    return re.sub(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', _equation, content, flags=re.DOTALL)


def _equation(found: re.Match) -> str:
    kind = "block" if found[1] == "div" else "inline"
    return f'<{found[1]} class="equation">{convert(html.unescape(found[2]).strip(), display=kind)}</{found[1]}>'


def _links(path: str, text: str) -> str:
    """Links of a page elsewhere in the repository to the pages of the site; those to sources become plain text."""

    def changed(link: re.Match) -> str:
        words, target = link[1], link[2]
        if target.startswith(("http", "#", "images/")):
            return link[0]
        whole = (ROOT / path).parent / target.partition("#")[0]
        inside = whole.resolve().relative_to(ROOT).as_posix()
        if inside not in ELSEWHERE and not inside.startswith("docs/"):
            return words
        up = "../" * path.count("/")
        return f"[{words}]({up}{target.replace('../', '').removeprefix('docs/')})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", changed, text)


def _reference() -> str:
    """Every public name by subject, from its docstring."""
    source = (ROOT / "simjax" / "__init__.pyi").read_text(encoding="utf-8")
    parts = ["# Public names", "", "`import simjax as sj`; each name is imported when it is first asked for.", ""]
    for subject, name in re.findall(r"^# (.*)$|\w+ as (\w+)", source, re.MULTILINE):
        if subject:
            parts += [f"## {subject[0].upper()}{subject[1:]}", ""]
        else:
            heading = ["    options:", f"      heading: sj.{name}", f"      toc_label: {name}"]
            parts += [f"::: {simjax._HOMES[name]}.{name}", *heading, ""]
    return "\n".join(parts)
