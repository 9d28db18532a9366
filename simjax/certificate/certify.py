"""Certificates of gradients: `simjax.certify(problem)`, or `python -m simjax.certificate experiment=NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simjax.certificate.certificate import Certificate

STEPS = 6


def certify(problem: Any, *, steps: int = STEPS, devices: int | None = None) -> Certificate:
    """Check a gradient against Taylor expansions, forward mode, differences, meshes and checkpoint plans.

    Args:
        problem: an `certificate.certificate.Objective`, anything with a method `objective()` that returns one, a
            `Simulation` or a `Config`, of which the first `steps` steps are differentiated, in float64, with respect
            to all numbers, initial fields and coefficients, or initial places and velocities of particles
            (`certificate.run_objective.run_objective`); or an
            `InverseProblem` or `Config` with a section `inverse`, of which it is the whole loss.
        steps: of a Simulation or Config; even.
        devices: of a Simulation or Config, the most to decompose it over; 1 leaves decomposition out. By default
            eight, or as many as there are, in which case the certificate says what was not tested.

    Returns:
        A certificate: `print` shows the table, `passed` is whether every check holds. See
        `certificate.certificate.certify` for what is checked.

    Raises:
        ConfigurationError: `problem` is nothing of this, or its configuration cannot be differentiated.
        NumericalError: the function is not finite at the start.
        ResourceError: fewer devices are present than `devices` or the configuration's mesh.

    Examples:
        >>> print(sj.certify(sj.load("dye", ["grid.shape=[16,16]"]), devices=1).verdict)  # doctest: +ELLIPSIS
        PASSED...
    """
    from simjax.certificate.certificate import Objective
    from simjax.certificate.certificate import certify as certify_objective

    if isinstance(problem, Objective):
        return certify_objective(problem)
    if callable(getattr(problem, "objective", None)):
        return certify_objective(problem.objective())

    from simjax.certificate.prepared_objective import prepared_objective

    return certify_objective(prepared_objective(problem, steps=steps, devices=devices))
