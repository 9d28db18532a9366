"""Runs cases of `referees/meep.py` in Meep, with an interpreter that has it: `meep_cases.py CASES.json SERIES.npz`."""

import json
import math
import sys

import meep as mp
import numpy as np


def medium(case):
    """Keywords of a simulation: a graded medium that loses, sampled where the field is, or a cylinder in a void."""
    if case["radius"] is not None:
        matter = mp.Medium(epsilon=case["epsilon"])
        cylinder = mp.Cylinder(radius=case["radius"], height=mp.inf, material=matter)
        return {"geometry": [cylinder], "eps_averaging": case["medium"] != "samples"}

    def graded(place):
        epsilon = case["epsilon"] + sum(slope * x for slope, x in zip(case["slopes"], place, strict=False))
        return mp.Medium(epsilon=epsilon, D_conductivity=case["loss"])

    # Meep 1.25 leaves the conductivity of such a function out unless the material below it has one too.
    below = mp.Medium(epsilon=case["epsilon"], D_conductivity=case["loss"])
    everywhere = mp.Block(size=mp.Vector3(mp.inf, mp.inf, mp.inf), material=graded)
    return {"default_material": below, "geometry": [everywhere], "eps_averaging": False}


def series(case):
    """The field at the probes after every step, `(steps, probes)`."""
    pulse = case["pulse"]

    def signal(t):
        since = t - pulse["delay"]
        return math.exp(-((since / pulse["width"]) ** 2)) * math.sin(2 * math.pi * pulse["frequency"] * since)

    component = getattr(mp, f"E{case['along']}")
    current = mp.CustomSource(src_func=signal)
    simulation = mp.Simulation(
        cell_size=mp.Vector3(*case["size"]),
        resolution=case["resolution"],
        Courant=case["courant"],
        dimensions=len(case["size"]),
        sources=[mp.Source(current, component, mp.Vector3(*case["source"]))],
        boundary_layers=[mp.PML(case["layer"])] if case["layer"] else [],
        **medium(case),
    )
    simulation.init_sim()
    probes, seen = [mp.Vector3(*place) for place in case["probes"]], []
    for _ in range(case["steps"]):
        simulation.fields.step()
        seen.append([simulation.get_field_point(component, place).real for place in probes])
    return np.array(seen)


def main(of_case):
    """Keep what `of_case` finds of each case, by name."""
    mp.verbosity(0)
    cases, result = sys.argv[1:]
    with open(cases, encoding="utf-8") as text:
        found = {name: of_case(case) for name, case in json.load(text).items()}
    np.savez(result, meep=mp.__version__, **found)


if __name__ == "__main__":
    main(series)
