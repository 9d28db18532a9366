"""What the tests of acoustic and of electromagnetic waves share: a plain loop of steps, and leapfrog's frequency."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from simjax.integrators.splitting import INTEGRATORS
from simjax.ops.staggered_wave import WEIGHTS

LEAPFROG = INTEGRATORS["leapfrog"]


@eqx.filter_jit
def run(model, params, state, dt, steps, look):
    """The state after `steps` steps of `dt`, and what `look(t, state)` saw after each."""
    prepared = model.prepare(params)

    def body(carry, _):
        t, state = carry
        state = LEAPFROG.step(model, t, dt, state, params, prepared)
        return (t + dt, state), look(t + dt, state)

    (_, state), seen = jax.lax.scan(body, (jnp.zeros(()), state), None, length=steps)
    return state, seen


def symbol(k, h, order):
    """What a staggered derivative makes of the wavenumber: K = 2/h sum of w_j sin((2j + 1) k h / 2)."""
    return 2 / h * sum(w * np.sin((2 * j + 1) * k * h / 2) for j, w in enumerate(WEIGHTS[order]))


def frequency(wavenumbers, spacing, order, speed, dt):
    """Of leapfrog: sin(w dt / 2) = c dt / 2 sqrt(sum of K_i^2)."""
    square = sum(symbol(k, h, order) ** 2 for k, h in zip(wavenumbers, spacing, strict=True))
    return 2 / dt * np.arcsin(speed * dt / 2 * np.sqrt(square))
