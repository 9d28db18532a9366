"""Every test runs in float64, on eight virtual CPU devices, with promotion of dtypes and ranks made explicit."""

import gc
import os

# Traced programs are many small objects that live long: looking for garbage among them took a tenth of the time.
gc.set_threshold(50_000, 20, 20)

# Eight virtual devices share few threads: collectives that do not depend on each other must run in one order, or
# devices wait for each other for ever.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_cpu_enable_concurrency_optimized_scheduler=false"
os.environ["JAX_PLATFORMS"] = "cpu"
# No test takes programs of an earlier one, nor leaves any in the user's cache; those about the cache set this again.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"

import jax  # noqa: E402
import pytest  # noqa: E402

if os.environ.get("OPTIMISED") != "1":
    if jax.__version_info__ < (0, 11):
        # The tests compile for longer than they run: without these emitters, by a quarter less. Tests of the command
        # line and of restarts, in processes of their own, run what users run.
        FLAGS += " --xla_cpu_use_fusion_emitters=false"
    # Nor are small programs worth cutting up among the compiler's threads: that takes a fifth of its time. Machine code
    # as it is written spares another quarter; what optimised code does is asked by tests with `case.OPTIMISED`, in
    # processes as above, and of some families by `OPTIMISED=1 pytest`.
    FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
    FLAGS += " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


# jax interprets kernels for GPUs since 0.11.
INTERPRETED = ["stencil/kernels/test_hopper.py", "stencil/kernels/test_hopper_sums.py"]
collect_ignore = INTERPRETED if jax.__version_info__ < (0, 11) else []


# What takes longest begins first, so that no worker is left with it at the end.
FIRST = (
    "test_lost_processes",
    "test_inverse_experiments",
    "test_certify",
    "test_equivalence",
    "test_several_experiments",
    "test_compressible",
    "test_pages",
)
# Tests that share nothing with others of their file.
APART = ("test_inverse_experiments", "test_several_experiments", "test_mutations")


def pytest_collection_modifyitems(config, items):
    """A file's tests share what they compile, so they stay with one worker; of the equivalence, a case's do."""
    # All that were found, before `-m` and `-k` choose among them; test_ledger.py compares them with the ledger.
    config.stash["collected"] = [*items]
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        group = item.path.stem if case is None else f"{item.path.stem} {case.name}"
        if item.name.startswith("test_every_experiment_passes") or item.path.stem in APART:
            group = item.name
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_sessionfinish():
    # pytest collects garbage ten times at its end: half a second each after a hundred tests, and more after all.
    gc.freeze()
