# %% [markdown]
# # A first flow
#
# Two shear layers roll up into vortices. We run a shipped experiment, look at it, change it, and differentiate it.

# %%
import simjax as sj

simulation = sj.load("fluid", overrides=["grid.shape=[96,96]", "time.end=1.5", "time.output_every=0.05"])
simulation

# %% [markdown]
# `sj.load` reads the experiment `fluid`, with some of its keys replaced. Everything is checked before anything is
# compiled: a wrong key or a number out of range is answered here. `run` computes it and leaves a folder with HDF5
# files, a report and checkpoints.

# %%
result = simulation.run()
result.plot()

# %%
result.animate()

# %% [markdown]
# ## What came out
#
# `result.ds` is an xarray Dataset that is read on demand. Velocities lie on the faces of cells;
# `ds.simjax.centered()` averages them to the centres.

# %%
ds = result.ds
print(ds.kinetic_energy.values[[0, -1]], "m2 s-2")
last = ds.isel(time=-1).simjax.centered()
print("largest speed", float((last.velocity_x**2 + last.velocity_y**2).max() ** 0.5), "m/s")

# %% [markdown]
# ## A start of your own
#
# Initial fields are formulas of x, y, z and parameters, files, or arrays. Here a formula: a single vortex in a box
# with walls.

# %%
vortex = sj.configure(
    "incompressible",
    title="A vortex in a box",
    grid={"shape": [64, 64]},
    physics={"viscosity": 1e-3},
    boundaries={"x": "no_slip", "y": "no_slip"},
    initial={"velocity": ["-sin(pi*x)**2*sin(2*pi*y)", "sin(pi*y)**2*sin(2*pi*x)"]},
    time={"end": 2.0, "output_every": 0.2, "courant": 0.6},
).run()
vortex.plot()

# %% [markdown]
# ## A derivative
#
# The same run is a function for `jax.grad`: how does the energy at the end change with the viscosity? Diagnostics such
# as the energy are always among what it returns; `variables` names the fields beside them, here none.

# %%
import jax

run = sj.load("fluid", ["grid.shape=[32,32]", "time.end=0.5", "time.output_every=0.5"]).differentiable(variables=[])


def energy(values):
    return run(values).observed["kinetic_energy"][-1]


print(jax.grad(energy)({"viscosity": run.values["viscosity"]}))

# %% [markdown]
# It falls with the viscosity, as it must. With `mesh.x=2` in the configuration the same lines run on two devices, with
# the same gradient. Next: [an equation of your own](own-equation.md).
