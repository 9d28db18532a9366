"""Draw the pictures of `experiments/README.md`: `python experiments/pictures.py [NAME ...]`, by default all.

Each is the summary of a run at its default size, as WebP in true colour below `experiments/images`. A run takes 10 to
60 seconds on two cores, a search up to four minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH, QUALITY, METHOD = 1430, 90, 6

SUMMARY, UNKNOWNS, RESIDUALS = "summary.png", "unknowns.png", "residuals.png"
RUNS = """
    fluid kolmogorov cavity backward_step cylinder heated_cylinder airfoil porous_array swimmer falling_plate
    rayleigh_benard heated_cavity salt_fingers channel_les taylor_green_3d from_file turbulence_2d turbulence_3d
    shock_bubble gas_cylinder gas_projectile sod slow_vortex leaving_vortex jets layered_medium double_slit lens
    dielectric_ball gray_scott kuramoto_sivashinsky cahn_hilliard swift_hohenberg allen_cahn solitons
    zabusky_kruskal viscous_burgers condensate lennard_jones binary_mixture molten_salt polymer_melt dam_break
    taylor_green_sph landau_damping two_stream weibel collapsing_sheets zeldovich cold_collapse dye plume
    burgers
"""
SEARCHES = {
    "inverse_vorticity": UNKNOWNS,
    "inverse_source": RESIDUALS,
    "inverse_waveform": UNKNOWNS,
    "inverse_chaos": UNKNOWNS,
    "inverse_closure": UNKNOWNS,
    "inverse_unmixing": RESIDUALS,
}
ENSEMBLE = (
    "experiment=fluid",
    "grid.shape=[128,128]",
    "time.end=1.5",
    "ensemble.size=8",
    "+ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}",
)

# Name -> what is written after `python -m simjax.run`, and the picture of the run's folder.
PICTURES: dict[str, tuple[tuple[str, ...], str]] = {
    **{name: ((f"experiment={name}",), SUMMARY) for name in RUNS.split()},
    **{name: ((f"experiment={name}",), picture) for name, picture in SEARCHES.items()},
    "ensemble": (ENSEMBLE, SUMMARY),
}


def draw(name: str) -> Path:
    """Run, and keep the picture of the run as WebP."""
    arguments, picture = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "simjax.run", *arguments, f"output.root={folder}", "output.folder=run"]
        subprocess.run(command, check=True, env=os.environ, stdout=subprocess.DEVNULL)
        return keep(Path(folder) / "run" / picture, name)


def keep(png: Path, name: str) -> Path:
    """A PNG as a WebP file of the README's pictures."""
    path = IMAGES / f"{name}.webp"
    with Image.open(png) as opened:
        picture = opened.convert("RGB")
        if picture.width > WIDTH:
            picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
        picture.save(path, "WEBP", quality=QUALITY, method=METHOD)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PICTURES)}; by default all")
    names = parser.parse_args().names or list(PICTURES)
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        parser.error(f"no picture is called {', '.join(unknown)}; known are {', '.join(PICTURES)}.")
    for name in names:
        path = draw(name)
        print(f"{path.relative_to(IMAGES.parent.parent)}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
