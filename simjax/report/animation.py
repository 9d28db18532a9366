"""The run as an animation: pictures mapped to colours by numpy over a frame that matplotlib draws once."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from simjax.errors import ConfigurationError
from simjax.io.files import replaced
from simjax.io.readable import readable
from simjax.report import scalars
from simjax.report.animation_frames import LineStage, PlaneStage
from simjax.report.particle_frames import ParticleStage
from simjax.report.scene import NOWHERE, Scene
from simjax.report.webp import animated_webp, frame_durations

if TYPE_CHECKING:
    import xarray as xr

_MOST_FRAMES = 150
_SIZE_LIMIT = 1_500_000
# Coarser and coarser: WebP quality, scale of the picture, and every how many frames.
_LADDER = (
    (82, 1.0, 1),
    (65, 1.0, 1),
    (50, 1.0, 1),
    (35, 1.0, 1),
    (40, 0.8, 1),
    (40, 0.7, 2),
    (30, 0.5, 3),
)


def write_animation(
    dataset: xr.Dataset, path: Path, *, title: str = "", scene: Scene = NOWHERE, size_limit: int = _SIZE_LIMIT
) -> Path | None:
    """Animate the main scalar of a run; return `path`, or None when there is no frame to show.

    `path` ends in .webp, in .gif, or in .mp4 where ffmpeg is there (ConfigurationError otherwise). The colour scale is
    fixed over the whole run, at most 150 evenly spaced frames are shown, and a WebP file is encoded more
    coarsely until it stays below `size_limit` bytes. A line in 1-D, the plane in 2-D, the mid-plane across z
    in 3-D, up to four members of an ensemble side by side. Particles as spheres or discs.
    """
    dataset = readable(dataset)
    count = dataset.sizes.get("time", 0)
    stride = -(-count // _MOST_FRAMES)
    frames = sorted({*range(0, count, stride), count - 1}) if count else []
    stage = _stage(dataset, frames, title or str(dataset.attrs.get("title", "")), scene)
    if stage is None:
        return None
    if path.suffix == ".mp4":
        _write_mp4(stage.draw, len(frames), path)
        return path
    if path.suffix == ".gif":
        first, *rest = (stage.draw(i) for i in range(len(frames)))
        with replaced(path) as temporary:
            durations = frame_durations(len(frames))
            first.save(temporary, "GIF", save_all=True, append_images=rest, duration=durations, loop=0)
        return path
    encoded = encode_webp(stage.draw, len(frames), size_limit)
    with replaced(path) as temporary:
        temporary.write_bytes(encoded)
    return path


def _stage(
    dataset: xr.Dataset, frames: list[int], title: str, scene: Scene
) -> LineStage | PlaneStage | ParticleStage | None:
    """Painter of the frames of this run; None where there is nothing to show."""
    if not frames:
        return None
    if "particle" in dataset.sizes:
        return ParticleStage(dataset, frames, title, scene) if "position" in dataset else None
    drawable = scalars.scalars(dataset)
    if not drawable:
        return None
    if len(drawable[0].axes) == 1:
        return LineStage(drawable[0], frames, title)
    return PlaneStage(drawable[0], frames, title, scene)


def encode_webp(draw: Callable[[int], Image.Image], count: int, size_limit: int) -> bytes:
    """An animated WebP of draw(0) .. draw(count - 1), below `size_limit` bytes if possible."""
    encoded = b""
    for quality, scale, skip in _LADDER[_first_rung(draw, count, size_limit) :]:
        shown = sorted({*range(0, count, skip), count - 1})
        encoded = animated_webp((_scaled(draw(i), scale) for i in shown), len(shown), quality)
        if len(encoded) <= size_limit:
            break
    return encoded


def _first_rung(draw: Callable[[int], Image.Image], count: int, size_limit: int) -> int:
    """Rung of the ladder to begin with, from the sizes of an animation of three frames and of its first."""
    samples = [draw(i) for i in sorted({0, count // 4, 3 * count // 4})]
    for rung, (quality, scale, skip) in enumerate(_LADDER):
        pictures = [_scaled(sample, scale) for sample in samples]
        first = len(animated_webp(pictures[:1], 1, quality))
        rest = len(animated_webp(pictures, len(pictures), quality)) - first
        if first + rest / max(1, len(samples) - 1) * (count / skip - 1) <= 0.97 * size_limit:
            return rung
    return len(_LADDER) - 1


def _scaled(picture: Image.Image, scale: float) -> Image.Image:
    if scale == 1.0:
        return picture
    size = (round(picture.width * scale), round(picture.height * scale))
    return picture.resize(size, Image.Resampling.LANCZOS)


def _ffmpeg() -> str:
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]

        return imageio_ffmpeg.get_ffmpeg_exe()
    found = shutil.which("ffmpeg")
    if found is None:
        raise ConfigurationError(
            "An .mp4 animation needs ffmpeg, which was not found; write `pip install imageio-ffmpeg`, or "
            "name the animation .webp."
        )
    return found


def _even_pictures(draw: Callable[[int], Image.Image], count: int) -> Iterator[bytes]:
    for i in range(count):
        pixels = np.asarray(draw(i))
        pixels = np.pad(pixels, ((0, pixels.shape[0] % 2), (0, pixels.shape[1] % 2), (0, 0)), mode="edge")
        yield pixels.tobytes()


def _write_mp4(draw: Callable[[int], Image.Image], count: int, path: Path) -> None:
    """H.264 through ffmpeg, in the pixel format that browsers play, which needs even sizes."""
    first = draw(0)
    size = f"{first.width + first.width % 2}x{first.height + first.height % 2}"
    rate = f"{1000 / frame_durations(count)[0]:.4f}"
    with replaced(path) as temporary:
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", rate, "-i", "-"]
        target = ["-c:v", "libx264", "-crf", "23", "-preset", "veryfast", "-pix_fmt", "yuv420p"]
        ending = ["-movflags", "+faststart", "-f", "mp4", str(temporary)]
        command = [_ffmpeg(), "-y", "-loglevel", "error", *source, *target, *ending]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:
            _, complaint = encoder.communicate(b"".join(_even_pictures(draw, count)))
        if encoder.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines()
            raise OSError(f"ffmpeg returned {encoder.returncode}: {lines[-1] if lines else 'no message'}")
