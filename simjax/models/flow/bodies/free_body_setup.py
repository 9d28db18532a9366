"""A body that the fluid moves, in a configuration: its keys, what is refused, and the numbers that it has."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from simjax.grid import AXES
from simjax.models.declaration import Setup
from simjax.models.flow.bodies.free_body import TURN, BodyParams, body_params
from simjax.schema.kinds import Choice, ListOf, Real, key

POSITIVE = Real(low=0.0)


def _per_axis(about: str, units: str, entry: Real | None = None) -> Any:
    kind = ListOf(Real() if entry is None else entry, 0, 3, noun="numbers, one per axis", per_axis=True)
    return key(kind, (), units=units, about=about)


@dataclass(frozen=True)
class BodyKeys:
    """Keys of a rigid body that the fluid moves."""

    density: float = key(Real(low=0.0), about="density over that of the fluid")
    motion: tuple[str, ...] | None = key(
        ListOf(Choice((*AXES, TURN)), 1, 4, optional=True),
        None,
        about="motions that the fluid changes, others keep their velocity; null: all",
    )
    gravity: tuple[float, ...] = _per_axis("acceleration of gravity, against buoyancy; left out: none", "m s-2")
    initial_velocity: tuple[float, ...] = _per_axis("velocity at the start; left out: at rest", "m s-1")
    initial_spin: tuple[float, ...] | None = key(
        ListOf(Real(), 1, 3, optional=True, noun="numbers"),
        None,
        units="s-1",
        about="angular velocity at the start, one number in a plane, three in space; null: none",
    )
    stiffness: tuple[float, ...] = _per_axis(
        "stiffness of springs (in space m3 s-2); left out: none", "m2 s-2", POSITIVE
    )
    damping: tuple[float, ...] = _per_axis(
        "damping of the motion (in space m3 s-1); left out: none", "m2 s-1", POSITIVE
    )


def motions_of(config: Any) -> tuple[str, ...] | None:
    """The motions of bodies that the fluid moves; None where the configuration prescribes their motion."""
    body = config.physics.body
    if body is None:
        return None
    return (*AXES[: len(config.grid.shape)], TURN) if body.motion is None else body.motion


def body_params_of(setup: Setup) -> BodyParams | None:
    """The properties of the body of a configuration that the fluid moves, if there is one."""
    keys, values, ndim = setup.keys.body, setup.values, setup.domain.grid.ndim
    if keys is None:
        return None
    density = values["body_density"]
    given = {
        name: jnp.stack([values[f"body_{name}_{axis}"] for axis in AXES[:ndim]])
        for name in ("gravity", "stiffness", "damping", "initial_velocity")
    }
    if keys.initial_spin is not None:
        given["initial_spin"] = jnp.asarray(keys.initial_spin, jnp.result_type(density))
    return body_params(ndim, density, **given)


def check_body(config: Any) -> Iterator[tuple[str, str]]:
    """Sentences about a configuration with a body that the fluid moves, where it cannot be run."""
    about, ndim = config.physics.torque_about, len(config.grid.shape)
    if about is not None and len(about) != ndim:
        yield (
            "physics.torque_about",
            f"physics.torque_about = {list(about)}: expected the {ndim} coordinates of a point; write as many, or null",
        )
    if about is not None and "solid" not in config.coefficients:
        yield "physics.torque_about", f"physics.torque_about: {BESIDE}"
    keys, solid = config.physics.body, config.coefficients.get("solid")
    if keys is None:
        return
    for name in ("gravity", "initial_velocity", "stiffness", "damping"):
        given = getattr(keys, name)
        if given and len(given) != ndim:
            path = f"physics.body.{name}"
            yield path, f"{path} = {list(given)}: expected one number for each of {ndim} axes; write as many"
    if keys.initial_spin is not None and len(keys.initial_spin) != (1 if ndim == 2 else 3):
        yield (
            "physics.body.initial_spin",
            f"physics.body.initial_spin = {list(keys.initial_spin)}: expected one number in a plane, or three in "
            "space; write [1.0] or [0, 0, 1.0]",
        )
    beyond = [name for name in motions_of(config) or () if name not in (*AXES[:ndim], TURN)]
    if beyond:
        yield (
            "physics.body.motion",
            f"physics.body.motion names {beyond[0]} on a grid of {ndim} axes; expected some of "
            f"{', '.join((*AXES[:ndim], TURN))}",
        )
    if solid is None:
        yield "physics.body", f"physics.body: {BESIDE}"
    elif not isinstance(solid, tuple):
        yield (
            "coefficients.solid",
            NO_FUNCTION,
        )
    elif "t" in solid[0].names:
        yield (
            "coefficients.solid",
            "coefficients.solid: expected a shape without t where physics.body moves it, the one that it has at the "
            "start; leave t out, or physics.body",
        )


NO_FUNCTION = (
    "coefficients.solid: expected a shape or a formula where physics.body moves it, as the distance in a file or array "
    "is known at the centres of cells alone; write one, or leave physics.body out"
)
BESIDE = (
    "expected beside coefficients.solid, the distance from the surface of a body, such as "
    "{ball: {center: [0.5, 0.5], radius: 0.1}}; write it, or leave this out"
)
