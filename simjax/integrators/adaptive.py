"""Error-controlled time stepping through diffrax, around a model's tendency."""

from collections.abc import Callable, Sequence

import diffrax
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from simjax.core.model import ExplicitModel, Model
from simjax.errors import ConfigurationError

SOLVERS: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "bosh3": diffrax.Bosh3,
    "tsit5": diffrax.Tsit5,
    "dopri8": diffrax.Dopri8,
}


def integrate_adaptive(
    model: ExplicitModel, params, state, times: Sequence[float], *, rtol: float, atol: float,
    solver: str = "tsit5", mesh: Mesh | None = None, max_steps: int = 4096,
):  # fmt: skip
    """States at `times`, each step's length chosen so that its estimated error stays below rtol |u| + atol.

    Args:
        model: an unconstrained model: its `constrain` is the identity.
        params, state: as for `simulate`; whole arrays, cut over `mesh` where there is one.
        times: the initial time, then increasing output times.
        mesh: the mesh that `model.domain` is cut over; only the tendency runs inside `shard_map`, so that error
            norms are those of the whole state.

    Returns:
        The state with a leading axis over `times[1:]`. Differentiable in both modes of diffrax's own adjoint.

    Raises:
        ConfigurationError: the model constrains its state, which an error estimate knows nothing of.
        equinox's runtime error: more than `max_steps` steps are needed.
    """
    if type(model).constrain is not Model.constrain:
        raise ConfigurationError(
            f"integrate_adaptive takes models without constraints; {type(model).__name__} projects after each stage: "
            "use simulate with courant."
        )
    rhs = model.rhs
    if mesh is not None:
        state_specs, param_specs = model.partition_specs(state, params)
        # `distribute` is a layer above; the tendency alone is mapped, so nothing of it is needed here.
        rhs = jax.shard_map(rhs, mesh=mesh, in_specs=(PartitionSpec(), state_specs, param_specs), out_specs=state_specs)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rhs),
        SOLVERS[solver](),
        t0=times[0],
        t1=times[-1],
        dt0=None,
        y0=state,
        args=params,
        saveat=diffrax.SaveAt(ts=jnp.asarray(times[1:])),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
        max_steps=max_steps,
    )
    return solution.ys
