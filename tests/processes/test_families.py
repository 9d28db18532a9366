"""Runs of every family over several processes are those of one process, to the bit where nothing is summed."""

FEW = ["precision=float64", "output.report=false", "output.animation=false"]
FAMILIES = {
    "fluid": ["grid.shape=[32,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=2", "mesh.y=2"],
    "cavity": ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=2", "mesh.y=2"],
    "shear_layer": ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=2", "mesh.y=2"],
    "sod": ["grid.shape=[64]", "time.end=0.05", "time.output_every=0.025", "mesh.x=4"],
    "dye": ["grid.shape=[16,16]", "time.end=0.1", "time.output_every=0.05", "mesh.x=4"],
    "layered_medium": ["grid.shape=[64,64]", "time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "gray_scott": ["grid.shape=[32,32]", "time.end=20", "time.output_every=10", "mesh.x=2", "mesh.y=2"],
    "lennard_jones": ["particles.count=500", "time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "cold_collapse": ["time.end=0.02", "time.output_every=0.01", "mesh.x=2", "mesh.y=2"],
    "dam_break": ["time.end=0.01", "time.output_every=0.005", "mesh.x=4"],
    "two_stream": ["time.end=0.4", "time.output_every=0.2", "mesh.x=4"],
}
MEMBERS = ["ensemble.size=4", "ensemble.vary.physics.viscosity={log_uniform:[1e-4,1e-2]}"]


def runs_of(root):
    every = {name: [f"experiment={name}", *own] for name, own in FAMILIES.items()}
    flow = every["fluid"][:-2]
    every |= {
        "members": [*flow, *MEMBERS, "mesh.ensemble=2", "mesh.y=2"],
        "members_apart": [*flow, *MEMBERS, "mesh.ensemble=4"],
    }
    return {name: [*own, *FEW, f"output.root={root}"] for name, own in every.items()}
