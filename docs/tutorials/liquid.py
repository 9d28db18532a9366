# %% [markdown]
# # A Lennard-Jones liquid and its g(r)
#
# Five hundred particles start on a crystal, melt, and are a liquid. We follow energies and temperature, look at the
# radial distribution, and take the derivative of the pressure with respect to the depth of the potential.

# %%
import simjax as sj

liquid = sj.configure(
    "molecular_dynamics",
    title="Lennard-Jones liquid",
    box={"upper": [8.55, 8.55, 8.55]},
    particles={"placement": "fcc", "count": 500, "temperature": 1.5},
    physics={"potential": "lennard_jones", "cutoff": 2.5, "mode": "force_shifted"},
    time={"end": 4.0, "output_every": 0.04, "dt": 0.004},
)
liquid

# %% [markdown]
# All numbers are in units of the potential: lengths in sigma, energies in epsilon, times in
# $\sigma \sqrt{m / \epsilon}$. The picture shows g(r) over the last quarter of the run, with the shells of neighbours
# at one, two and three diameters.

# %%
result = liquid.run()
result.plot()

# %%
result.animate()

# %% [markdown]
# ## Energy is conserved

# %%
ds = result.ds
late = ds.isel(time=slice(20, None))
print(
    "energy per particle",
    float(late.energy.mean()) / 500,
    "changes by",
    float(late.energy.max() - late.energy.min()) / 500,
)
print("temperature", float(late.temperature.mean()), "+-", float(late.temperature.std()))

# %% [markdown]
# ## The same liquid in MDAnalysis
#
# `sj.open_universe` opens the files in place, without a copy.

# %%
universe = sj.open_universe(result.folder)
print(universe.trajectory.n_frames, "frames of", universe.atoms.n_atoms, "atoms; box", universe.dimensions[:3])

# %% [markdown]
# ## A derivative
#
# How does the pressure after a short time depend on the depth and the size of the potential?

# %%
import jax

short = sj.configure(
    "molecular_dynamics",
    box={"upper": [5.13, 5.13, 5.13]},
    particles={"placement": "fcc", "count": 108, "temperature": 1.0},
    physics={"potential": "lennard_jones", "cutoff": 2.5, "mode": "force_shifted"},
    time={"end": 0.1, "output_every": 0.1, "dt": 0.005},
).differentiable(variables=[])


def pressure(values):
    return short(values).observed["pressure"][-1]


names = [name for name in short.values if name.startswith("potential_")]
print(jax.grad(pressure)({name: short.values[name] for name in names}))

# %% [markdown]
# On several devices (`mesh={"x": 2}`) particles move from device to device, and the derivative follows them. Potentials
# of your own and the other parts of the forces: [molecular dynamics](../molecular-dynamics.md).
