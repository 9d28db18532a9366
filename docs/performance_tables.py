"""Tables of performance.md, from the files that the programs of `benchmarks/` wrote."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
from gpu_kernels import seconds_of  # noqa: E402

from benchmarks.gpu.tables import as_table as gpu_table  # noqa: E402
from benchmarks.report import as_markdown, digits, in_columns  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
DEAREST = 10


def _results(benchmark: str, gpu: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """Version of jax and content of each result of a benchmark, on processors or on graphics ones."""
    for path in sorted(RESULTS.glob(f"{benchmark}_*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["environment"]["device"].startswith("gpu") == gpu:
            yield content["environment"]["jax"], content


def _shape(shape: Sequence[int]) -> str:
    return f"{shape[0]}^{len(shape)}" if len(shape) == 3 and len(set(shape)) == 1 else " x ".join(map(str, shape))


def comparisons() -> str:
    """All tables of the last run of `python -m benchmarks` that is kept, and the machine that made it."""
    content = json.loads((RESULTS / "comparisons.json").read_text(encoding="utf-8"))
    machine, versions = content["environment"], content["versions"]
    told = f"{machine['processor']}, {machine['cpus']} cores, jax {versions['jax']}"
    sizes = "sizes of `--quick`" if content["quick"] else "full sizes"
    return f"{told}; {sizes}.\n\n{as_markdown(content)}"


def limits() -> str:
    """Steps and what bounds them: the share of the bandwidth of a copy that they reach."""
    rows: list[Sequence[object]] = []
    for benchmark, key in (("stencil", "cases"), ("transport", "explicit"), ("waves", "cases"), ("gas", "cases")):
        for jax, found in _results(benchmark):
            for case in found[key]:
                name = case.get("model", "advection-diffusion" if benchmark == "stencil" else benchmark)
                order = f"order {case['order']}" if "order" in case else ""
                what = ", ".join(filter(None, (name, case.get("scheme", ""), order, case.get("sides", ""))))
                rate, share = case["cell_updates_per_s"] / 1e6, case["t_eff_of_copy"]
                flops = f"{case['gflops_per_s']:.0f} GFlop/s" if "gflops_per_s" in case else ""
                size = _shape(case["shape"])
                scheme = case.get("integrator", "leapfrog")
                rows.append(
                    (what.replace("_", " "), scheme, size, jax, digits(rate), flops or f"{share:.2f} of a copy")
                )
    return in_columns("step | integrator | grid | jax | million cells/s | reached", rows)


def on_a_gpu() -> str:
    """Steps on a GPU: by XLA, and as kernels in the same turns."""
    rows: list[Sequence[object]] = []
    for _, found in _results("kernels", gpu=True):
        for case in found["cases"]:
            plain, kernel = case["xla"], case["pallas"]
            share, dear = f"{plain['t_eff_of_copy']:.2f}", plain.get("gradient_over_step")
            rows.append(
                (
                    case["case"],
                    case["integrator"],
                    _shape(case["shape"]),
                    digits(plain["ms_per_step"]),
                    share,
                    "" if dear is None else digits(dear),
                    f"{kernel['faster_than_xla']:.2f}",
                )
            )
    for benchmark, name in (("navier_stokes", "Navier-Stokes"), ("spectral", "flow in a Fourier basis")):
        for _, found in _results(benchmark, gpu=True):
            for case in found["cases"]:
                rows.append((name, case["integrator"], _shape(case["shape"]), digits(case["ms_per_step"]), "", "", ""))
    return in_columns(
        "step | integrator | grid | ms | share of a copy | gradient over step | speed of kernels over XLA's", rows
    )


def gpu_command() -> str:
    """Every result of `python -m benchmarks gpu`, the newest version first: what ran, by whom, and the time."""
    parts = []
    for jax, found in reversed([*_results("gpu", gpu=True)]):
        environment = found["environment"]
        head = (
            f"{environment['device'].removeprefix('gpu: ')}, driver {environment.get('driver', 'unknown')}, jax {jax}"
        )
        own = f"{head}; {environment['simjax']}." if "simjax" in environment else f"{head}."
        parts.append(f"{own}\n\n{gpu_table(found)}")
    return "\n\n".join(parts)


def gpu_model() -> str:
    """Times of steps that the model of `simjax.inspect` gives to the programs that an H100 ran, beside the clock's."""
    programs = json.loads((ROOT / "tests" / "reference" / "h100_programs.json").read_text(encoding="utf-8"))["programs"]
    measured = json.loads((RESULTS / "gpu_h100_jax_0.11.2.json").read_text(encoding="utf-8"))["rows"]
    rows: list[Sequence[object]] = []
    for row in measured:
        if row["by"] != "simjax, XLA" or row["row"] not in programs:
            continue
        kernels = programs[row["row"]]["kernels"]
        estimate, moved = 1e3 * seconds_of(kernels), sum(one[3] * one[-1] for one in kernels)
        launches = f"{sum(one[1] * one[-1] for one in kernels):.1f}".removesuffix(".0")
        off = f"{100 * (estimate / row['ms'] - 1):+.0f} %"
        rows.append((row["what"], launches, digits(moved / 1e9), digits(estimate), digits(row["ms"]), off))
    return in_columns("step | launches | GB | model, ms | measured, ms | off by", rows)


def compile_cost() -> str:
    """The gradients of shipped experiments that cost XLA most, and how many there are."""
    content = json.loads((RESULTS / "compile_time.json").read_text(encoding="utf-8"))
    gradients = [row for row in content["rows"] if row["program"] == "gradient" and "compile_cpu_s" in row]
    dearest = sorted(gradients, key=lambda row: -row["compile_cpu_s"])[:DEAREST]
    rows = [
        (
            f"`{row['experiment']}`",
            f"{row['operations']:,}".replace(",", " "),
            f"{row['compile_cpu_s']:.0f}",
            row["peak_mib"],
        )
        for row in dearest
    ]
    below = digits(max(row["compile_cpu_s"] for row in content["rows"] if row["program"] == "forward"))
    told = f"The other {len(gradients) - DEAREST} take less, and forward programs at most {below} s."
    return in_columns("gradient of | StableHLO operations | CPU s | peak MiB", rows) + f"\n\n{told}"


def memory_told() -> str:
    """Memory that runs are told to need, beside what their processes took."""
    rows = []
    for _, found in _results("memory"):
        for row in found["rows"]:
            parts = [f"{row[name] / 2**20:.0f}" for name in ("state", "working_memory", "observed_frames", "needed")]
            size = f"{4 * row['size'] ** 3:,}".replace(",", " ") if "liquid" in row["case"] else f"{row['size']}^2"
            rows.append((row["case"], size, *parts, f"{row['taken'] / 2**20:.0f}", f"{row['taken_over_told']:.2f}"))
    head = "run | cells or particles | state | working memory | observed frames | told | taken | taken over told"
    return in_columns(head, rows)


def weak_scaling() -> str:
    """Predicted steps on pods that are not there, with the same block on each chip: waiting and efficiency by size."""
    rows: list[Sequence[object]] = []
    for path in sorted(RESULTS.glob("weak_scaling_*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            sizes = {row["devices"]: row for row in case["scaling"]}
            alone, all_of_them = sizes[1], case["step"]
            exchanges = [one for one in all_of_them["exchanges"] if one["kind"] != "all-reduce"]
            total = sum(one["count"] for one in exchanges)
            hidden = sum(one["count"] for one in exchanges if one["asynchronous"])
            rows.append(
                (
                    f"`{case['experiment']}`",
                    _shape(case["block"]),
                    _milliseconds(alone["seconds"]),
                    _milliseconds(all_of_them["seconds"]),
                    _milliseconds(all_of_them["exposed_s"]),
                    f"{hidden:g} of {total:g}",
                    ", ".join(f"{100 * row['efficiency']:.0f}" for count, row in sizes.items() if count > 1),
                    f"{case['compile_cpu_s']:.0f}",
                )
            )
    head = (
        "experiment | block | 1 chip, ms | 256 chips, ms | of it waiting | asynchronous exchanges | "
        "efficiency of 4, 16, 64, 256 chips, % | CPU s to compile"
    )
    return in_columns(head, rows)


def _milliseconds(seconds: float) -> str:
    return digits(1e3 * seconds) if seconds else "0"
