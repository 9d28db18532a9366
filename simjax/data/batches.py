"""Batches of windows by Grain: shuffled, repeated, shared among processes, and resumed where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simjax.arguments import shown
from simjax.errors import ConfigurationError, ResourceError

if TYPE_CHECKING:
    import grain

    from simjax.io.state_windows import TrajectoryWindows

# HDF5 reads in one thread at a time; the second one stacks and transposes meanwhile.
THREADS, BATCHES_AHEAD = 2, 4


def batches(
    windows: TrajectoryWindows,
    size: int,
    *,
    seed: int | None,
    epochs: int | None = None,
    drop_remainder: bool = True,
    part: tuple[int, int] | None = None,
    workers: int = 0,
) -> grain.DatasetIterator[dict[str, Any]]:
    """Iterator over batches: dictionaries of NumPy arrays, those of a window with a leading axis of `size`.

    `get_state()` tells how far it is and `set_state(state)` goes there, to the sample; `grain.checkpoint` saves it with
    Orbax. Both need the arguments, and the number of processes, of before.

    Args:
        windows: what is batched.
        size: windows of a batch, on each process.
        seed: of the order, which is another one in each epoch; None: the order of the windows.
        epochs: how often each window is taken; None: without end.
        drop_remainder: give all processes as many full batches, leaving out what is over; each epoch leaves out other
            windows. False: each window is taken, and the last batch may be smaller.
        part: the share of the windows that this process takes, (number from 0, how many); None: that of this process
            of jax.
        workers: processes that read ahead; 0: threads of this one.

    Raises:
        ConfigurationError: an argument is none, or the windows do not fill a batch.
        ResourceError: Grain is not installed.

    Examples:
        >>> few = ["grid.shape=[32]", "output.report=false", "output.animation=false"]
        >>> windows = sj.TrajectoryWindows(sj.load("sod", few).run().folder, ["density"], length=2)
        >>> batch = next(sj.batches(windows, 4, seed=1))
        >>> batch["density"].shape, batch["time"].shape
        ((4, 2, 32), (4, 2))
    """
    optional = ("epochs", 1 if epochs is None else epochs, 1), ("seed", seed or 0, 0)
    if not (hasattr(windows, "__len__") and hasattr(windows, "__getitem__")):
        raise ConfigurationError(
            f"windows={shown(windows)}: expected windows of states; write TrajectoryWindows(folder, fields, length=2)."
        )
    for name, value, least in (("size", size, 1), ("workers", workers, 0), *optional):
        if not isinstance(value, int) or value < least:
            raise ConfigurationError(f"{name}={value!r}: expected a whole number, {least} or more.")
    try:
        import grain
    except ImportError:
        raise ResourceError(
            "batches are made by grain, which is not installed; write pip install 'simjax[data]'."
        ) from None
    if part is not None and (not isinstance(part, tuple) or [type(one) for one in part] != [int, int]):
        raise ConfigurationError(f"part={shown(part)}: expected the number of a part, from 0 on, and how many.")
    number, parts = _this_process() if part is None else part
    if not 0 <= number < parts:
        raise ConfigurationError(f"part=({number}, {parts}): expected the number of a part, from 0 on, and how many.")
    shared = len(windows) // parts * parts if drop_remainder else len(windows)
    own = len(range(number, shared, parts)) * (epochs or 1)
    if own < (size if drop_remainder and epochs else 1):
        raise ConfigurationError(
            f"size={size}: part {number} of {parts} has {own} windows, too few for a batch; take smaller batches, "
            "shorter windows or more runs."
        )
    dataset = grain.MapDataset.source(windows)
    if seed is not None:
        dataset = dataset.shuffle(seed=seed)
    dataset = dataset[number:shared:parts].repeat(epochs).batch(size, drop_remainder=drop_remainder)
    read = dataset.to_iter_dataset(grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=BATCHES_AHEAD))
    if workers:
        _read_flags()
        read = read.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(read)


def _this_process() -> tuple[int, int]:
    import jax

    return jax.process_index(), jax.process_count()


def _read_flags() -> None:
    """Settle the options of the command line that Grain's workers have, which only programs of Abseil read."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
