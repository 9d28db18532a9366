"""Objective of an inverse problem: its whole loss, as its solver sees it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simjax.certificate.certificate import REFERENCE, Objective
from simjax.certificate.directions import Unknowns
from simjax.certificate.meshes import meshes_to_compare
from simjax.certificate.run_objective import PLANS, short_run_class
from simjax.inverse.estimate import confounded_numbers
from simjax.inverse.methods.gradient_descent import scattered
from simjax.inverse.problem import InverseProblem
from simjax.schema.config import Config
from simjax.stepping.checkpointing.plan import Checkpoint

# Latents are of order one. Beside the guess, which may be uniform, symmetric or zero and then lies on kinks.
BESIDE = 0.05


def inverse_objective(posed: InverseProblem | Config, *, devices: int | None = None) -> Objective:
    """The loss of an inverse problem as a function of the latents, in float64, beside the guess.

    All of the run, every transform, prior and joint takes part, and the measurements are the same on every mesh.
    """
    config = posed if isinstance(posed, Config) else posed.config
    plain = dataclasses.replace(config, precision="float64", resume=None)
    if isinstance(posed, InverseProblem):
        whole = posed.changed(config=plain, sizes={}, checkpoint=REFERENCE)
    else:
        whole = InverseProblem(plain, sizes={}, checkpoint=REFERENCE)
    start = jax.tree.map(lambda u: np.asarray(u[1]), scattered(whole.start(), 2, BESIDE, config.seed))

    @functools.cache
    def on(items: tuple[tuple[str, int], ...], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        least_squares = whole.changed(sizes=dict(items), checkpoint=plan).least_squares()
        return lambda latent: least_squares.loss(latent)[0]

    def function(mesh: Mapping[str, int], plan: Checkpoint) -> Callable[[Unknowns], Array]:
        return on(tuple(mesh.items()), plan)

    short = short_run_class(plain)
    blocks = short.blocks_of(plain)
    meshes, untested, said = meshes_to_compare(plain, start, function, devices, blocks=blocks)
    what = short.size_in_words(whole.rollout)
    doubts = confounded_numbers(whole, whole.placed(jax.tree.map(jnp.asarray, start)))
    notes = (f"the loss of the inverse problem beside its guess, {what} in float64", *said, *doubts)
    return Objective(start, function, meshes, PLANS, notes=notes, untested=untested)
