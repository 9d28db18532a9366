"""The rows of `python -m benchmarks gpu`, those first of which a card says most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.contest import Program
from benchmarks.gpu import builders as make
from benchmarks.gpu.builders import Size


@dataclass(frozen=True)
class Row:
    """Something that is timed.

    name: of its own; compared: with what stands first under this name; what, by: as the table tells it. full, trial:
    cells and steps of one call on a card and on a processor. limit: seconds in which it has to be built and timed.
    per_step: parts of a step that are told in place of it, such as stages. whole: a call is told, not a step of it.
    """

    name: str
    compared: str
    what: str
    by: str
    build: Callable[[Size], Program]
    full: tuple[int, int]
    trial: tuple[int, int]
    limit: float = 60.0
    per_step: int = 1
    whole: bool = False

    def size(self, trial: bool) -> Size:
        return Size(*(self.trial if trial else self.full), trial)


@dataclass(frozen=True)
class Group:
    """Rows that one process times one after the other, with environment variables of its own."""

    name: str
    rows: tuple[Row, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


XLA, KERNELS = "simjax, XLA", "simjax, kernels"
HEAT, SOUND, GAS, WAVE = "benchmarks.cases.heat", "acoustic", "benchmarks.gas.sheared_gas", "benchmarks.waves.wave"


def _gas(scheme: str, implementation: str) -> Row:
    build = make.case(GAS, "ssprk3", 3, implementation, trial="euler", scheme=scheme)
    own, compared, name = _gas_names(scheme, implementation)
    return Row(
        own,
        compared,
        f"a stage of a gas 256^3, {scheme}",
        name,
        build,
        (256, 4),
        (8, 1),
        limit=120.0 if implementation == "pallas" else 60.0,
        per_step=3,
    )


def _gas_gradient(scheme: str, implementation: str) -> Row:
    build = make.gradient(GAS, "ssprk3", 3, implementation, scheme=scheme)
    own, compared, name = _gas_names(scheme, implementation)
    what = f"value and gradient of 4 steps of a gas 128^3, ssprk3, {scheme}"
    return Row(f"gradient-{own}", f"gradient-{compared}", what, name, build, (128, 4), (8, 1), limit=120.0, whole=True)


def _gas_names(scheme: str, implementation: str) -> tuple[str, str, str]:
    """Name of a row, the name that it is compared under, and who computes it."""
    compared = f"gas-{scheme.split()[0]}"
    return {"xla": (compared, compared, XLA), "pallas": (f"{compared}-kernels", compared, KERNELS)}[implementation]


def _wave(
    name: str,
    what: str,
    model: str,
    axes: int,
    cells: int,
    order: int,
    sides: str,
    medium: str = "variable",
) -> Row:
    build = make.case(WAVE, "leapfrog", axes, model=model, order=order, sides=sides, medium=medium)
    # Layers of 12 cells lie on both sides.
    trial = 32 if sides == "absorbing" else 8
    return Row(name, name, f"{what}, order {order}, {sides}", XLA, build, (cells, 50), (trial, 2), limit=90.0)


def _beside(name: str, by: str, *peers: tuple[str, str, Callable[[Size], Program]]) -> tuple[Row, ...]:
    """The steps of a row by others: the end of the name, who, what is built."""
    row = BY_SIMJAX[name]
    return tuple(
        dataclasses.replace(row, name=f"{name}-{end}", by=f"{by}{told}", build=build) for end, told, build in peers
    )


LIMITS = (
    Row("copy", "copy", "a copy of 1 GiB", "XLA", make.copy, (1024, 8), (16, 2)),
    Row(
        "heat-512-cuda",
        "heat-512",
        "heat conduction 512^3, euler",
        "CUDA by hand",
        make.heat_by_hand(3),
        (512, 50),
        (8, 2),
    ),
    Row(
        "heat-8192-cuda",
        "heat-8192",
        "heat conduction 8192 x 8192, euler",
        "CUDA by hand",
        make.heat_by_hand(2),
        (8192, 50),
        (8, 2),
    ),
    Row(
        "sound-384-cuda",
        "sound-384",
        "acoustic waves 384^3, order 2, periodic",
        "CUDA by hand, two kernels",
        make.sound_by_hand,
        (384, 50),
        (8, 2),
    ),
)
WENO5, MC = "weno5 characteristic hllc", "mc primitive hllc"
LIQUIDS = tuple(
    Row(
        f"liquid-{count}",
        f"liquid-{count}",
        f"Lennard-Jones {count // 1000} 000 particles, cutoff 2.5",
        XLA,
        make.contestant("simjax_liquid", make.liquid),
        (side, 105),
        (trial, 7),
    )
    for count, side, trial in ((32_000, 20, 6), (256_000, 40, 7))
)
FLOWS = (
    Row(
        "kolmogorov-512",
        "kolmogorov-512",
        "Kolmogorov flow 512 x 512, rk4",
        XLA,
        make.contestant("simjax_flow", make.kolmogorov("rk4")),
        (512, 200),
        (16, 2),
    ),
    Row(
        "kolmogorov-2048",
        "kolmogorov-2048",
        "Kolmogorov flow 2048 x 2048, euler",
        XLA,
        make.contestant("simjax_flow", make.kolmogorov("euler")),
        (2048, 200),
        (32, 2),
    ),
    Row(
        "taylor-green",
        "taylor-green",
        "Taylor-Green vortices 256^3, midpoint",
        XLA,
        make.contestant("simjax_flow", make.taylor_green),
        (256, 40),
        (8, 2),
    ),
)
SPECTRAL = (
    Row(
        "vorticity",
        "vorticity",
        "vorticity equation 1024 x 1024, etdrk4",
        XLA,
        make.contestant("simjax_spectral", make.vorticity),
        (1024, 100),
        (32, 2),
    ),
    Row(
        "kuramoto-sivashinsky",
        "kuramoto-sivashinsky",
        "Kuramoto-Sivashinsky, 4096 members of 512, etdrk4",
        XLA,
        make.contestant("simjax_spectral", make.flames),
        (4096, 100),
        (2, 2),
    ),
    Row(
        "gray-scott",
        "gray-scott",
        "Gray-Scott, 256 members of 128 x 128, etdrk2",
        XLA,
        make.contestant("simjax_spectral", make.spots),
        (256, 100),
        (2, 2),
    ),
)
GRADIENTS = (
    *(
        Row(
            f"gradient-{plan}",
            f"gradient-{plan}",
            f"value and gradient of 200 steps of a flow 1024 x 1024, midpoint, plan {plan}",
            XLA,
            make.contestant("gradient", make.flow_gradient, package="simjax", plan=plan),
            (1024, 200),
            (16, 4),
            limit=90.0,
            whole=True,
        )
        for plan in ("auto", "none")
    ),
    Row(
        "gradient-sound",
        "gradient-sound",
        "value and gradient of 200 steps of sound 2048 x 2048, order 4, absorbing",
        XLA,
        make.gradient(WAVE, "leapfrog", 2, model="acoustic", order=4, sides="absorbing", medium="variable"),
        (2048, 200),
        (32, 4),
        limit=120.0,
        whole=True,
    ),
)
WAVES = (
    _wave("sound-2048", "acoustic waves 2048 x 2048", "acoustic", 2, 2048, 4, "absorbing"),
    _wave("sound-384", "acoustic waves 384^3", "acoustic", 3, 384, 2, "periodic", "uniform"),
    _wave("light-256", "Maxwell's equations 256^3", "maxwell", 3, 256, 2, "periodic"),
    Row(
        "heat-8192",
        "heat-8192",
        "heat conduction 8192 x 8192, euler",
        XLA,
        make.case(HEAT, "euler", 2),
        (8192, 50),
        (8, 2),
    ),
    Row("heat-512", "heat-512", "heat conduction 512^3, euler", XLA, make.case(HEAT, "euler", 3), (512, 50), (8, 2)),
    _wave("sound-256", "acoustic waves 256^3", "acoustic", 3, 256, 4, "absorbing"),
    _wave("light-256-absorbed", "Maxwell's equations 256^3", "maxwell", 3, 256, 2, "absorbing"),
)
MANY = (
    Row(
        "members-1024",
        "members-1024",
        "1024 flows of 64 x 64, rk4, a step of all",
        "simjax, one program",
        make.members(True),
        (1024, 20),
        (4, 2),
    ),
    Row(
        "members-1024-loop",
        "members-1024",
        "1024 flows of 64 x 64, rk4, a step of all",
        "simjax, a loop over the program of one",
        make.members(False),
        (1024, 2),
        (4, 2),
    ),
)
PARTICLES = (
    Row(
        "smoothed-particles",
        "smoothed-particles",
        "262 000 smoothed particles in the plane",
        XLA,
        make.configured(
            "taylor_green_sph",
            lambda cells: (f"particles.spacing={1 / cells}", f"time.dt={0.03 / cells}", "particles.scatter=0.2"),
        ),
        (512, 50),
        (20, 2),
    ),
    Row(
        "plasma",
        "plasma",
        "1 049 000 charges on a mesh of 256 x 256, electromagnetic",
        XLA,
        make.configured(
            "weibel",
            lambda cells: (
                f"particles.count={16 * cells**2}",
                f"physics.mesh_cells=[{cells},{cells}]",
                f"box.upper=[{0.4 * cells},{0.4 * cells}]",
            ),
        ),
        (256, 50),
        (8, 2),
    ),
)
BY_SIMJAX = {row.name: row for row in (*LIQUIDS, *FLOWS, *SPECTRAL, *GRADIENTS, *WAVES)}


def _as_kernels(name: str, build: str, integrator: str, axes: int, several: int, **options) -> tuple[Row, ...]:
    told = "kernel of a whole step" if several == 1 else f"kernel of {several} steps"
    made = make.case(build, integrator, axes, "pallas", several, **options)
    row = BY_SIMJAX[name]
    own = dataclasses.replace(row, name=f"{name}-kernels-{several}", by=f"simjax, {told}", build=made)
    return (dataclasses.replace(own, full=(row.full[0], 48), trial=(8, several)),)


STENCIL_KERNELS = (
    *_as_kernels("heat-8192", HEAT, "euler", 2, 1),
    *_as_kernels("heat-8192", HEAT, "euler", 2, 4),
    *_as_kernels("heat-512", HEAT, "euler", 3, 1),
    *_as_kernels("sound-384", WAVE, "leapfrog", 3, 1, model=SOUND, order=2, sides="periodic", medium="uniform"),
)


def _jax_cfd(name: str, integrator: str, convections: tuple[str, ...]) -> tuple[Row, ...]:
    problem = make.taylor_green if name == "taylor-green" else make.kolmogorov(integrator)
    told = {"linear": ", this scheme", "van_leer": ", its default scheme"}
    return _beside(
        name,
        "jax-cfd",
        *(
            (
                f"jax-cfd-{one.replace('_', '-')}",
                told[one],
                make.contestant("jax_cfd_flow", problem, needs="jax_cfd", convection=one),
            )
            for one in convections
        ),
    )


JAX_CFD = (
    *_jax_cfd("kolmogorov-512", "rk4", ("linear",)),
    *_jax_cfd("kolmogorov-2048", "euler", ("linear", "van_leer")),
    *_jax_cfd("taylor-green", "midpoint", ("linear",)),
    *_beside(
        "vorticity", "jax-cfd", ("jax-cfd", "", make.contestant("jax_cfd_spectral", make.vorticity, needs="jax_cfd"))
    ),
    *_beside(
        "gradient-auto",
        "jax-cfd",
        (
            "jax-cfd",
            ", every step checkpointed",
            make.contestant("gradient", make.flow_gradient, needs="jax_cfd", package="jax_cfd", plan="every_step"),
        ),
    ),
    *_beside(
        "gradient-none",
        "jax-cfd",
        (
            "jax-cfd",
            ", nothing checkpointed",
            make.contestant("gradient", make.flow_gradient, needs="jax_cfd", package="jax_cfd", plan="none"),
        ),
    ),
)
EXPONAX = tuple(
    row
    for name, problem in (
        ("vorticity", make.vorticity),
        ("kuramoto-sivashinsky", make.flames),
        ("gray-scott", make.spots),
    )
    for row in _beside(name, "Exponax", ("exponax", "", make.contestant("exponax_spectral", problem, needs="exponax")))
)


def _liquids(by: str, module: str, needs: str) -> tuple[Row, ...]:
    made = make.contestant(module, make.liquid, needs=needs)
    return tuple(row for one in LIQUIDS for row in _beside(one.name, by, (needs.replace("_", "-"), "", made)))


DEEPWAVE = tuple(
    row
    for name, gradient in (("sound-2048", False), ("gradient-sound", True))
    for row in _beside(
        name,
        "deepwave",
        ("deepwave", ", layers of 20 cells", make.contestant("deepwave_sound", make.sound(gradient), needs="deepwave")),
    )
)


def _flagged(names: tuple[str, ...], told: str, end: str) -> tuple[Row, ...]:
    rows = (BY_SIMJAX[name] for name in names)
    return tuple(dataclasses.replace(row, name=f"{row.name}-{end}", by=f"{XLA}, {told}") for row in rows)


LOOPS = ("kolmogorov-512", "liquid-32000", "kuramoto-sivashinsky")
# Tiles are those of the cost model: measuring them would take longer than all else.
UNTUNED = {"SIMJAX_TUNE": "0"}
# Jax, which tells what the card is, leaves its memory to the other package.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
GROUPS = (
    Group("limits", LIMITS),
    Group("gas", (_gas(WENO5, "xla"), _gas(MC, "xla"))),
    Group(
        "gas-kernels",
        (
            _gas(MC, "pallas"),
            _gas(WENO5, "pallas"),
            _gas_gradient(MC, "pallas"),
            _gas_gradient(WENO5, "pallas"),
        ),
        UNTUNED,
    ),
    Group("liquids", LIQUIDS),
    Group("flows", FLOWS),
    Group("spectral", SPECTRAL),
    Group("gradients", (*GRADIENTS, _gas_gradient(MC, "xla"))),
    Group("waves", WAVES),
    Group("kernels", STENCIL_KERNELS, UNTUNED),
    Group("ensembles", MANY),
    Group("particles", PARTICLES),
    Group("openmm", _liquids("OpenMM", "openmm_liquid", "openmm"), SHARED),
    Group("jax-cfd", JAX_CFD),
    Group("exponax", EXPONAX),
    Group("jax-md", _liquids("JAX-MD", "jax_md_liquid", "jax_md")),
    Group("deepwave", DEEPWAVE, SHARED),
    Group(
        "no-graphs",
        _flagged(LOOPS, "no command buffers", "no-graphs"),
        {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="},
    ),
    Group(
        "all-graphs",
        _flagged(LOOPS, "command buffers of one launch and more", "all-graphs"),
        {"XLA_FLAGS": "--xla_gpu_graph_min_graph_size=1"},
    ),
)
"""In the order in which they are timed."""
