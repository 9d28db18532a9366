"""Runs guides of `referees/meep.py` in Meep, with an interpreter that has it: `meep_modes.py CASES.json SERIES.npz`."""

import meep as mp
import numpy as np
from meep_cases import main


def scattered(case):
    """Complex amplitudes of the mode that the gap sends back and lets pass, over what comes, `(2, frequency)`."""
    tm = case["model"] == "maxwell_tm"
    parity = mp.ODD_Z + mp.EVEN_Y if tm else mp.EVEN_Z + mp.ODD_Y
    whole = mp.Vector3(0, case["line"])
    core = mp.Block(size=mp.Vector3(mp.inf, case["width"], mp.inf), material=mp.Medium(epsilon=case["epsilon"]))
    gap = mp.Block(size=mp.Vector3(case["gap"], mp.inf, mp.inf), material=mp.Medium(epsilon=1))
    middle, (first, last) = case["middle"], (case["frequencies"][0], case["frequencies"][-1])
    simulation = mp.Simulation(
        cell_size=mp.Vector3(*case["size"]),
        resolution=case["resolution"],
        boundary_layers=[mp.PML(case["layer"])],
        geometry=[core, gap],
        sources=[
            mp.EigenModeSource(
                mp.GaussianSource(middle, fwidth=0.4 * middle),
                center=mp.Vector3(case["source"]),
                size=whole,
                eig_band=1,
                eig_parity=parity,
            )
        ],
    )
    planes = [
        simulation.add_mode_monitor(
            0.5 * (first + last),
            last - first,
            len(case["frequencies"]),
            mp.ModeRegion(center=mp.Vector3(x), size=whole),
        )
        for x in case["ports"]
    ]
    simulation.run(until_after_sources=case["end"])
    (port, other) = (simulation.get_eigenmode_coefficients(one, [1], eig_parity=parity).alpha[0] for one in planes)
    # Meep's waves are exp(-i w t).
    return np.conj([port[:, 1] / port[:, 0], other[:, 0] / port[:, 0]])


if __name__ == "__main__":
    main(scattered)
