"""The section `inverse`: read into what the inversion takes, written back, overridden, and every mistake refused."""

import dataclasses

import pytest
import yaml
from configurations import DYE, FLOW, changed, refusal

from simjax.config import load_config, validate
from simjax.config.folders import config_yaml, resume_differences
from simjax.schema.formula import Formula
from simjax.schema.instruments import InstrumentConfig
from simjax.schema.inverse import (
    InverseConfig,
    MeasuredFile,
    ObservationConfig,
    ShootingConfig,
    SolverConfig,
    UnknownConfig,
)

SMOKE = {
    "model": "transport",
    "parameters": {"x0": 0.4, "width": 0.1},
    "initial": {"concentration": "exp(-((x - x0)/width)**2)"},
    "coefficients": {"velocity": [1.0, 0.0], "diffusivity": 0.01},
    "grid": {"shape": [16, 8]},
    "time": {"end": 1.0, "output_every": 0.1},
}
FULL = """
unknowns:
  parameters.x0: {guess: 0.5, bounds: [0, 1]}
  initial.concentration: {guess: "0", smooth: 0.2, symmetric: {axis: y, sign: -1}, scale: 2.0,
                          prior: {matern: {deviation: 1.0, length: 0.5, mean: 0.0}}}
  coefficients.diffusivity: {guess: "0.1", positive: true, prior: {total_variation: {weight: 1.0, rounding: 0.001}}}
  coefficients.velocity: {guess: [1, sin(2*pi*y)], scale: 0.5}
observations:
  - {output: fields, of: concentration, deviation: 0.02}
  - {output: probe, deviation: 0.01, times: [0.5, 1.0], noise: {student: 4}}
  - {output: lines, fraction: 0.05, noise: {huber: 1.5}}
  - {output: probe, of: [concentration], deviation: 0.01, every: 0.2}
  - {output: diagnostics, of: [mean_concentration, variance_concentration], deviation: 0.01, noise: gaussian}
  - {output: fields, file: measured.csv}
  - {output: fields, of: concentration, times: [1.0], target: x0*sin(pi*x)*t, deviation: 0.1}
solver: {name: gauss_newton, iterations: 12, learning_rate: null, tolerance: 1.0e-6, members: 16, starts: 1,
         spread: 0.5, damping: 0.01, cg_iterations: 30}
shooting: {windows: 5, weight: 10.0}
horizons: [0.5, 1.0]
checkpoint: every_step
uncertainty: {samples: 4}
"""
SNAPSHOT = [{"output": "fields", "of": "concentration", "deviation": 0.1}]
FIELDS = InstrumentConfig("fields", "fields", ("concentration",), "frame", {})
LOOKING = [
    {"probe": {"points": [[0.2, 0.3], [0.7, 0.1]]}, "of": "concentration"},
    {"line_of_sight": {"from": [[0, 0.2]], "to": [[1, 0.8]]}, "of": "concentration", "every": 0.5, "name": "lines"},
]


def diagnostic(name):
    return InstrumentConfig("diagnostic", "diagnostics", (name,), "frame", {})


PROBE = InstrumentConfig("probe", "probe", ("concentration",), "frame", {"points": ((0.2, 0.3), (0.7, 0.1))})
LINES = InstrumentConfig(
    "line_of_sight", "lines", ("concentration",), 0.5, {"from": ((0.0, 0.2),), "to": ((1.0, 0.8),)}
)
READ = InverseConfig(
    unknowns=(
        UnknownConfig("parameters.x0", (Formula("0.5"),), (("bounded", (0.0, 1.0)),), None),
        UnknownConfig(
            "initial.concentration",
            (Formula("0"),),
            (("scaled", (2.0, 0.0)), ("smooth", (0.2,)), ("symmetric", (1.0, -1.0))),
            ("matern", (1.0, 0.5, 0.0)),
        ),
        UnknownConfig(
            "coefficients.diffusivity", (Formula("0.1"),), (("positive", ()),), ("total_variation", (1.0, 0.001))
        ),
        UnknownConfig("coefficients.velocity", (Formula(1), Formula("sin(2*pi*y)")), (("scaled", (0.5, 0.0)),), None),
    ),
    observations=(
        ObservationConfig(FIELDS, "concentration", deviation=0.02),
        ObservationConfig(PROBE, "concentration", times=(0.5, 1.0), deviation=0.01, noise=("student", 4.0)),
        ObservationConfig(LINES, "concentration", every=0.5, fraction=0.05, noise=("huber", 1.5)),
        ObservationConfig(PROBE, "concentration", every=0.2, deviation=0.01),
        ObservationConfig(diagnostic("mean_concentration"), "mean_concentration", deviation=0.01),
        ObservationConfig(diagnostic("variance_concentration"), "variance_concentration", deviation=0.01),
        ObservationConfig(dataclasses.replace(FIELDS, of=()), None),
        ObservationConfig(FIELDS, "concentration", times=(1.0,), deviation=0.1, target=Formula("x0*sin(pi*x)*t")),
    ),
    solver=SolverConfig("gauss_newton", 12, None, 1e-6, 16, 1, 0.5, 0.01, 30),
    shooting=ShootingConfig(5, 10.0),
    horizons=(0.5, 1.0),
    checkpoint=("every_step", 0),
    samples=4,
)


def posed(base=DYE, unknowns=None, observations=None, **sections):
    """`base` with an inverse problem on it: one number is sought from snapshots of the dye."""
    unknowns = {"physics.diffusivity": {"guess": 0.1}} if unknowns is None else unknowns
    observations = SNAPSHOT if observations is None else observations
    looking = {"outputs": LOOKING} if base is DYE else {}
    return {**base, **looking, "inverse": {"unknowns": unknowns, "observations": observations, **sections}}


def observed(**keys):
    """One observation of the dye, its error told."""
    return posed(observations=[{"deviation": 0.1, **keys}])


def measured(**keys):
    """An observation of the whole field of the dye."""
    return observed(**{"output": "fields", "of": "concentration", **keys})


@pytest.fixture
def full(tmp_path):
    """The whole example, its file of sensors in `tmp_path`."""
    (tmp_path / "measured.csv").write_text("t,x,y,concentration\n", encoding="utf-8")
    return validate({**SMOKE, "outputs": LOOKING, "inverse": yaml.safe_load(FULL)}, folders=[tmp_path])


def test_a_full_example(full, tmp_path):
    *others, sensors, wanted = READ.observations
    sensors = dataclasses.replace(sensors, data=MeasuredFile((tmp_path / "measured.csv").resolve()))
    assert full.inverse == dataclasses.replace(READ, observations=(*others, sensors, wanted))


def test_defaults():
    config = validate(posed(unknowns={"physics.diffusivity": {}}))
    assert config.inverse == InverseConfig(
        unknowns=(UnknownConfig("physics.diffusivity", None, (), None),),
        observations=(ObservationConfig(FIELDS, "concentration", deviation=0.1),),
        solver=SolverConfig("lbfgs", 50, None, 1e-8, 32, 1, 1.0, 1e-3, 20),
        shooting=ShootingConfig(1, 1.0),
        horizons=(),
        checkpoint=("auto", 0),
        samples=0,
    )


def test_without_an_inverse_problem():
    for config in (validate(DYE), validate({**DYE, "inverse": None}), load_config("fluid")):
        assert config.inverse is None and config.write()["inverse"] is None


def test_components_of_numbers_per_axis_and_of_nested_paths():
    unknowns = {"physics": {"velocity_x": {"guess": "pi/4", "prior": {"gaussian": {"mean": 1, "deviation": 2}}}}}
    (unknown,) = validate(posed(unknowns=unknowns)).inverse.unknowns
    assert unknown == UnknownConfig("physics.velocity_x", (Formula("pi/4"),), (), ("gaussian", (1.0, 2.0)))
    assert (unknown.section, unknown.name) == ("physics", "velocity_x")


def test_modules_of_a_model():
    config = validate(posed(unknowns={"modules.closure": {"scale": 0.1}}))
    assert config.inverse.unknowns == (UnknownConfig("modules.closure", None, (("scaled", (0.1, 0.0)),), None),)
    assert validate(config.write()) == config
    for key, value in (("guess", 0.1), ("positive", True), ("bounds", [0, 1])):
        assert f"closure.{key}: a module starts from" in refusal(posed(unknowns={"modules.closure": {key: value}}))
    assert "closure.smooth: expected at a field" in refusal(posed(unknowns={"modules.closure": {"smooth": 0.1}}))


@pytest.mark.parametrize(
    ("given", "read"),
    [("none", ("none", 0)), ({"binomial": 20}, ("binomial", 20)), ({"budget": 1e9}, ("budget", 10**9))],
)
def test_checkpoint_plans(given, read):
    config = validate(posed(checkpoint=given))
    assert config.inverse.checkpoint == read
    assert validate(config.write()) == config


# ---- written and read again


def test_the_mapping_is_the_same_problem(full):
    assert validate(full.write()) == full
    again = validate(yaml.safe_load(config_yaml(full)))
    assert again == full and again.write() == full.write()


def test_a_resumed_run_has_the_same_problem(full):
    refused, _ = resume_differences(full.write(), validate({**full.write(), "inverse": None}).write())
    assert refused
    assert resume_differences(full.write(), validate(full.write()).write()) == ([], [])
    before = {key: value for key, value in validate(DYE).write().items() if key != "inverse"}
    assert resume_differences(before, validate(DYE).write()) == ([], [])


# ---- the command line


EXPERIMENT = """# @package _global_
# A number of the cavity
defaults: [cavity, _self_]
inverse:
  unknowns:
    physics.viscosity: {guess: 0.02, positive: true, prior: {gaussian: {mean: 0.01, deviation: 0.01}}}
  observations:
    - {output: fields, of: vorticity, deviation: 0.02}
"""


def overridden(tmp_path, *overrides):
    (tmp_path / "experiment").mkdir(exist_ok=True)
    (tmp_path / "experiment" / "sought.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return load_config("sought", [*overrides], config_dir=tmp_path).inverse


def test_overrides_of_a_file(tmp_path):
    plain = overridden(tmp_path)
    assert plain.unknowns[0].prior == ("gaussian", (0.01, 0.01))
    inverse = overridden(
        tmp_path,
        "inverse.solver.iterations=20",
        "inverse.unknowns.physics.viscosity.guess=0.05",
        "inverse.unknowns.physics.viscosity.prior.gaussian.mean=0.03",
        "inverse.observations.0.deviation=0.5",
        "+inverse.unknowns.initial.velocity.smooth=0.2",
        "inverse.checkpoint={binomial:3}",
    )
    viscosity, velocity = inverse.unknowns
    assert viscosity == dataclasses.replace(plain.unknowns[0], guess=(Formula(0.05),), prior=("gaussian", (0.03, 0.01)))
    assert velocity == UnknownConfig("initial.velocity", None, (("smooth", (0.2,)),), None)
    assert inverse.solver.iterations == 20 and inverse.observations[0].deviation == 0.5
    assert inverse.checkpoint == ("binomial", 3)
    assert overridden(tmp_path, "inverse=null") is None


def test_an_inverse_problem_from_the_command_line_alone():
    config = load_config(
        "cavity",
        [
            "inverse.unknowns.physics.viscosity.guess=0.05",
            "inverse.observations=[{output:fields,of:vorticity,fraction:0.1}]",
        ],
    )
    assert config.inverse is not None and config.inverse.unknowns[0].path == "physics.viscosity"
    assert config.inverse.observations[0].fraction == 0.1


# ---- mistakes: (mapping, words of the message)


def fields(**keys):
    """The initial field of the dye is sought."""
    return posed(unknowns={"initial.concentration": keys})


def number(**keys):
    return posed(unknowns={"physics.diffusivity": keys})


def solved(**keys):
    return posed(solver=keys)


GAS = {
    "model": "compressible",
    "initial": {"density": 1.0, "pressure": 1.0},
    "grid": {"shape": [16]},
    "time": {"end": 1.0, "output_every": 0.1},
}
WAVES = {"model": "acoustic", "grid": {"shape": [16]}, "time": {"end": 1.0, "output_every": 0.1, "dt": 0.01}}
MISTAKES = {
    "nothing sought": (posed(unknowns={}), ["inverse.unknowns: expected at least one, such as {physics.diffusivity"]),
    "no unknowns": ({**DYE, "inverse": {"observations": SNAPSHOT}}, ["inverse.unknowns is missing"]),
    "nothing measured": (posed(observations=[]), ["inverse.observations = []", "1 to 1000 observations"]),
    "no observations": (
        {**DYE, "inverse": {"unknowns": {"physics.diffusivity": None}}},
        ["inverse.observations is missing"],
    ),
    "not a section": ({**DYE, "inverse": 3}, ["inverse = 3", "unknowns and observations or null"]),
    "key": (posed(solvr={}), ["inverse.solvr: unknown key; did you mean 'inverse.solver'"]),
    # unknowns
    "path": (
        posed(unknowns={"physics.difusivity": {}}),
        ["inverse.unknowns.physics.difusivity: unknown key; did you mean 'inverse.unknowns.physics.diffusivity'"],
    ),
    "nested path": (
        posed(unknowns={"physics": {"velocity": {}}}),
        ["did you mean 'inverse.unknowns.physics.velocity_"],
    ),
    "word of physics": (posed(unknowns={"physics.scheme": {}}), ["inverse.unknowns.physics.scheme: unknown key"]),
    "field": (posed(unknowns={"initial.c": {}}), ["initial.c: unknown key"]),
    "module": (posed(unknowns={"modules.closur": {}}), ["modules.closur: unknown key; did you mean", "closure"]),
    "module of waves": (
        posed(WAVES, {"modules.closure": {}}, [{"output": "fields", "of": "pressure", "deviation": 1}]),
        ["modules.closure: unknown key"],
    ),
    "field that is not there": (
        posed(SMOKE, unknowns={"coefficients.source": {}}),
        ["coefficients.source is not given; write coefficients.source=..."],
    ),
    "number that is not there": (
        posed(GAS, {"physics.density_floor": {"guess": 1}}, [{"output": "fields", "of": "density", "deviation": 1}]),
        ["physics.density_floor is not given; write physics.density_floor=..."],
    ),
    "option": (number(gues=1), ["physics.diffusivity.gues: unknown key; did you mean", "guess"]),
    "positive and bounded": (
        number(positive=True, bounds=[1, 2]),
        ["positive=true and bounds=[1.0, 2.0]: expected one"],
    ),
    "smooth number": (number(smooth=0.1), ["physics.diffusivity.smooth: expected at a field"]),
    "mirrored number": (number(symmetric={"axis": "x", "sign": 1}), ["diffusivity.symmetric: expected at a field"]),
    "matern number": (
        number(prior={"matern": {"deviation": 1, "length": 1}}),
        ["physics.diffusivity.prior.matern: expected at a field"],
    ),
    "edges of a number": (
        number(prior={"total_variation": {"weight": 1, "rounding": 1}}),
        ["physics.diffusivity.prior.total_variation: expected at a field"],
    ),
    "formula for a number": (number(guess="x"), ["physics.diffusivity.guess = 'x'", "a finite number >= 0"]),
    "guess out of range": (number(guess=-1), ["physics.diffusivity.guess = -1", ">= 0"]),
    "guess not positive": (number(guess=0, positive=True), ["physics.diffusivity.guess = 0.0", "a number > 0"]),
    "guess outside": (number(guess=2, bounds=[0, 1]), ["guess = 2.0", "> 0 and < 1, as bounds=[0.0, 1.0]"]),
    "guess on a bound": (number(guess=1, bounds=[0, 1]), ["guess = 1.0", "> 0 and < 1"]),
    "field not positive": (fields(guess="-1", positive=True), ["initial.concentration.guess = -1.0", "> 0"]),
    "own value not positive": (
        fields(positive=True),
        ["initial.concentration.guess is missing: initial.concentration is 0 itself; expected a number > 0"],
    ),
    "own value outside": (
        number(bounds=[1, 2]),
        ["physics.diffusivity.guess is missing: physics.diffusivity is 0.001 itself; expected a number > 1 and < 2"],
    ),
    "component not positive": (
        posed(SMOKE, {"coefficients.velocity": {"guess": [1, -2], "positive": True}}),
        ["coefficients.velocity.guess[1] = -2.0", "> 0"],
    ),
    "bounds backwards": (number(bounds=[1, 0]), ["bounds = [1.0, 0.0]", "lower number first"]),
    "bounds beyond the range": (number(bounds=[-1, 1]), ["diffusivity.bounds[0] = -1.0", ">= 0"]),
    "components": (
        posed(SMOKE, {"coefficients.velocity": {"guess": 1}}),
        ["coefficients.velocity.guess = 1", "list of 2", "x y"],
    ),
    "name in a guess": (fields(guess="sin(q)"), ["initial.concentration.guess", "unknown name 'q'"]),
    "file for a guess": (fields(guess={"file": "a.nc"}), ["initial.concentration.guess", "a number or a formula"]),
    "axis of a mirror": (fields(symmetric={"axis": "z", "sign": 1}), ["symmetric.axis = 'z'", "one of x, y"]),
    "sign of a mirror": (fields(symmetric={"axis": "x", "sign": 2}), ["symmetric.sign = 2", "1 or -1"]),
    "half a mirror": (fields(symmetric={"axis": "x"}), ["symmetric.sign is missing"]),
    "no smoothing": (fields(smooth=0), ["initial.concentration.smooth = 0", "> 0"]),
    "scale": (fields(scale=-1), ["initial.concentration.scale = -1", "> 0"]),
    "prior": (number(prior={"gausian": {}}), ["prior", "did you mean 'gaussian'"]),
    "two priors": (
        number(prior={"gaussian": {"mean": 0, "deviation": 1}, "matern": {}}),
        ["diffusivity.prior = {", "one of {gaussian: keys mean, deviation}"],
    ),
    "prior without a width": (number(prior={"gaussian": {"mean": 0}}), ["prior.gaussian.deviation is missing"]),
    # observations
    "no output": (observed(), ["observations[0].output is missing", "such as {output: fields, of: concentration}"]),
    "almost an output": (
        observed(outputs="fields"),
        ["observations[0].output is missing", "did you mean 'inverse.obs"],
    ),
    "output": (
        observed(output="prob", of="concentration"),
        ["observations[0].output = 'prob'", "what is always there: probe, lines, fields, diagnostics", "mean 'probe'"],
    ),
    "variable": (measured(of="concentratio"), ["observations[0].of = 'concentratio'", "did you mean 'concentration'"]),
    "no variable": (observed(output="fields"), ["observations[0].of is missing", "such as of: concentration"]),
    "a variable that an instrument does not read": (
        observed(output="probe", of="pressure"),
        ["observations[0].of = 'pressure': expected one of what probe reads, concentration"],
    ),
    "key of an observation": (measured(evry=2), ["observations[0].evry", "every"]),
    "no such file": (measured(file="no.csv"), ["observations[0].file = 'no.csv': no such file"]),
    "a place in a target of a probe": (
        observed(output="probe", target="x"),
        ["observations[0].target = 'x'", "unknown name 'x'"],
    ),
    "target": (measured(target="depth*sin(x)"), ["observations[0].target", "depth"]),
    "no error": (posed(observations=[{"output": "probe"}]), ["observations[0].deviation is missing"]),
    "two errors": (measured(fraction=0.1), ["deviation=0.1 and fraction=0.1: expected one"]),
    "error of zero": (measured(deviation=0), ["observations[0].deviation = 0", "> 0"]),
    "fraction of zero": (
        posed(observations=[{"output": "probe", "fraction": 0}]),
        ["observations[0].fraction = 0", "> 0"],
    ),
    "noise": (measured(noise="gausian"), ["noise", "did you mean 'gaussian'"]),
    "degrees": (measured(noise={"student": 0}), ["noise.student = 0", "> 0"]),
    "degrees missing": (measured(noise="student"), ["one of gaussian, {student: a finite"]),
    "after the end": (measured(times=[0.5, 2]), ["times[1] = 2.0", "time.end=1"]),
    "before the start": (measured(times=[-1]), ["times[0] = -1", ">= 0"]),
    "no times": (measured(times=[]), ["observations[0].times = []"]),
    "a count of frames": (
        measured(every=5),
        ["observations[0].every = 5.0: expected a time up to time.end=1; it is a time, of 5 frames write every: 0.5"],
    ),
    "every time after the end": (measured(every=1.5), ["every = 1.5: expected a time up to time.end=1"]),
    "every step": (measured(every="step"), ["observations[0].every = 'step': expected a time > 0, frame for every"]),
    "times and every": (measured(times=[1], every=0.2), ["times=[1.0] and every=0.2: expected one"]),
    # what an observation once was, and what to write now
    "once points": (
        observed(points="concentration", at=[[0.1, 0.2]]),
        ["[0].points: what is observed", "{probe: {points: [[0.1, 0.2]]}, of: concentration}", "{output: probe} here"],
    ),
    "once points of a file": (
        observed(points="concentration", file="a.nc"),
        ["[0].points: what is observed is an output now; write {output: fields, of: concentration} here."],
    ),
    "once a line": (
        observed(line_of_sight="concentration", **{"from": [[0, 0]], "to": [[1, 1]]}),
        ["outputs: [{line_of_sight: {from: [[0, 0]], to: [[1, 1]]}, of: concentration}]"],
    ),
    "once a box": (
        observed(box_average="concentration", lower=[[0, 0]], upper=[[0.5, 1]]),
        ["outputs: [{box_mean: {lower: [0, 0], upper: [0.5, 1]}, of: concentration}]"],
    ),
    "once two boxes": (
        observed(box_average="concentration", lower=[[0, 0], [0.5, 0]], upper=[[0.5, 1], [1, 1]]),
        [
            "outputs: [{box_mean: {lower: [0, 0], upper: [0.5, 1]}, of: concentration}, {box_mean: {lower: [0.5, 0], "
            "upper: [1, 1]}, of: concentration}]",
            "write {output: box_mean}, and {output: box_mean_2}, ... here",
        ],
    ),
    "once a spectrum": (
        observed(spectrum="concentration", shells=2),
        ["write {output: spectrum} here and outputs: [{spectrum: concentration, shells: 2}]"],
    ),
    "once a snapshot": (observed(snapshot="concentration"), ["write {output: fields, of: concentration} here."]),
    "once a diagnostic": (observed(diagnostic="force"), ["write {output: diagnostics, of: force} here."]),
    "once sensors": (observed(sensors="a.csv"), ["write {output: fields, file: a.csv} here."]),
    # the rest
    "solver": (solved(name="lbgfs"), ["inverse.solver.name = 'lbgfs'", "did you mean 'lbfgs'"]),
    "iterations": (solved(iterations=0), ["inverse.solver.iterations = 0", ">= 1"]),
    "starts": (solved(starts=4), ["inverse.solver.starts = 4: expected 1 with lbfgs", "adam, sgd, adamw"]),
    "forwards through a replay": (
        posed(solver={"name": "gauss_newton"}, checkpoint={"binomial": 20}),
        ["inverse.checkpoint = {binomial: 20}: expected auto, none, every_few, every_stage, every_step or two_level"],
    ),
    "forwards within a budget": (
        posed(solver={"name": "gauss_newton"}, checkpoint={"budget": 1e9}),
        ["inverse.checkpoint = {budget: 1e+09}: expected auto"],
    ),
    "forwards in reverse": (
        posed(solver={"name": "gauss_newton"}, checkpoint="reverse"),
        ["inverse.checkpoint = reverse: expected auto"],
    ),
    "no states": (posed(checkpoint={"binomial": 0}), ["inverse.checkpoint.binomial = 0", ">= 1"]),
    "plan": (posed(checkpoint="twolevel"), ["inverse.checkpoint", "did you mean 'two_level'"]),
    "windows": (posed(shooting={"windows": 4}), ["shooting.windows = 4", "a divisor of the 10 frames, such as 2"]),
    "too many windows": (posed(shooting={"windows": 20}), ["shooting.windows = 20", "such as 10"]),
    "part of a frame": (
        changed(posed(), {"time.end": 0.97}),
        ["time.end = 0.97: expected a multiple of time.output_every=0.1", "such as 1"],
    ),
    "no frame": (changed(posed(), {"time.end": 0}), ["time.end = 0: expected a multiple"]),
    "horizons backwards": (posed(horizons=[0.5, 0.5]), ["inverse.horizons[1] = 0.5", "after horizons[0]=0.5"]),
    "horizon beyond the end": (posed(horizons=[0.5, 2]), ["inverse.horizons[1] = 2", "time.end=1"]),
    "members": (
        changed(posed(), {"ensemble.size": 4, "outputs": None}),
        ["ensemble.size = 4: expected 1 with an inverse problem"],
    ),
    "variations": (
        changed(posed(), {"ensemble.vary": {"physics.diffusivity": {"linspace": [1, 2]}}, "outputs": None}),
        ["ensemble.vary.physics.diffusivity: expected nothing that varies"],
    ),
    "samples": (posed(uncertainty={"samples": -1}), ["inverse.uncertainty.samples = -1", ">= 0"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_key_value_and_remedy(mistake):
    mapping, words = MISTAKES[mistake]
    said = refusal(mapping)
    assert "\n" not in said, f"one mistake, one sentence: {said}"
    for word in words:
        assert word in said, said


def test_several_starts_without_a_line_search():
    for name in ("adam", "sgd", "adamw"):
        assert validate(posed(solver={"name": name, "starts": 4})).inverse.solver.starts == 4


def test_mistakes_are_told_with_those_of_other_sections():
    mapping = posed(
        unknowns={"physics.viscosity": {"guess": -1}, "initial.velocity": {"guess": "x"}},
        observations=[{"output": "fields", "of": "velocity_z", "deviation": 0.1}],
        base=changed(FLOW, {"time.end": "no", "physics.viscosity": -1.0, "grid.shape": [1e3, 8]}),
        solver={"iterations": 0},
        horizons=[-1],
    )
    said = refusal(mapping)
    paths = (
        "time.end",
        "physics.viscosity",
        "grid.shape[0]",
        "inverse.unknowns.physics.viscosity.guess",
        "inverse.unknowns.initial.velocity.guess",
        "inverse.observations[0].of",
        "inverse.solver.iterations",
        "inverse.horizons[0]",
    )
    assert said.startswith(f"{len(paths)} problems in the configuration:"), said
    for path in paths:
        assert f"\n  {path}" in said, said
