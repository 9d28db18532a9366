# %% [markdown]
# # Train a closure
#
# A substance diffuses and reacts; the reaction is not known. A small network stands for it inside the equation, and is
# trained through the solver, until the run agrees with noisy snapshots of the concentration.

# %%
import jax
import numpy as np

import simjax as sj

jax.config.update("jax_enable_x64", True)

reaction = sj.configure(
    "advection_diffusion",
    title="A reaction to be learned",
    precision="float64",
    grid={"shape": [16, 16]},
    physics={"diffusivity": 0.002, "velocity": [0, 0]},
    parameters={"rate": 8.0, "threshold": 0.3},
    initial={"concentration": "0.45 + 0.45*sin(2*pi*x)*cos(2*pi*y) + 0.1*noise(3)"},
    closure={"concentration": "rate*concentration*(1 - concentration)*(concentration - threshold)"},
    time={"end": 1.0, "output_every": 0.2, "dt": 0.02},
)
reaction.run().plot()

# %% [markdown]
# The formula in `closure` makes the measurements. The search is not told: in its place comes a network of two hidden
# layers, a function of the concentration in a cell. Its prior keeps weights of the order of one.

# %%
problem = sj.InverseProblem(
    reaction,
    unknowns={"modules.closure": {"network": {"hidden": [12, 12]}, "prior": {"gaussian": {"mean": 0, "deviation": 2}}}},
    observations=[{"output": "fields", "of": "concentration", "fraction": 0.02}],
    solver={"name": "gauss_newton", "iterations": 30, "cg_iterations": 60},
)
found = sj.Search(problem).run()
print(found.message)

# %%
found.plot()

# %% [markdown]
# The network is an Equinox module. Ask it for the reaction at any concentration, and compare with the cubic that made
# the measurements:

# %%
network = found.answer.modules["closure"].module
c = np.linspace(0.05, 0.95, 7)
learned = np.ravel(jax.tree.leaves(network(jax.numpy.asarray(c)[:, None]))[0])
print(np.round(learned, 3))
print(np.round(8 * c * (1 - c) * (c - 0.3), 3))

# %% [markdown]
# It lies in the folder of the search as `closure.eqx`, to be read by `equinox.tree_deserialise_leaves` and put into
# any model by `sj.with_closure`: [closures](../closures.md).
