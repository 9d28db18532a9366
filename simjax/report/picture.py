"""A picture or an animation in memory, which a notebook shows and a file takes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from simjax.errors import ConfigurationError
from simjax.io.files import replaced
from simjax.schema.locate import usable_path

_KINDS = {"svg": "image/svg+xml", "pdf": "application/pdf", "mp4": "video/mp4"}


@dataclass(frozen=True)
class Picture:
    """An image or a film: its bytes and their format. A notebook shows it; `save` writes it to a file.

    format: png, pdf or svg; of what moves webp, gif or mp4.

    Examples:
        >>> run = sj.load("sod", ["grid.shape=[32]", "output.report=false", "output.animation=false"]).run()
        >>> run.plot().save("tube.png").name
        'tube.png'
    """

    content: bytes = field(repr=False)
    format: str

    @staticmethod
    def drawn(draw: Callable[[Path], object], form: str) -> Picture:
        """The picture that `draw(path)` writes."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"picture.{form}"
            draw(path)
            return Picture(path.read_bytes(), form)

    def save(self, path: str | Path) -> Path:
        """Write the picture to `path` and return it.

        Raises:
            ConfigurationError: the path ends otherwise than in the picture's format.
        """
        path = usable_path(path, "save")
        if path.suffix != f".{self.format}":
            raise ConfigurationError(
                f"save({str(path)!r}): expected a name that ends in .{self.format}; write "
                f"{path.with_suffix('.' + self.format).name!r}."
            )
        with replaced(path) as temporary:
            temporary.write_bytes(self.content)
        return path

    def _repr_html_(self) -> str:
        kind = _KINDS.get(self.format, f"image/{self.format}")
        source = f"data:{kind};base64,{base64.b64encode(self.content).decode()}"
        if self.format == "pdf":
            return f'<embed type="{kind}" width="100%" height="600" src="{source}">'
        if self.format == "mp4":
            return f'<video controls loop style="max-width:100%" src="{source}"></video>'
        return f'<img style="max-width:100%" alt="picture of a run" src="{source}">'
