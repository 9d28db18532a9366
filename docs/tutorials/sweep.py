# %% [markdown]
# # A sweep of 256 runs and its analysis
#
# In the Gray-Scott equations, a model of a reaction, two numbers (feed and kill) decide whether spots, stripes or
# nothing at all grows. We run 256 pairs of them at once and look for the patterns with xarray.

# %%
import numpy as np

import simjax as sj

spot = "exp(-((x - 0.5)**2 + 2*(y - 0.5)**2)/0.01)"
sweep = sj.configure(
    "gray_scott",
    title="Gray-Scott patterns",
    grid={"shape": [48, 48]},
    physics={"diffusivity_u": 2e-5, "diffusivity_v": 1e-5, "feed": 0.03, "kill": 0.06},
    initial={"u": f"1 - 0.5*{spot}", "v": f"0.3*{spot}"},
    time={"end": 3000.0, "output_every": 1000.0, "dt": 5.0, "integrator": "etdrk2"},
    ensemble={
        "size": 256,
        "vary": {"physics.feed": {"uniform": [0.01, 0.06]}, "physics.kill": {"uniform": [0.045, 0.067]}},
    },
    output={"fields": ["v"], "report": False, "animation": False},
)
sweep

# %% [markdown]
# The members are one program: `vmap` over the numbers that vary. With `mesh.ensemble=4` they are shared among four
# devices.

# %%
result = sweep.run()
ds = result.ds
ds

# %% [markdown]
# ## Where do patterns grow?
#
# The parameters of the members are coordinates of the Dataset, named without their section. A pattern is where the
# activator v varies in space.

# %%
last = ds.v.isel(time=-1)
pattern = last.std(["x", "y"])
mean = last.mean(["x", "y"])
alive = pattern > 0.05
print(f"{int(alive.sum())} of {alive.size} members have a pattern")
print(f"feed {float(ds.feed[alive].min()):.3f} to {float(ds.feed[alive].max()):.3f}")

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for axes, values, label in ((left, pattern, "standard deviation of v"), (right, mean, "mean of v")):
    points = axes.scatter(ds.kill, ds.feed, c=values, s=22)
    axes.set(xlabel="kill", ylabel="feed")
    figure.colorbar(points, ax=axes, label=label)

# %% [markdown]
# ## The strongest patterns

# %%
best = np.argsort(pattern.values)[-4:]
figure, places = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
for axes, member in zip(places, best, strict=True):
    axes.imshow(last.isel(member=int(member)), origin="lower")
    axes.set_title(f"F = {float(ds.feed[member]):.3f}, k = {float(ds.kill[member]):.4f}", fontsize=9)
    axes.axis("off")

# %% [markdown]
# A table for other tools is one line away.

# %%
table = pattern.to_dataset(name="pattern").assign(mean=mean).to_dataframe()
table.describe().round(4)

# %% [markdown]
# Larger sweeps run in groups that fit into memory (`ensemble.group`), of which a kill loses only the last one's newest
# frames, and write means, variances and quantiles over members in their place (`ensemble.statistics`;
# [ensembles](../ensembles.md)).
