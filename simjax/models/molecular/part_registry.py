"""The parts of molecular dynamics that a configuration chooses: the registry, with one line for each module."""

from simjax.schema.parts import Parts

_HERE = "simjax.models.molecular."

POTENTIALS = Parts(
    "potential",
    f"{_HERE}interaction:Interaction",
    (
        f"{_HERE}pair_potentials",
        f"{_HERE}many_body",
    ),
)
BONDS = Parts("bond", f"{_HERE}bonds:Bond", (f"{_HERE}bonds",))
ANGLES = Parts("angle", f"{_HERE}bonds:AnglePotential", (f"{_HERE}bonds",))
THERMOSTATS = Parts(
    "thermostat",
    f"{_HERE}velocity_verlet:Dynamics",
    (
        f"{_HERE}langevin",
        f"{_HERE}nose_hoover",
    ),
)

potential, bond, angle, thermostat = (parts.declare for parts in (POTENTIALS, BONDS, ANGLES, THERMOSTATS))
"""Decorators: `@potential("yukawa")` declares a class."""
