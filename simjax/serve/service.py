"""A function of a run, compiled for batches of requests: arrays by name in, results and gradients out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simjax.driver.output.provenance import config_digest
from simjax.driver.start.environment import set_up_jax, versions
from simjax.errors import ConfigurationError
from simjax.export.functions import exportable, require_function, with_leading_axis
from simjax.schema.config import Config
from simjax.schema.config_errors import closest
from simjax.serve.messages import ARGUMENTS, COTANGENTS, GRADIENTS, RESULTS, Refusal, Sections

FRAMES = ("last", "all")
MOST_IN_A_BATCH = 256
CHARACTERS, ROOM = 32, 2**16
"""Bytes of a number written in JSON, at most, and of all else in a body."""


@dataclass(frozen=True)
class Question:
    """A request that was checked: all arguments, cotangents of all real results or None, and what is asked."""

    arguments: dict[str, np.ndarray]
    cotangents: dict[str, np.ndarray] | None
    results: tuple[str, ...]
    gradients: tuple[str, ...]
    all_frames: bool


class Service:
    """A function of a configuration, as `simjax.export` has it, for several requests at once.

    Programs are compiled for batches of 1, 2, 4, ... requests, and a batch is filled up with its first request to the
    next of these sizes: results of one request do not depend on the others.

    Args:
        what: `rollout`, `step` or `loss`.
        vjp_order: 1: vector-Jacobian products too; 0: results alone.
        batch: most requests in a call, a power of two. 1 serves a run on several devices as well.

    Raises:
        ConfigurationError: the function cannot be exported or batched, or an option is none.
    """

    def __init__(self, config: Config, *, what: str = "rollout", vjp_order: int = 1, batch: int = 8):
        _require(what, vjp_order, batch)
        if batch > 1 and config.mesh.devices > 1:
            raise ConfigurationError(
                f"batch={batch}: expected a run on one device, got a mesh of {config.mesh.devices}; write batch=1."
            )
        config = set_up_jax(config)
        self.config, self.what, self.batch, self.has_gradients = config, what, batch, vjp_order == 1
        self._made = exportable(what, config)
        self._shapes = self._made.shapes()
        self._results = jax.eval_shape(self._made.function, self._shapes)
        self._defaults = {name: np.asarray(u) for name, u in self._made.arguments.items()}
        self.calls = 0

    @property
    def sizes(self) -> list[int]:
        """Sizes of the batches for which there are programs."""
        return [1 << k for k in range(self.batch.bit_length())]

    @property
    def most_bytes(self) -> int:
        """Size of the largest body that a request can need."""
        numbers = sum(np.size(u) for u in self._defaults.values()) + sum(u.size for u in self._results.values())
        return CHARACTERS * numbers + ROOM

    def compile(self) -> None:
        """Compile the programs of all sizes, so that no request waits for it."""
        for size in self.sizes:
            for gradients in {False, self.has_gradients}:
                self._program(size, gradients)

    def metadata(self) -> dict[str, Any]:
        """Names, shapes, types, units and meaning of arguments and results, and the configuration, for JSON."""
        config = self.config
        return {
            "what": self.what,
            "model": config.model,
            "experiment": config.experiment_name,
            "title": config.title,
            "precision": config.precision,
            "batch_sizes": self.sizes,
            **self._made.extra,
            "gradients": list(self._real_arguments) if self.has_gradients else [],
            ARGUMENTS: self._made.describe(self._defaults),
            RESULTS: self._made.describe(self._results),
            "versions": versions(),
            "config_sha256": config_digest(config),
            "configuration": config.write(),
        }

    # ------------------------------------------------------------------ a request

    def question(self, given: Sections, query: Mapping[str, str], *, gradients: bool) -> Question:
        """A request from the sections of its body and the words of its address, checked.

        Raises:
            Refusal: 400, with what was expected.
        """
        if gradients and not self.has_gradients:
            raise Refusal(400, "this server gives no gradients; start it with vjp_order=1.")
        _known("section", given, (ARGUMENTS, COTANGENTS) if gradients else (ARGUMENTS,))
        words = ("results", *(("frames",) if self._has_frames else ()), *(("gradients",) if gradients else ()))
        _known("option", query, words)
        frames = query.get("frames", FRAMES[0])
        if frames not in FRAMES:
            raise Refusal(400, f"frames={frames}: expected one of {', '.join(FRAMES)}.")
        results = self._chosen(query, "results", tuple(self._results))
        arguments = self._defaults | {
            name: self._argument(name, value) for name, value in given.get(ARGUMENTS, {}).items()
        }
        if not gradients:
            return Question(arguments, None, results, (), frames == "all")
        cotangents = self._cotangents(given.get(COTANGENTS, {}), frames == "all")
        sought = self._chosen(query, "gradients", self._real_arguments)
        return Question(arguments, cotangents, results, sought, frames == "all")

    def _argument(self, name: str, value: np.ndarray) -> np.ndarray:
        """An argument of the shape and type of the configuration's own, in the range of its key."""
        if name in self._made.extra["without_effect"]:
            raise Refusal(400, f"{name}: no result depends on it; leave it out.")
        found = _as_expected(name, value, self._defaults[_one_of("argument", name, self._defaults)])
        kind = self._made.kinds.get(name)
        if kind is not None and not kind.contains(float(found)):
            raise Refusal(400, f"{name} = {float(found):g}: expected {kind.allowed}.")
        return found

    def _chosen(self, query: Mapping[str, str], word: str, known: Sequence[str]) -> tuple[str, ...]:
        names = tuple(known) if word not in query else tuple(filter(None, query[word].split(",")))
        _known(word.removesuffix("s"), names, known)
        return names

    def _cotangents(self, given: Mapping[str, np.ndarray], all_frames: bool) -> dict[str, np.ndarray]:
        """Cotangents of whole results: zero where none is given, and before the last frame if that alone is asked."""
        known = [name for name, u in self._results.items() if _is_real(u)]
        _known("result", given, known)
        if not given:
            raise Refusal(400, f"cotangents: expected that of one result at least, among {', '.join(known)}.")
        whole = {name: np.zeros(self._results[name].shape, self._results[name].dtype) for name in known}
        for name, value in given.items():
            place = whole[name][-1:] if self._has_frames and not all_frames else whole[name][None]
            place[0] = _as_expected(f"the cotangent of {name}", value, place[0])
        return whole

    def answer(self, question: Question, found: Sections) -> Sections:
        """The results and gradients that a request asks for.

        Raises:
            Refusal: 422, a part of it is not finite.
        """
        chosen = {RESULTS: {name: self._at(found[RESULTS][name], question.all_frames) for name in question.results}}
        if question.cotangents is not None:
            chosen[GRADIENTS] = {name: found[GRADIENTS][name] for name in question.gradients}
        spoiled = [
            name if section == RESULTS else f"the gradient of {name}"
            for section, arrays in chosen.items()
            for name, value in arrays.items()
            if not np.all(np.isfinite(value))
        ]
        if spoiled:
            raise Refusal(
                422,
                f"the {self.what} with these arguments fails, or leaves the range of {self.config.precision}: not "
                f"finite are {', '.join(spoiled)}. Choose other arguments, a smaller time.dt, or other results.",
            )
        return chosen

    def _at(self, result: np.ndarray, all_frames: bool) -> np.ndarray:
        return result[-1] if self._has_frames and not all_frames else result

    @property
    def _has_frames(self) -> bool:
        """Tell whether results have a leading axis of output times."""
        return "times" in self._made.extra

    @property
    def _real_arguments(self) -> tuple[str, ...]:
        return tuple(name for name, u in self._shapes.items() if _is_real(u))

    # ------------------------------------------------------------------ programs

    def evaluate(self, questions: Sequence[Question]) -> list[Sections]:
        """Results of up to `batch` requests in one call, and their gradients where the first asks for them: all do.

        Raises:
            Refusal: 500, the program cannot run, for want of memory for example.
        """
        self.calls += 1
        size = next(size for size in self.sizes if size >= len(questions))
        whole = [*questions, *[questions[0]] * (size - len(questions))]
        gradients = whole[0].cotangents is not None
        given = [_stacked([one.arguments for one in whole])]
        if gradients:
            given.append(_stacked([one.cotangents or {} for one in whole]))
        if size == 1:
            given = jax.tree.map(lambda u: u[0], given)
        try:
            found = jax.device_get(self._program(size, gradients)(*given))
        except jax.errors.JaxRuntimeError as error:
            first = str(error).splitlines()[0]
            raise Refusal(500, f"the program cannot run: {first}; start the server with a smaller batch.") from None
        return [found] if size == 1 else [jax.tree.map(lambda u, k=k: u[k], found) for k in range(len(questions))]

    @functools.cache  # noqa: B019 - a service lives as long as its programs
    def _program(self, size: int, gradients: bool) -> Callable:
        """Compiled `(arguments) -> sections` or `(arguments, cotangents) -> sections` of a batch."""
        shapes = [self._shapes]
        if gradients:
            shapes.append({name: u for name, u in self._results.items() if _is_real(u)})
        function = _with_gradients(self._made.function) if gradients else _alone(self._made.function)
        if size > 1:
            function, shapes = jax.vmap(function), [with_leading_axis(one, size) for one in shapes]
        try:
            return jax.jit(function).lower(*shapes).compile()
        except (NotImplementedError, ValueError, jax.errors.JAXTypeError) as error:
            first = str(error).strip().splitlines()[0]
            raise ConfigurationError(
                f"this function cannot be served{f' with batch={size}' if size > 1 else ''}: {first} "
                "Write implementation=xla, batch=1, or vjp_order=0."
            ) from error


def _alone(function: Callable) -> Callable:
    return lambda arguments: {RESULTS: function(arguments)}


def _with_gradients(function: Callable) -> Callable:
    """Results, and the vector-Jacobian product with the cotangents of those that are real."""

    def both(arguments, cotangents):
        real = {name: u for name, u in arguments.items() if _is_real(u)}

        def of_real(real):
            results = function({**arguments, **real})
            return {name: results[name] for name in cotangents}, results

        _, back, results = jax.vjp(of_real, real, has_aux=True)
        return {RESULTS: results, GRADIENTS: back(cotangents)[0]}

    return both


def _is_real(u: Any) -> bool:
    """Tell whether an array has derivatives: its numbers are real or complex."""
    return bool(jnp.issubdtype(u.dtype, jnp.inexact))


def _stacked(several: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([one[name] for one in several]) for name in several[0]}


def _require(what: str, vjp_order: int, batch: int) -> None:
    require_function(what)
    if vjp_order not in (0, 1):
        raise ConfigurationError(f"vjp_order={vjp_order}: expected 0 or 1, whether gradients are served.")
    if not 1 <= batch <= MOST_IN_A_BATCH or batch & (batch - 1):
        raise ConfigurationError(f"batch={batch}: expected a power of two up to {MOST_IN_A_BATCH}, such as 8.")


def _known(what: str, given: Sequence[str] | Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        _one_of(what, name, known)


def _one_of(what: str, name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    if name not in known:
        close = closest(name, known)
        hint = f"did you mean {close}?" if close else f"known are {', '.join(known) or 'none'}."
        raise Refusal(400, f"{name}: no such {what}; {hint}")
    return name


def _as_expected(name: str, value: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Convert a given array to the shape and dtype of `like`."""
    if value.shape != like.shape:
        raise Refusal(400, f"{name}: expected the shape {list(like.shape)}, got {list(value.shape)}.")
    if not np.can_cast(value.dtype, like.dtype, "same_kind"):
        raise Refusal(400, f"{name}: expected numbers of {like.dtype}, got {value.dtype}.")
    with np.errstate(over="ignore"):  # told as not finite
        cast = value.astype(like.dtype)
    if not np.all(np.isfinite(cast)):
        raise Refusal(400, f"{name}: expected finite numbers of {like.dtype}, got some that are not.")
    return cast
