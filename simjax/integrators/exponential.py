"""Exponential time differencing Runge-Kutta methods."""

from simjax.integrators.integrator import Integrator

INTEGRATORS: dict[str, Integrator] = {}
