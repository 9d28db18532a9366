"""Tutorials as pages: notebooks kept as text, shown as they are, or with what they print when they run.

`TUTORIALS=execute` runs them, as for the site that is published; without it a build takes ten seconds.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "tutorials"
TIMEOUT = 600  # seconds that a cell may take
_XARRAY = "xr-text-repr-fallback"
_RICH = ("text/html", "image/svg+xml", "image/png", "text/plain")


def notebooks() -> list[Path]:
    """The tutorials, in their order on the site."""
    names = ("first-flow", "own-equation", "initial-field", "closure", "liquid", "sweep")
    return [FOLDER / f"{name}.py" for name in names]


def executed(path: Path):
    """The notebook of a tutorial with the outputs of its cells.

    Raises CellExecutionError, which names the cell, where one fails.
    """
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(path)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    return notebook


def page(path: Path) -> str:
    """A tutorial as Markdown, executed where TUTORIALS=execute."""
    import jupytext

    notebook = executed(path) if os.environ.get("TUTORIALS") == "execute" else jupytext.read(path)
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            parts += [shown for output in cell.get("outputs", ()) if (shown := _output(output))]
    # The first cell is the title and what the tutorial is about.
    parts.insert(1, f"A notebook kept as text: `jupytext --to notebook docs/tutorials/{path.name}` makes it one.")
    return "\n\n".join(parts) + "\n"


def _output(output) -> str:
    """An output of a cell as Markdown or HTML: its richest form; progress that was replaced is left out."""
    if output.output_type == "stream":
        return (
            f'<div class="output"><pre>{_escaped(output.text.rstrip())}</pre></div>' if output.name == "stdout" else ""
        )
    data = dict(output.get("data", {}))
    if _XARRAY in "".join(data.get("text/html", "")):  # whose table of a Dataset leans on styles that a page drops
        del data["text/html"]
    kind = next((kind for kind in _RICH if kind in data), None)
    if kind is None:
        return ""
    content = "".join(data[kind])
    if kind == "image/png":
        content = f'<img alt="output" src="data:image/png;base64,{content.strip()}">'
    elif kind == "text/plain":
        if content.startswith("<Figure"):
            return ""
        content = f"<pre>{_escaped(content)}</pre>"
    unbroken = re.sub(r"\n\s*\n", "\n", content)  # a blank line would end the block of HTML
    return f'<div class="output">{unbroken}</div>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "&#10;")
