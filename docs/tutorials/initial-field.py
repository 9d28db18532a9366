# %% [markdown]
# # Recover an initial field from sensors, with error bars
#
# A dye spreads and is carried by a wind. Thirty-six sensors record its concentration. What did the dye look like at the
# start, how fast does it spread, and how sure can we be?
#
# We make the measurements ourselves, with noise, from a start that the search is not told. For your own measurements,
# name a file in the place of `points`: [input files](../input-files.md).

# %%
import jax
import numpy as np

import simjax as sj

jax.config.update("jax_enable_x64", True)

places = [[(i + 0.5) / 6, (j + 0.5) / 6] for i in range(6) for j in range(6)]
truth = sj.configure(
    "advection_diffusion",
    title="Dye in a wind",
    precision="float64",
    grid={"shape": [24, 24]},
    physics={"diffusivity": 0.004, "velocity": [0.8, 0.3]},
    initial={
        "concentration": "exp(-((x - 0.4)**2 + (y - 0.6)**2)/0.02) + 0.6*exp(-((x - 0.7)**2 + (y - 0.3)**2)/0.01)"
    },
    time={"end": 1.0, "output_every": 0.05, "dt": 0.01},
)
truth

# %% [markdown]
# ## What is sought, and what was measured
#
# Unknown are the concentration in every cell at the start and the diffusivity. A Matérn prior says what we believe
# before we measure: values of about 0.3 that vary over a length of 0.15. Sensors read at every output time, with a
# noise of 0.005.

# %%
problem = sj.InverseProblem(
    truth,
    unknowns={
        "physics.diffusivity": {"guess": 0.01, "positive": True},
        "initial.concentration": {"guess": "0", "prior": {"matern": {"deviation": 0.3, "length": 0.15}}},
    },
    outputs=[{"probe": {"points": places}, "of": "concentration"}],
    observations=[{"output": "probe", "deviation": 0.005}],
    solver={"name": "gauss_newton", "iterations": 8},
    uncertainty={"samples": 12},
)
found = sj.Search(problem).run()
print(found.message)

# %%
found.plot()

# %% [markdown]
# The message may add that the linear solves behind the standard deviations stopped at 1e-5 of a draw, where they aim at
# 1e-6. Twelve draws know a deviation to a fifth of it, so that changes nothing here.
#
# ## How sure?
#
# The diffusivity comes with its 95 % interval, the field with a standard deviation in every cell, from samples of the
# posterior. Where no sensor looks, the deviation is that of the prior. Are the error bars honest? If they are, about
# 95 % of the cells, or more, are within two deviations of the truth.

# %%
path = "initial.concentration"
estimate, true = (np.asarray(values[path][0]) for values in (found.answer.estimate, found.answer.truth))
deviation = np.asarray(found.answer.deviations[path][0])
print("diffusivity", found.answer.estimate["physics.diffusivity"], found.answer.intervals["physics.diffusivity"])
print(f"{100 * np.mean(abs(estimate - true) < 2 * deviation):.0f} % of the cells within two deviations")

# %% [markdown]
# The loss, its derivatives and the samples go through the run itself, on any mesh of devices. More on solvers, priors
# and what the measurements do not determine: [inverse problems](../inverse-problems.md) and
# [how certain an answer is](../uncertainty.md).
