"""Every named time-stepping scheme."""

from simjax.integrators import exponential, imex, runge_kutta, splitting
from simjax.integrators.integrator import Integrator

INTEGRATORS: dict[str, Integrator] = {
    **runge_kutta.INTEGRATORS,
    **imex.INTEGRATORS,
    **exponential.INTEGRATORS,
    **splitting.INTEGRATORS,
}
