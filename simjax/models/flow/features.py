"""Features of incompressible flows, those that exclude each other, and what is refused of a flow in all.

Constructors, configurations and the table in `docs/flow.md` read them.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simjax.grid import AXES
from simjax.models.axisymmetric_grid import ASKED, RINGS, side_refusals
from simjax.ops.axisymmetric_divergence import RADIAL
from simjax.ops.eddy_viscosity import VISCOSITIES
from simjax.ops.momentum_advection import SCHEMES
from simjax.ops.scalar_fluxes import SCHEMES as FLUXES
from simjax.schema.exclusions import Exclusion, Exclusions, Feature
from simjax.schema.model_schema import IMEX

USUAL = "central2"
DYNAMIC = "dynamic_smagorinsky"
MIRRORS = ("periodic", "slip")
"""Kinds of side at which a mirrored flow is a smooth one, so that wide stencils keep their order."""
OPEN = ("outflow", "open")
ENDS = ("lower", "upper")
WALL_MODEL = "wall_model"
WHOLE_STEPS = ("kutta3", "euler", "midpoint", "heun", "rk4")
"""Schemes whose last stage takes the whole step, so that what a body takes in it is what it takes in the step."""


def _listed(names: list[str]) -> str:
    return f"write {', '.join(names[:-1])} or {names[-1]}"


NARROW = _listed([name for name, flux in FLUXES.items() if not flux.reach])
NO_BALANCE = "leave the balance out"
SECOND_ORDER = _listed([name for name, scheme in SCHEMES.items() if scheme.order == 2])

FEATURES = {
    "rings": RINGS,
    "stretching": Feature("a stretched grid (`grid.stretch`)", without="a uniform grid"),
    "sought_stretching": Feature(
        "a stretching of parameters of which a gradient is asked", without="a stretching of given numbers"
    ),
    "bodies": Feature("bodies (`coefficients.solid`)", without="a flow without bodies"),
    "stretched_bodies": Feature("bodies on a stretched grid", without="a uniform grid around bodies"),
    "ring_bodies": Feature("bodies on an axisymmetric grid", without="a Cartesian grid around bodies"),
    "solid_velocity": Feature(
        "a given velocity of bodies (`coefficients.solid_velocity`)",
        instead="leave it out, or write physics.body.initial_velocity for that at the start",
    ),
    "torque_about": Feature("torques about a given point (`physics.torque_about`)", instead="write null"),
    "free_body": Feature(
        "a body that the fluid moves (`physics.body`)",
        without="bodies that move as they are told",
        instead="write null, or model=incompressible",
    ),
    "eddy_viscosity": Feature("a given eddy viscosity (`coefficients.eddy_viscosity`)", without="no eddy viscosity"),
    "turbulence": Feature(
        "a turbulence model (`physics.turbulence`)", without="no turbulence model", instead="write none"
    ),
    "dynamic": Feature(f"the turbulence model `{DYNAMIC}`", instead="write wale or vreman"),
    "no_homogeneous_axis": Feature("no axis that is periodic and uniform", without="a uniform periodic axis"),
    "rotation": Feature("a frame that turns (`physics.rotation`)", without="a frame at rest"),
    "bulk_velocity": Feature(
        "a bulk velocity (`physics.bulk_velocity`)",
        without="no bulk velocity",
        instead="write forcing.velocity instead",
    ),
    "implicit": Feature(
        f"implicit viscosity (`time.integrator`: {', '.join(IMEX)})",
        without="explicit viscosity",
        instead="write kutta3 or another scheme that is explicit",
    ),
    "other_steps": Feature(
        f"explicit schemes other than {', '.join(WHOLE_STEPS)} (`time.integrator`)", instead=_listed([*WHOLE_STEPS])
    ),
    "advection": Feature(
        f"advection of momentum by other schemes than {USUAL} (`physics.advection`)",
        without=f"physics.advection = {USUAL}",
        instead=f"write {USUAL}",
    ),
    "fourth_order": Feature(
        "advection of momentum by central4", without="a flow of second order", instead=SECOND_ORDER
    ),
    "iterative": Feature("`physics.pressure_solver`: tridiagonal or multigrid", instead="write auto or spectral"),
    "tridiagonal": Feature("`physics.pressure_solver`: tridiagonal", instead="write spectral, multigrid or auto"),
    "spectral": Feature("`physics.pressure_solver`: spectral", instead="write multigrid or auto"),
    "walls": Feature("sides other than periodic and slip", without="periodic or slip sides"),
    "opening": Feature("open sides (outflow, open)", without="periodic, no_slip, slip and inflow sides alone"),
    "opening_across_r": Feature("open sides across x (outflow, open)", instead="write a wall or an inflow"),
    "one_pressure": Feature(
        "a pressure given at one end of an axis (open)", without="pressures given at both ends of an axis or at none"
    ),
    "passage": Feature(
        "sides that the flow passes (inflow, outflow, open)", without="sides that nothing flows through"
    ),
    "wall_model": Feature(
        "sides with a wall model (wall_model)", without="walls with a resolved layer", instead="write no_slip"
    ),
    "carried": Feature("a carried scalar (passive_scalar, boussinesq)", without="a flow that carries nothing"),
    "flux": Feature("a carried scalar by other fluxes than central4 (`physics.scheme`)", instead="write central4"),
    "wide_flux": Feature("a carried scalar by central4 or weno5 (`physics.scheme`)", instead=NARROW),
    "scalars": Feature("further scalars (`initial.scalars`)"),
    "gravity_along_r": Feature("gravity along x (`physics.gravity`)", instead="write [0, g]"),
    "balance": Feature("balances of momentum and kinetic energy (`outputs`)", instead=NO_BALANCE),
    "balance_along_r": Feature("a balance of momentum along x", instead=NO_BALANCE),
    "balance_of_energy": Feature("a balance of kinetic energy", instead=NO_BALANCE),
    "balance_of_scalar": Feature("a balance of the carried scalar", instead=NO_BALANCE),
}

EXCLUSIONS = Exclusions(
    FEATURES,
    (
        Exclusion("free_body", "rings", "on which alone its motion is solved for"),
        Exclusion("torque_about", "rings", "as a flow without swirl turns no body about the axis"),
        Exclusion("eddy_viscosity", "rings", "on which alone its stresses are known"),
        Exclusion("turbulence", "rings", "on which alone its stresses are known"),
        Exclusion("rotation", "rings", "as a flow without swirl stays in its plane"),
        Exclusion("gravity_along_r", "rings", "as gravity does not point away from an axis on all sides"),
        Exclusion("opening_across_r", "rings", "as flows around an axis are open along z only"),
        Exclusion("wall_model", "rings", "as its friction is that of a plane wall"),
        Exclusion("advection", "rings", "on which alone its fluxes are known"),
        Exclusion("implicit", "rings", "on which alone its solve is made"),
        Exclusion("wide_flux", "rings", "as its fluxes would be of second order on an axisymmetric one"),
        Exclusion("balance_along_r", "rings", "as around an axis the pressure pushes on the sides of rings"),
        Exclusion("advection", "bodies", "whose inside it would read"),
        Exclusion("dynamic", "bodies", "around which no axis is homogeneous"),
        Exclusion("bulk_velocity", "bodies", "as a uniform force would move what is inside of them"),
        Exclusion("implicit", "bodies", "around which its solve is not made"),
        Exclusion("other_steps", "bodies", "as the force on them is that of a whole step"),
        Exclusion("tridiagonal", "rings", "as it solves along lines of equal cells"),
        Exclusion("tridiagonal", "stretching", "as it solves along lines of equal cells"),
        Exclusion("tridiagonal", "one_pressure", "as it solves along lines of which both ends are alike"),
        Exclusion("tridiagonal", "bodies", "around which it does not solve"),
        Exclusion("spectral", "stretched_bodies", "on which alone it solves around them"),
        Exclusion("wide_flux", "bodies", "as its fluxes are sums over neighbouring faces, closed ones in bodies"),
        Exclusion("scalars", "bodies", "where these have no condition"),
        Exclusion("balance", "bodies", "as it does not know what they take"),
        Exclusion("balance_of_scalar", "bodies", "as it does not know what they give and take"),
        Exclusion("solid_velocity", "free_body", "as its velocity is found"),
        Exclusion("torque_about", "free_body", "as its torque is about its centroid"),
        Exclusion(
            "carried",
            "ring_bodies",
            "on which alone its condition at them is known",
            "write model=incompressible",
        ),
        Exclusion("free_body", "carried", "as the scalar's condition at such a body is not known"),
        Exclusion("fourth_order", "stretching", "on which alone it keeps its order"),
        Exclusion("fourth_order", "walls", "beside which alone it keeps its order and the energy"),
        Exclusion("iterative", "fourth_order", "as the pressure is of that order"),
        Exclusion("implicit", "fourth_order", "as the viscous terms are of that order"),
        Exclusion("flux", "fourth_order", "as no other flux keeps a constant where the divergence is of fourth order"),
        Exclusion("implicit", "opening", "beside which alone its solve is made"),
        Exclusion("implicit", "wall_model", "beside which alone its solve is made"),
        Exclusion("implicit", "sought_stretching", "as its solve has no gradient by them"),
        Exclusion("dynamic", "no_homogeneous_axis", "along which its coefficient is averaged"),
        Exclusion("balance", "advection", "of which it knows the fluxes through sides"),
        Exclusion("balance", "wall_model", "as it does not know their friction"),
        Exclusion("balance", "turbulence", "as it does not know what that takes"),
        Exclusion("balance", "eddy_viscosity", "as it does not know what that takes"),
        Exclusion("balance", "rotation", "as it does not know what turning gives and takes"),
        Exclusion("balance", "bulk_velocity", "as it does not know what the force gives and takes"),
        Exclusion("balance", "implicit", "as it does not know what implicit viscosity takes"),
        Exclusion("balance_of_energy", "passage", "as the pressure does work there"),
    ),
)


@dataclass(frozen=True)
class Choices:
    """All that a flow is made of, as far as one choice excludes another.

    at_axis: whether x of an axisymmetric grid begins at zero. stretched: axes. sought: whether a gradient by the
    numbers of the stretching is asked. sides: kinds by axis. passages: sides that the flow passes, such as
    "boundaries.x.lower". rotation: numbers of the angular velocity, or None. bulk: for each number of the bulk velocity
    whether it is given, or None. integrator: "" where it is not known. carried: the scalar, or "". scheme: its flux.
    held_at_axis: whether the lower side across x prescribes something of scalars. balances: quantities.
    """

    axes: int
    axisymmetric: bool = False
    at_axis: bool = False
    stretched: tuple[str, ...] = ()
    sought: bool = False
    sides: tuple[tuple[str, str], ...] = ()
    passages: tuple[str, ...] = ()
    bodies: bool = False
    solid_velocity: bool = False
    torque_about: bool = False
    free_body: bool = False
    eddy_viscosity: bool = False
    turbulence: str = "none"
    turbulence_constant: bool = False
    rotation: int | None = None
    bulk: tuple[bool, ...] | None = None
    implicit: bool = False
    integrator: str = ""
    advection: str = USUAL
    pressure_solver: str = "auto"
    carried: str = ""
    scheme: str = ""
    scalars: int = 0
    held_at_axis: bool = False
    gravity_along_r: bool = False
    balances: tuple[str, ...] = ()

    def asked(self) -> dict[str, str]:
        """The features that the flow has, each with what asks for it, as `Exclusions.refusals` takes them."""
        bodies = "coefficients.solid" if self.bodies else ""
        scheme = f"physics.scheme = {self.scheme}" if self.scheme else ""
        found = {
            "rings": ASKED if self.axisymmetric else "",
            "stretching": f"grid.stretch.{self.stretched[0]}" if self.stretched else "",
            "sought_stretching": "grid.stretch of unknowns" if self.sought else "",
            "bodies": bodies,
            "stretched_bodies": f"grid.stretch.{self.stretched[0]}" if bodies and self.stretched else "",
            "ring_bodies": ASKED if bodies and self.axisymmetric else "",
            "solid_velocity": "coefficients.solid_velocity" if self.solid_velocity else "",
            "torque_about": "physics.torque_about" if self.torque_about else "",
            "free_body": "physics.body" if self.free_body else "",
            "eddy_viscosity": "coefficients.eddy_viscosity" if self.eddy_viscosity else "",
            "rotation": "physics.rotation" if self.rotation is not None else "",
            "bulk_velocity": "physics.bulk_velocity" if self.bulk is not None else "",
            "implicit": "time.integrator of implicit viscosity" if self.implicit else "",
            "carried": f"the carried {self.carried}" if self.carried else "",
            "flux": scheme if self.scheme != "central4" else "",
            "wide_flux": scheme if scheme and FLUXES[self.scheme].reach else "",
            "scalars": "initial.scalars" if self.scalars else "",
            "gravity_along_r": "physics.gravity along r" if self.gravity_along_r else "",
        }
        if self.integrator and not self.implicit and self.integrator not in WHOLE_STEPS:
            found["other_steps"] = f"time.integrator = {self.integrator}"
        found |= self._of_momentum() | self._of_sides() | self._of_balances()
        return {name: given for name, given in found.items() if given}

    def _of_momentum(self) -> dict[str, str]:
        given = f"physics.pressure_solver = {self.pressure_solver}"
        found = {name: given for name in ("tridiagonal", "spectral") if name == self.pressure_solver}
        if self.pressure_solver in ("tridiagonal", "multigrid"):
            found["iterative"] = given
        if self.advection != USUAL:
            found["advection"] = f"physics.advection = {self.advection}"
        if SCHEMES[self.advection].order > 2:
            found["fourth_order"] = found["advection"]
        if self.turbulence != "none":
            found["turbulence"] = f"physics.turbulence = {self.turbulence}"
        if self.turbulence == DYNAMIC:
            found["dynamic"] = found["turbulence"]
        return found

    def _of_sides(self) -> dict[str, str]:
        """The first side of each feature."""
        found, homogeneous = {"passage": self.passages[0]} if self.passages else {}, False
        for number, (axis, pair) in enumerate(zip(AXES, self.sides, strict=False)):
            homogeneous |= pair[0] == "periodic" and axis not in self.stretched
            if pair.count("open") == 1:
                found.setdefault("one_pressure", f"boundaries.{axis}.{ENDS[pair.index('open')]} = open")
            for end, kind in zip(ENDS, pair, strict=True):
                given = f"boundaries.{axis}.{end} = {kind}"
                if kind not in MIRRORS:
                    found.setdefault("walls", given)
                if kind == WALL_MODEL:
                    found.setdefault("wall_model", given)
                if kind in OPEN:
                    found.setdefault("opening", given)
                    if number == RADIAL and not (self.at_axis and end == "lower"):
                        found.setdefault("opening_across_r", given)
        return found if homogeneous else found | {"no_homogeneous_axis": "none"}

    def _of_balances(self) -> dict[str, str]:
        along, last = [name for name in self.balances if name.startswith("momentum")], "kinetic_energy"
        asked = {
            "balance": [*along, *(name for name in self.balances if name == last)],
            "balance_along_r": [name for name in along if name.endswith(AXES[RADIAL])],
            "balance_of_energy": [name for name in self.balances if name == last],
            "balance_of_scalar": [name for name in self.balances if name == self.carried],
        }
        return {feature: f"outputs with a balance of {names[0]}" for feature, names in asked.items() if names}


def refusals(flow: Choices) -> Iterator[tuple[str, str]]:
    """Sentences on what is refused of a flow, each with its key path."""
    if flow.axisymmetric:
        yield from side_refusals(flow.sides[RADIAL][0], flow.at_axis)
        if flow.carried and flow.at_axis and flow.held_at_axis:
            path = "boundaries.x.lower"
            yield path, f"{path}: expected slip alone, as r begins at the axis, where scalars have no value or slope"
    yield from EXCLUSIONS.refusals(flow.asked())
    if flow.turbulence_constant and flow.turbulence not in VISCOSITIES:
        path = "physics.turbulence_constant"
        yield (
            path,
            f"{path}: expected beside physics.turbulence, one of {', '.join(VISCOSITIES)}, and got {flow.turbulence}; "
            "write one, or leave the constant out",
        )
    if flow.rotation is not None and flow.rotation != (1 if flow.axes == 2 else 3):
        yield (
            "physics.rotation",
            "physics.rotation: expected one number in a plane, about its normal, or three in space, and got "
            f"{flow.rotation} on a grid of {flow.axes} axes; write [0.5] or [0, 0, 0.5]",
        )
    yield from _bulk_refusals(flow.bulk or (), flow)


def unbalanced(flow: Choices, names: Iterable[str]) -> str:
    """The sentence on balances of these quantities that a flow does not have; "" where it has all of them."""
    return next((sentence for _, sentence in refusals(dataclasses.replace(flow, balances=tuple(names)))), "")


def _bulk_refusals(bulk: tuple[bool, ...], flow: Choices) -> Iterator[tuple[str, str]]:
    path = "physics.bulk_velocity"
    if flow.bulk is not None and len(bulk) != flow.axes:
        wanted = f"one number or null for each of {flow.axes} axes"
        yield path, f"{path}: expected {wanted}, and got {len(bulk)}; write as many"
    for axis, wanted, (kind, _) in zip(AXES, bulk, flow.sides, strict=False):
        if wanted and kind != "periodic":
            yield (
                path,
                f"{path} along {axis}: expected a periodic axis, and got boundaries.{axis}.lower = {kind}; write null "
                f"for {axis}, or boundaries.{axis}=periodic",
            )
