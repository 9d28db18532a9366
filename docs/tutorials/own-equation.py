# %% [markdown]
# # From an equation of your own to a decomposed ensemble
#
# The Fisher-KPP equation describes a population that spreads and grows,
#
# $$ \frac{\partial u}{\partial t} = D \nabla^2 u + r u (1 - u), $$
#
# with fronts that invade at the speed $2 \sqrt{r D}$. We write it once, and run it on one device, on four, as an
# ensemble, and under `grad`.

# %%
import dataclasses

import jax

import simjax as sj
from simjax.ops.difference import laplacian

jax.config.update("jax_num_cpu_devices", 4)  # four virtual devices, before the first computation


@sj.model("fisher_kpp", sides=("scalar.neumann",))
class FisherKPP(sj.CenteredModel):
    """Fisher-KPP: du/dt = D lap(u) + r u (1 - u)."""

    fields = ("u",)
    units = "1"

    @dataclasses.dataclass(frozen=True)
    class Keys:
        diffusivity: float = sj.key(sj.Real(low=0.0), 1e-3, units="m2 s-1", about="diffusivity D")
        growth: float = sj.key(sj.Real(low=0.0), 4.0, units="s-1", about="growth rate r")

    def rhs(self, t, state, params):
        def tendency(u):
            inner = u[(slice(1, -1),) * u.ndim]
            return params["diffusivity"] * laplacian(u, self.domain.grid.spacing) + params["growth"] * inner * (
                1 - inner
            )

        return {"u": self.apply(tendency, state)}

    def stable_dt(self, state, params):
        rate = 2 * params["diffusivity"] * sum(1 / h**2 for h in self.domain.grid.spacing)
        return 1 / (rate + params["growth"])


# %% [markdown]
# `self.apply` gives the function each block of the grid with one line of ghost cells around it: from the neighbouring
# device, the other side of a periodic box, or a wall. The model knows nothing of devices.

# %%
sections = {
    "grid": {"shape": [64, 64]},
    "initial": {"u": "exp(-200*((x - 0.5)**2 + (y - 0.5)**2))"},
    "time": {"end": 3.0, "output_every": 0.25},
}
alone = sj.configure(FisherKPP, title="A population spreads", **sections).run()
alone.plot()

# %% [markdown]
# ## On four devices
#
# One key more. The answer is the same to rounding.

# %%
together = sj.configure(FisherKPP, mesh={"x": 2, "y": 2}, **sections).run()
print(float(abs(together.ds.u - alone.ds.u).max()))

# %% [markdown]
# ## An ensemble
#
# Eight growth rates at once, on two groups of two devices each. The front is furthest where the growth is fastest.

# %%
sweep = sj.configure(
    FisherKPP,
    mesh={"x": 2, "ensemble": 2},
    ensemble={"size": 8, "vary": {"physics.growth": {"linspace": [1.0, 8.0]}}},
    **sections,
).run()
sweep.plot()

# %% [markdown]
# Names of parameters stand in the file without their section: `growth`, not `physics.growth`.

# %%
print(sweep.ds.u.isel(time=-1).mean(["x", "y"]).to_series().round(3).tolist())
print(sweep.ds.growth.values)

# %% [markdown]
# ## A gradient through the decomposed run

# %%
run = sj.configure(FisherKPP, mesh={"x": 2, "y": 2}, **sections).differentiable(variables=["u"])


def population(values):
    return run(values).observed["u"][-1].mean()


gradient = jax.grad(population)({"growth": run.values["growth"], "diffusivity": run.values["diffusivity"]})
print({name: float(g) for name, g in gradient.items()})

# %% [markdown]
# Both are positive: more growth and more diffusion make more of it. `python -m simjax.certificate` checks such
# gradients, on one device against many and against differences; [your own model](../own-models.md) shows how.
