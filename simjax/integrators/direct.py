"""The place of a scheme for models that take their own steps."""

import equinox as eqx

from simjax.errors import ConfigurationError
from simjax.integrators.integrator import Integrator


class Direct(Integrator):
    """Steps of a `DirectModel` are its own: nothing is integrated here."""

    order: int = eqx.field(static=True, default=2)
    courant_limit: float = eqx.field(static=True, default=1.0)

    @property
    def stages(self) -> int:
        return 1

    def step(self, model, t, dt, state, params, prepared=None):
        raise ConfigurationError(f"time.integrator='direct': {type(model).__name__} has no steps of its own.")


INTEGRATORS: dict[str, Integrator] = {"direct": Direct()}
