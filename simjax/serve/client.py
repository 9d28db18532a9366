"""A client of a server, which needs NumPy alone."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from simjax.errors import ConfigurationError, InputOutputError
from simjax.serve.messages import ARGUMENTS, COTANGENTS, ERROR, GRADIENTS, NPZ, RESULTS, Refusal, decode, encode

Arrays = Mapping[str, Any]


class Client:
    """A server at a URL such as http://127.0.0.1:8080; threads can share it.

    Its methods raise Refusal, with the server's sentence and `status`, where a request is refused, and
    InputOutputError where no server answers within `seconds`.
    """

    def __init__(self, url: str, seconds: float = 120.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{url}: expected the URL of a server, such as http://127.0.0.1:8080.")
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url, self._place, self._path, self._seconds = url, parts.netloc, parts.path.rstrip("/"), seconds

    def health(self) -> dict[str, Any]:
        """Say that the server is ready, how many requests it answered, and in how many calls."""
        return json.loads(self._ask("GET", "/health"))

    def metadata(self) -> dict[str, Any]:
        """Names, shapes, units and limits, and the configuration."""
        return json.loads(self._ask("GET", "/metadata"))

    def call(
        self, arguments: Arrays | None = None, *, results: Sequence[str] | None = None, frames: str | None = None
    ) -> dict[str, np.ndarray]:
        """Results of the served function by name.

        Args:
            arguments: by name; those that are left out are the configuration's.
            results: names of those that are wanted; None: all.
            frames: of a rollout, `last` (default) or `all` output times.
        """
        sections = {ARGUMENTS: _arrays(arguments)}
        return self._post("/call", sections, results=results, frames=frames).get(RESULTS, {})

    def vjp(
        self,
        arguments: Arrays | None,
        cotangents: Arrays,
        *,
        results: Sequence[str] | None = None,
        gradients: Sequence[str] | None = None,
        frames: str | None = None,
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Results, and the vector-Jacobian product: the gradient of the sum of cotangents times results.

        Args:
            arguments: as of `call`.
            cotangents: by name of the result, of its shape; zero where they are left out.
            results: as of `call`.
            gradients: names of the arguments whose gradients are wanted; None: all.
            frames: as of `call`; cotangents are those of these output times.
        """
        sections = {ARGUMENTS: _arrays(arguments), COTANGENTS: _arrays(cotangents)}
        found = self._post("/vjp", sections, results=results, gradients=gradients, frames=frames)
        return found.get(RESULTS, {}), found.get(GRADIENTS, {})

    def _post(self, path: str, sections: dict[str, dict[str, np.ndarray]], **words: Sequence[str] | str | None):
        query = {
            name: value if isinstance(value, str) else ",".join(value)
            for name, value in words.items()
            if value is not None
        }
        content = self._ask("POST", f"{path}?{urlencode(query)}", encode(sections, NPZ))
        return decode(content, NPZ, RESULTS)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            with contextlib.closing(self._connection(self._place, timeout=self._seconds)) as connection:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a refusal before all is sent
                    connection.request(method, self._path + path, body, {"Content-Type": NPZ})
                answer = connection.getresponse()
                content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise InputOutputError(f"{self._url} does not answer ({error}); start python -m simjax.serve.") from error
        if answer.status != http.HTTPStatus.OK:
            raise Refusal(answer.status, _sentence(content))
        return content


def _arrays(given: Arrays | None) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in (given or {}).items()}


def _sentence(content: bytes) -> str:
    """The sentence of a refusal; that of a proxy is no JSON."""
    try:
        return json.loads(content)[ERROR]
    except (ValueError, KeyError, TypeError):
        return content[:200].decode(errors="replace")
