"""Shipped experiments made small, for tests that run all of them."""

from simjax.config import load_config

FEW_PARTICLES = {
    "lennard_jones": ["particles.count=256", "box.upper=[6.9,6.9,6.9]"],
    "binary_mixture": ["particles.count=120", "box.upper=[12,12]"],
    "molten_salt": ["particles.count=64", "box.upper=[5.6,5.6,5.6]", "physics.cutoff=2.4"],
    "polymer_melt": [
        "particles.count=100",
        "particles.chain_length=10",
        "box.upper=[4.9,4.9,4.9]",
        "neighbor_list.skin=0.4",
    ],
    "dam_break": ["particles.spacing=0.25"],
    "taylor_green_sph": ["particles.spacing=0.0625"],
    "landau_damping": ["particles.count=512", "physics.mesh_cells=[16]"],
    "two_stream": ["particles.count=512", "physics.mesh_cells=[16]"],
    "collapsing_sheets": ["particles.count=128", "physics.mesh_cells=[16]"],
    "cold_collapse": ["particles.count=64"],
    "weibel": ["particles.count=512", "physics.mesh_cells=[8,8]"],
    "zeldovich": ["particles.count=128", "physics.mesh_cells=[16]"],
    "inverse_pair_potential": [],
}


FINER = {
    "falling_plate": [36, 60],
    "airfoil": [32, 64],
    "swimmer": [80, 32],
    "gas_projectile": [48, 16],
    "gas_cylinder": [24, 20],
}
"""Cells that a body needs: two along every axis at least."""


def small(name):
    """Overrides for two output intervals on a grid of eight cells per axis or so."""
    config = load_config(name)
    # The run alone; what is sought in it, on its own grid, is in test_inverse_experiments.
    thin = ["inverse=null"] if config.inverse else []
    if config.schema.of_particles:
        every = 2 * config.time.dt
        return [*FEW_PARTICLES[name], f"time.end={2 * every!r}", f"time.output_every={every!r}", *thin]
    shape = FINER.get(name) or [8 * (1 + axis % 2) for axis in range(len(config.grid.shape))]
    every = config.time.output_every / 16
    thin += ["physics.layer_cells=2"] if hasattr(config.physics, "layer_cells") else []
    if any(not isinstance(output.every, str) for output in config.outputs):
        thin += ["outputs=[]"]  # a time that is beyond the end of so short a run
    # What eight cells resolve.
    thin += ["physics.forcing_band=[1,2]"] if getattr(config.physics, "forcing_band", None) else []
    return [f"grid.shape={shape}", f"time.end={2 * every!r}", f"time.output_every={every!r}", *thin]
