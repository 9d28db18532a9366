"""Learns the forces of liquid silicon from saved trajectories, and asks what they say of the crystal.

    python experiments/learn_interatomic_potential.py            # some minutes on two cores
    python experiments/learn_interatomic_potential.py --updates 300 --seeds 1

The reference is the potential of Stillinger and Weber (1985), which knows angles; of it the search is given positions
of 64 atoms in saved runs of a hot liquid, and the forces there. Three forms are learned by force matching, each richer
than the one before: a force of pairs, an embedded-atom energy, and one that sees the directions of partners. Beside
them stands the potential of mean force, which needs no learning. They are judged where they were not trained: in
another run at a temperature in between, in a hotter liquid, in a denser one in which each of them moves the atoms, and
in the crystal, which no training has seen. Printed are errors with the spread over seeds; the picture is
learn_interatomic_potential.png.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import simjax as sj
from simjax.core.domain import Domain
from simjax.inverse.methods.optimise import minimise
from simjax.models.molecular.force_matching import ForceMatching, StoredForces
from simjax.models.molecular.interaction import Interaction, Superposition
from simjax.models.molecular.langevin import BathParams, Langevin
from simjax.models.molecular.many_body import StillingerWeber, StillingerWeberParams
from simjax.models.molecular.moment_networks import MomentNetwork, NetworkMoments
from simjax.models.molecular.pair_potentials import ForceShifted, NetworkPotential, SoftSphere, Sum
from simjax.models.molecular.trajectories import motion_of
from simjax.particles.cells import cells_for
from simjax.report.sheet import ACCENT, INK, MUTED, NORMAL, Sheet, legend_above, set_ticks
from simjax.report.summary import write_rows
from simjax.report.summary_rows import FULL_WIDTH, LABELLED_GAP, side_by_side

# Units of the reference: sigma = 2.0951 angstrom, epsilon = 2.1683 eV, so that k T = 0.1 is 2516 K.
ANGSTROM, GIGAPASCAL = 2.0951, 2.1683 / 2.0951**3 * 160.2177
ATOMS, DENSITY = 64, 0.4593  # that of the crystal at rest, 5.431 angstrom to the cube
CUTOFF, MOST = 1.8, 32  # of the reference too; and partners in a table
TRAINED, UNSEEN, HOTTER = (0.08, 0.10), 0.09, 0.13  # temperatures of the members of the saved run
DENSER, DENSER_TEMPERATURE = 0.53, 0.10
SETTLING, DT, EVERY = 10.0, 0.0125, 0.4  # time until the crystal has melted, step, time between saved states
RADIAL = np.linspace(0.8, 2.4, 65)
COSINES = np.linspace(-1, 1, 41)
BONDED = 1.4  # distance up to which an angle counts, the first minimum of g(r)
CONSTANTS = np.linspace(5.15, 5.75, 25)  # lattice constants of the crystal, angstrom
DISPLACED = 0.04  # of atoms of the crystal, in sigma
CORE = 1.0, 0.85  # a repulsion that acts where no training is
SIZE = 1.2  # a usual distance
LEARNING_RATE, BATCH = 1e-2, 8
STATES = 25  # that are judged in one call
SETTLED, FRAMES = 15, 60  # states of the denser liquid that are dropped, and kept


# ---------------------------------------------------------------------- the reference


def box(density: float) -> float:
    return (ATOMS / density) ** (1 / 3)


def saved_run(folder: Path, states: int) -> Path:
    """The reference's liquid at four temperatures; the last `states` states of each are liquid."""
    temperatures = [*TRAINED, UNSEEN, HOTTER]
    run = sj.configure(
        "molecular_dynamics",
        physics={
            "potential": "stillinger_weber",
            "cutoff": CUTOFF,
            "thermostat": {"langevin": {"temperature": UNSEEN}},
        },
        box={"upper": [box(DENSITY)] * 3},
        particles={"placement": "diamond", "count": ATOMS, "temperature": 1.0},
        ensemble={"size": 4, "vary": {"physics.thermostat.langevin.temperature": {"values": temperatures}}},
        time={"end": SETTLING + EVERY * states, "output_every": EVERY, "dt": DT},
        output={"report": False, "animation": False, "root": str(folder)},
    ).run()
    return run.folder


def windows_of(folder: Path, members: list[int]) -> list[dict[str, Any]]:
    """Windows of one state of these members, without those in which the crystal still melts."""
    windows = sj.TrajectoryWindows([folder], ["position"], length=1, members=members)
    return [window for window in map(windows.__getitem__, range(len(windows))) if window["time"][0] > SETTLING]


def crystal(displaced: float, count: int, seed: int) -> np.ndarray:
    """Atoms of the diamond lattice in a box of length one, displaced at random: `(count, 3, atoms)`."""
    face = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    places = ((corners + np.concatenate([face, face + 0.25])).reshape(-1, 3).T + 0.1) / 2
    noise = np.random.default_rng(seed).normal(size=(count, *places.shape))
    return (places + displaced / box(DENSITY) * noise).astype(np.float32)


# ---------------------------------------------------------------------- what is learned


class Form(NamedTuple):
    """A form of the energy: its first module, the potential, and from a module to the potential's parameters."""

    module: Any
    potential: Interaction
    params: Callable[[Any], Any]


def arrays(module: Any) -> Any:
    return eqx.filter(module, eqx.is_inexact_array)


def core() -> tuple[jax.Array, jax.Array]:
    epsilon, sigma = CORE
    return jnp.asarray(epsilon), jnp.asarray(sigma)


def _scaled(r):
    return (r / SIZE - 1) * 4


def pairs(seed: int) -> Form:
    network = eqx.nn.MLP(1, 1, 16, 2, activation=jnp.tanh, key=jax.random.key(seed))
    module = eqx.nn.Sequential([eqx.nn.Lambda(_scaled), network])
    learned = NetworkPotential.of(module)[0]
    return Form(module, ForceShifted(Sum((SoftSphere(12), learned)), CUTOFF), lambda module: (core(), arrays(module)))


def many_body(order: int, seed: int) -> Form:
    module = MomentNetwork(channels=6, order=order, cutoff=CUTOFF, size=SIZE, hidden=16, key=jax.random.key(seed))
    potential = Superposition((ForceShifted(SoftSphere(12), CUTOFF), NetworkMoments.of(module)[0]))
    return Form(module, potential, lambda module: (core(), arrays(module)))


FORMS: dict[str, Callable[[int], Form]] = {
    "pairs": pairs,
    "embedded atom": lambda seed: many_body(0, seed),
    "directions": lambda seed: many_body(2, seed),
}


def of_mean_force(form: Form, radial: np.ndarray) -> Any:
    """The module of pairs that is closest to -k T ln g where g is known: not learned from forces."""
    seen = radial > 0.05
    middle = jnp.asarray((RADIAL[:-1] + RADIAL[1:]) / 2)[seen]
    target = -np.mean(TRAINED) * np.log(radial[seen] / radial[seen & (RADIAL[:-1] < CUTOFF)][-1])
    weight = jnp.asarray(np.where(middle < CUTOFF, 1.0, 0.0))
    here = jnp.zeros(middle.shape, jnp.int32)
    weights, fixed = eqx.partition(form.module, eqx.is_inexact_array)

    def loss(weights):
        energy = form.potential.energy(middle**2, here, here, form.params(eqx.combine(weights, fixed)))
        return jnp.sum(weight * (energy - target) ** 2)

    found = jax.jit(lambda weights: minimise(loss, weights, optax.lbfgs(), iterations=300).unknowns)(weights)
    return eqx.combine(found, fixed)


def trained(form: Form, seed: int, updates: int, windows: list, forces_at) -> Any:
    """The module after so many updates by batches of eight states."""
    loss = sj.WindowLoss(ForceMatching(StoredForces(form.potential, CUTOFF, MOST), form.params))
    rate = optax.cosine_decay_schedule(LEARNING_RATE, updates)
    learner = sj.Learner(form.module, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate)), seed=seed)
    training = sj.train(learner, [sj.Stage(updates, loss)], labelled(windows, seed, forces_at), every=updates)
    return training.module


def labelled(windows: list, seed: int, forces_at) -> Iterator[dict[str, Any]]:
    """Batches of windows with the forces of the reference there."""
    position = np.stack([window["position"] for window in windows])
    lengths = np.full((len(windows), 3), box(DENSITY), np.float32)
    data = {"position": position, "lengths": lengths, "force": forces_at(position[:, 0], lengths).force[:, None]}
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(windows))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            yield {name: values[order[first : first + BATCH]] for name, values in data.items()}


# ---------------------------------------------------------------------- how it is judged


class Judge:
    """A potential in stored configurations and in motion, each compiled once for all its parameters."""

    def __init__(self, potential: Interaction):
        self.potential = potential
        forces = StoredForces(potential, CUTOFF, MOST)
        self._at = jax.jit(lambda params, x, lengths: jax.lax.map(lambda one: forces(params, *one), (x, lengths)))
        self._moved = jax.jit(self._motion)

    def at(self, params, position: np.ndarray, lengths: np.ndarray):
        """Energies, forces and virials at `(states, 3, atoms)`, in boxes `(states, 3)`."""
        states = len(position)
        more = -states % STATES
        padded = [np.concatenate([u, u[:1].repeat(more, axis=0)]) for u in (position, lengths)]
        parts = [self._at(params, *(u[k : k + STATES] for u in padded)) for k in range(0, len(padded[0]), STATES)]
        found = jax.tree.map(lambda *u: np.concatenate(u)[:states], *parts)
        assert found.complete.all(), "a box is too short, or an atom has too many partners"
        return found

    def moved(self, params, start: np.ndarray, frames: int) -> np.ndarray:
        """Positions `(frames, 3, atoms)` of the denser liquid after `start`, in a bath."""
        position, status = self._moved(params, start)
        if int(status):
            raise SystemExit(f"The liquid could not be simulated: {sj.reasons(int(status))}.")
        return np.asarray(position)[-frames:]

    def _motion(self, params, start):
        length = box(DENSER)
        grid = cells_for((0.0,) * 3, (length,) * 3, CUTOFF + 0.3, (True,) * 3)
        model = sj.MolecularDynamics(
            sj.Cells(Domain(grid), 32, (True,) * 3),
            sj.NeighborPolicy(CUTOFF, 0.3, 48, ATOMS),
            self.potential,
            5,
            Langevin(),
        )
        bath = BathParams(jnp.asarray(DENSER_TEMPERATURE), jnp.asarray(1.0), jnp.asarray(0, jnp.int32))
        of_model = model.Params(params, jnp.ones(1), bath)
        speed = DENSER_TEMPERATURE**0.5 * jax.random.normal(jax.random.key(1), start.shape)
        state, _ = model.state_from(start, speed, jnp.zeros(ATOMS, jnp.int32), of_model)
        run = sj.simulate(
            model,
            None,
            of_model,
            state,
            sj.Schedule(EVERY, dt=DT),
            frames=SETTLED + FRAMES,
            on_fault="keep",
            observe=lambda t, state, params: motion_of(model.cells, state, ATOMS).position,
        )
        return run.observed, run.clock.status


def nearest(position: np.ndarray, length: float) -> np.ndarray:
    """x_j - x_i of the nearest images, `(frames, 3, i, j)`."""
    apart = position[:, :, None] - position[:, :, :, None]
    return apart - length * np.round(apart / length)


def radial_distribution(position: np.ndarray, length: float) -> np.ndarray:
    """g(r) in the shells between `RADIAL`, a mean over frames."""
    r = np.sqrt(np.sum(nearest(position, length) ** 2, axis=1))
    counts = np.histogram(r[r > 0], RADIAL)[0] / (len(position) * ATOMS)
    return counts / (4 / 3 * np.pi * np.diff(RADIAL**3) * (ATOMS - 1) / length**3)


def angles(position: np.ndarray, length: float) -> np.ndarray:
    """Density of the cosine of angles between bonds of an atom, in the bins between `COSINES`."""
    counts = np.zeros(len(COSINES) - 1)
    for apart in nearest(position, length):
        r = np.sqrt(np.sum(apart**2, axis=0)) + 9.0 * np.eye(ATOMS)
        for i, bonded in enumerate(r < BONDED):
            normal = apart[:, i, bonded] / r[i, bonded]
            cosine = (normal.T @ normal)[np.triu_indices(normal.shape[1], 1)]
            counts += np.histogram(cosine, COSINES)[0]
    return counts / counts.sum() / np.diff(COSINES)


class Liquid(NamedTuple):
    """The denser liquid as a potential has it: g(r), angles and the pressure."""

    radial: np.ndarray
    angles: np.ndarray
    pressure: float


class Crystal(NamedTuple):
    """The crystal as a potential has it: energies per atom at `CONSTANTS`, and what follows from them.

    constant: angstrom. modulus: of the bulk, GPa. melting: energy per atom of the liquid of the unseen run above it,
    in units of epsilon.
    """

    energies: np.ndarray
    constant: float
    modulus: float
    melting: float


class Verdict(NamedTuple):
    """What a potential says of every test. forces: relative errors by test, empty for the reference."""

    forces: dict[str, float]
    liquid: Liquid
    crystal: Crystal


def crystal_of(judge: Judge, params, liquid_energy: float) -> Crystal:
    places = crystal(0.0, 1, 0).repeat(len(CONSTANTS), axis=0)
    lengths = np.broadcast_to(2 * CONSTANTS[:, None] / ANGSTROM, (len(CONSTANTS), 3)).astype(np.float32)
    energies = judge.at(params, places * lengths[:, :, None], lengths).energy / ATOMS
    near = np.abs(np.arange(len(CONSTANTS)) - np.argmin(energies)) < 5
    cubic = np.polyfit(CONSTANTS[near], energies[near], 3)
    roots = np.roots(np.polyder(cubic))
    constant = float(roots[np.argmax(np.polyval(np.polyder(cubic, 2), roots))].real)
    # d^2 E / dV^2 at the minimum, with V = a^3 / 8 per atom.
    volume = (constant / ANGSTROM) ** 3 / 8
    curvature = float(np.polyval(np.polyder(cubic, 2), constant)) * ANGSTROM**2
    modulus = curvature * (constant / ANGSTROM) ** 2 / (9 * volume) * GIGAPASCAL
    return Crystal(energies, constant, modulus, liquid_energy - float(np.polyval(cubic, constant)))


def liquid_of(judge: Judge, params, start: np.ndarray) -> tuple[Liquid, np.ndarray]:
    """The denser liquid and its states."""
    length = box(DENSER)
    position = judge.moved(params, start, FRAMES)
    virial = judge.at(params, position, np.full((len(position), 3), length, np.float32)).virial
    pressure = DENSER * DENSER_TEMPERATURE + np.mean(np.trace(virial, axis1=1, axis2=2)) / (3 * length**3)
    return Liquid(radial_distribution(position, length), angles(position, length), float(pressure)), position


class Tests(NamedTuple):
    """Configurations and the forces of the reference in them, by name: positions, lengths, forces."""

    sets: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    start: np.ndarray

    def verdict(self, judge: Judge, params) -> Verdict:
        found = {name: judge.at(params, x, lengths) for name, (x, lengths, _) in self.sets.items()}
        errors = {
            name: float(np.sqrt(np.mean((found[name].force - force) ** 2) / np.mean(force**2)))
            for name, (_, _, force) in self.sets.items()
        }
        unseen = float(np.mean(found["unseen run"].energy)) / ATOMS
        return Verdict(errors, liquid_of(judge, params, self.start)[0], crystal_of(judge, params, unseen))


def tests_of(folder: Path, judge: Judge, params) -> tuple[Tests, Verdict]:
    """All tests, and what the reference says of them."""
    unseen, hotter = (np.concatenate([w["position"] for w in windows_of(folder, [member])])[::2] for member in (2, 3))
    start = unseen[-1] / box(DENSITY) * box(DENSER)
    liquid, denser = liquid_of(judge, params, start)
    displaced = crystal(DISPLACED, STATES, 1) * np.float32(box(DENSITY))
    sets = {}
    for name, position, density in (
        ("unseen run", unseen, DENSITY),
        ("hotter", hotter, DENSITY),
        ("denser", denser[::2], DENSER),
        ("crystal", displaced, DENSITY),
    ):
        lengths = np.full((len(position), 3), box(density), np.float32)
        found = judge.at(params, position, lengths)
        sets[name] = position, lengths, found.force
        if name == "unseen run":
            energy = float(np.mean(found.energy)) / ATOMS
    return Tests(sets, start), Verdict({}, liquid, crystal_of(judge, params, energy))


def learn(updates: int, seeds: int, states: int, picture: Path | None = None) -> dict[str, list[Verdict]]:
    """Verdicts by form, one per seed, with those of the reference and of the mean force; printed too."""
    true = StillingerWeberParams.silicon(dtype=jnp.float32)
    reference = Judge(StillingerWeber())
    with tempfile.TemporaryDirectory() as folder:
        run = saved_run(Path(folder), states)
        training = windows_of(run, [0, 1])
        tests, truth = tests_of(run, reference, true)
    verdicts = {"reference": [truth]}
    liquid = np.concatenate([window["position"] for window in training])
    for name, form_of in FORMS.items():
        form = form_of(0)
        judge = Judge(form.potential)
        if name == "pairs":
            module = of_mean_force(form, radial_distribution(liquid, box(DENSITY)))
            verdicts["mean force"] = [tests.verdict(judge, form.params(module))]
            tell("mean force", verdicts)
        verdicts[name] = []
        for seed in range(seeds):
            module = trained(form_of(seed), seed, updates, training, lambda *at: reference.at(true, *at))
            verdicts[name].append(tests.verdict(judge, form.params(module)))
        tell(name, verdicts)
    tell("reference", verdicts)
    if picture is not None:
        subtitle = f"trained on {len(training)} states of {ATOMS} liquid atoms, {updates} updates, seeds: {seeds}"
        rows = [ForceRow(verdicts), CurveRow(verdicts)]
        write_rows(rows, picture, title="Forces of silicon, learned from its liquid", subtitle=subtitle, otherwise="")
        print(f"{picture} shows it.")
    return verdicts


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and half the range."""
    return f"{np.mean(values):.{digits}f} +- {np.ptp(values) / 2:.{digits}f}"


def tell(name: str, verdicts: dict[str, list[Verdict]]) -> None:
    """Print a line for each kind of test."""
    own, (truth,) = verdicts[name], verdicts["reference"]
    if own[0].forces:
        told = (f"{test} {spread([100 * v.forces[test] for v in own], 1)} %" for test in own[0].forces)
        print(f"{name}: error of forces: {', '.join(told)}")
        off = [100 * float(np.sqrt(np.mean((v.liquid.radial - truth.liquid.radial) ** 2))) for v in own]
        turned = [100 * float(np.sqrt(np.mean((v.liquid.angles - truth.liquid.angles) ** 2))) for v in own]
        print(f"    denser liquid: g(r) off by {spread(off, 1)} %, angles by {spread(turned, 1)} %")
    print(f"    denser liquid: pressure {spread([v.liquid.pressure for v in own], 3)}")
    crystals = [v.crystal for v in own]
    constant, modulus, melting = ([getattr(c, part) for c in crystals] for part in ("constant", "modulus", "melting"))
    print(f"    crystal: constant {spread(constant, 3)} A, bulk modulus {spread(modulus, 0)} GPa", end="")
    print(f", liquid {spread(melting, 3)} above it", flush=True)


# ---------------------------------------------------------------------- the picture

COLOURS = {"mean force": "#a3aab5", "pairs": "#c77d2e", "embedded atom": "#5a9c6e", "directions": ACCENT}


class ForceRow:
    """Errors of forces by test, a point for each seed."""

    heading, height, width = "Relative error of forces where no training was", 2.9, FULL_WIDTH

    def __init__(self, verdicts: dict[str, list[Verdict]]):
        self.verdicts = {name: verdicts[name] for name in COLOURS}

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        (axes,) = side_by_side(sheet, left, top, 1, height=self.height, columns=1)
        tests = list(self.verdicts["pairs"][0].forces)
        for k, (name, own) in enumerate(self.verdicts.items()):
            places = np.arange(len(tests)) + 0.18 * (k - 1.5)
            means = [np.mean([v.forces[test] for v in own]) for test in tests]
            axes.bar(places, means, 0.16, color=COLOURS[name], label=name)
            for v in own:
                axes.plot(places, [v.forces[test] for test in tests], "o", color=INK, markersize=2.5)
        axes.set_yscale("log")
        axes.set_ylim(0.01, 3)
        axes.set_ylabel("error / size of forces", fontsize=NORMAL, color=INK)
        legend_above(axes, 4)
        axes.set_xticks(np.arange(len(tests)), tests, fontsize=NORMAL, color=INK)


class CurveRow:
    """The denser liquid and the crystal, by the reference and by what was learned first."""

    heading, height, width = "What it makes of a denser liquid, and of the crystal that it never saw", 3.0, FULL_WIDTH

    def __init__(self, verdicts: dict[str, list[Verdict]]):
        self.verdicts = verdicts

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        middles = [(edges[:-1] + edges[1:]) / 2 for edges in (RADIAL, COSINES)]
        panels = (
            ("r [sigma]", "g(r)", middles[0], lambda v: v.liquid.radial),
            ("cosine of the angle between bonds", "density", middles[1], lambda v: v.liquid.angles),
            (
                "lattice constant [A]",
                "energy of an atom - lowest [epsilon]",
                CONSTANTS,
                lambda v: v.crystal.energies - v.crystal.energies.min(),
            ),
        )
        places = side_by_side(sheet, left, top, 3, height=self.height, gap=LABELLED_GAP)
        for number, (axes, (variable, label, x, of)) in enumerate(zip(places, panels, strict=True)):
            axes.plot(x, of(self.verdicts["reference"][0]), color=INK, linewidth=2.6, label="reference")
            for name in ("pairs", "embedded atom", "directions"):
                axes.plot(x, of(self.verdicts[name][0]), color=COLOURS[name], linewidth=1.3, label=name)
            axes.set_xlabel(variable, fontsize=NORMAL, color=MUTED)
            axes.set_ylabel(label, fontsize=NORMAL, color=INK)
            set_ticks(axes)
            if number == 0:
                legend_above(axes, 4)
            if number == 2:
                axes.set_ylim(-0.005, 0.12)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1500, help="of each training")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each form")
    parser.add_argument("--states", type=int, default=100, help="saved states of each member")
    parser.add_argument("--picture", type=Path, default=Path("learn_interatomic_potential.png"))
    chosen = parser.parse_args(arguments)
    learn(chosen.updates, chosen.seeds, chosen.states, chosen.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
