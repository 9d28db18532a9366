"""Requests per second of a server with 1, 8 and 32 clients, computed together and one by one, as JSON.

Each case has two servers, processes of their own, that answer in turns: one computes up to 32 requests in a call, the
other one (batch=1) each by itself. Clients are threads of this process, each of which asks again as soon as it has its
answer, with a number of its own; what is asked for is the diagnostics at the end. Servers and clients share the
machine, so that on few cores, or beside other work, the processor's time that a server spends on a request tells more
(Linux).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.measure import environment, rounded, time_alternately
from simjax.serve.client import Client

CASES = {
    "dye, 16 x 16, 2000 steps": (
        ["experiment=dye", "grid.shape=[16,16]", "time.end=20.0", "time.output_every=20.0", "time.dt=0.01"],
        "diffusivity",
        1e-3,
    ),
    "Kolmogorov flow, 64 x 64, 20 steps": (
        ["experiment=kolmogorov", "grid.shape=[64,64]", "time.end=0.1", "time.output_every=0.1", "time.dt=0.005"],
        "viscosity",
        1e-3,
    ),
}
CLIENTS = (1, 8, 32)
BATCH = 32


@contextlib.contextmanager
def server(words: list[str]) -> Iterator[tuple[Client, int]]:
    """Within it a server process answers, which is stopped at the end: a client and the number of the process."""
    command = [sys.executable, "-m", "simjax.serve", *words, "vjp_order=0", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Client(re.findall(r"http://\S+", process.stdout.readline())[0]), process.pid
        finally:
            process.terminate()


def ask(client: Client, name: str, value: float, clients: int, requests: int) -> None:
    """Have `clients` threads ask, `requests` times in all."""

    def one(number: int) -> None:
        for k in range(requests // clients):
            client.call({name: value * (1 + 0.01 * (number + k) / requests)}, results=wanted)

    wanted = [result for result, told in client.metadata()["results"].items() if len(told["shape"]) == 1]
    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(one, number) for number in range(clients)]:
            done.result()


def spent(process: int) -> float:
    """The processor's time of a process so far, in seconds, by proc(5)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(words: list[str], name: str, value: float, requests: int, repeats: int) -> dict[str, object]:
    """By number of clients: requests per second, medians of `repeats` rounds; the processor's time that the server
    took for each; how many requests a call took."""
    found: dict[str, object] = {}
    with server([*words, f"batch={BATCH}"]) as together, server([*words, "batch=1"]) as alone:
        servers = {"together": together, "alone": alone}
        for clients in CLIENTS:
            calls = {kind: partial(ask, one, name, value, clients, requests) for kind, (one, _) in servers.items()}
            before = {kind: (one.health(), spent(process)) for kind, (one, process) in servers.items()}
            seconds = time_alternately(calls, repeats)
            told: dict[str, float] = {}
            for kind, (one, process) in servers.items():
                earlier, busy = before[kind]
                now, answered = one.health(), (repeats + 1) * requests
                told[f"{kind}_per_s"] = rounded(requests / statistics.median(seconds[kind]))
                told[f"{kind}_cpu_ms"] = rounded(1e3 * (spent(process) - busy) / answered)
                told[f"{kind}_requests_per_call"] = rounded(answered / (now["calls"] - earlier["calls"]))
            found[f"{clients} clients"] = told
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    cases = {case: measured(*given, options.requests, options.repeats) for case, given in CASES.items()}
    print(json.dumps({"environment": environment(), "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
