"""A server answers what the run gives, requests that arrive together in one call, and all others with a sentence."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import jax
import numpy as np
import pytest
from prepared import PreparedProcess

import simjax as sj
from simjax.driver.output.provenance import config_digest
from simjax.serve.__main__ import main
from simjax.serve.client import Client
from simjax.serve.limits import Limits
from simjax.serve.messages import JSON, NPZ, Refusal
from simjax.serve.server import serving
from simjax.serve.service import Service
from simjax.serve.web_application import AskedByName

SMALL = ["grid.shape=[12,10]", "time.end=0.2", "time.output_every=0.1", "time.dt=0.05", "precision=float64"]
ROUNDING = {"rtol": 1e-12, "atol": 1e-13}  # the same program, batched
SECONDS = 60


def dye(*overrides):
    return sj.load("dye", [*SMALL, *overrides])


class Gated(Service):
    """A service whose calls wait until its gate is open."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.gate, self.begun = threading.Event(), threading.Event()
        self.gate.set()

    def evaluate(self, questions):
        self.begun.set()
        assert self.gate.wait(SECONDS)
        return super().evaluate(questions)


@pytest.fixture(scope="module")
def service():
    return Gated(dye().config, batch=4)


@pytest.fixture(scope="module")
def url(service):
    with serving(service) as url:
        yield url


@contextlib.contextmanager
def closed(service):
    """Within it calls begin and do not end."""
    service.begun.clear()
    service.gate.clear()
    try:
        yield
    finally:
        service.gate.set()


def until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def ask(url, path, body=b"{}", kind=JSON, method="POST"):
    """Status and content of a plain request, as of any program."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)) as connection:
        connection.request(method, path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.slow
def test_answers_are_the_run_and_gradients_its_gradients(url):
    run, client = dye().differentiable(fields=["initial.concentration"]), Client(url)
    start = run.fields["initial.concentration"][0] ** 2
    wanted = run({"diffusivity": 0.02}, {"initial.concentration": (start,)}).observed
    given = {"diffusivity": 0.02, "initial.concentration": start}
    found, last = client.call(given, frames="all"), client.call(given, results=["concentration"])
    assert sorted(found) == sorted(wanted) and [*last] == ["concentration"]
    assert 0 < found["variance_concentration"][-1] < found["variance_concentration"][0]  # the dye spreads
    for name, u in wanted.items():
        np.testing.assert_allclose(found[name], u, **ROUNDING)
    np.testing.assert_array_equal(last["concentration"], found["concentration"][-1])

    weights = np.random.default_rng(1).normal(size=(12, 10))

    def sought(number, start):
        observed = run({"diffusivity": number}, {"initial.concentration": (start,)}).observed
        return (weights * observed["concentration"][-1]).sum() + 3 * observed["variance_concentration"][-1]

    slopes = jax.grad(sought, argnums=(0, 1))(0.02, start)
    cotangents = {"concentration": weights, "variance_concentration": 3.0}
    names = ["diffusivity", "initial.concentration"]
    results, gradients = client.vjp(given, cotangents, gradients=names, results=["mean_concentration"])
    np.testing.assert_allclose(results["mean_concentration"], wanted["mean_concentration"][-1], **ROUNDING)
    for name, slope in zip(names, slopes, strict=True):
        assert np.abs(slope).max() > 0
        np.testing.assert_allclose(gradients[name], slope, **ROUNDING)
    whole = {"mean_concentration": np.ones(3)}
    _, by_start = client.vjp(given, whole, frames="all", gradients=["initial.concentration"], results=[])
    # The total stays, so that all three means have the same gradient, one over the number of cells.
    np.testing.assert_allclose(by_start["initial.concentration"], np.full((12, 10), 3 / 120), **ROUNDING)


def test_json_gives_the_same_numbers(url):
    status, told = ask(url, "/call?results=variance_concentration", b'{"arguments": {"diffusivity": 0.02}}')
    assert status == 200 and [*told] == ["results"]
    wanted = Client(url).call({"diffusivity": 0.02})["variance_concentration"]
    np.testing.assert_allclose(told["results"]["variance_concentration"], wanted, **ROUNDING)


@pytest.mark.slow
def test_a_burst_is_computed_together_and_one_that_fails_spoils_no_other(service, url):
    client, before = Client(url), service.calls
    numbers = [0.01, 0.02, 1e200, 0.03, 0.04]  # one of them overflows
    with ThreadPoolExecutor(8) as pool:
        with closed(service):
            first = pool.submit(client.call)
            assert service.begun.wait(SECONDS)
            burst = [pool.submit(client.call, {"diffusivity": number}) for number in numbers]
            until(lambda: client.health()["requests"] == 6)
        first.result()
        for number, one in zip(numbers, burst, strict=True):
            if number == 1e200:
                with pytest.raises(Refusal, match="rollout with these arguments fails.*not finite are conc") as told:
                    one.result()
                assert told.value.status == 422
            else:
                alone = dye(f"physics.diffusivity={number}").differentiable(variables=[])().observed
                found = one.result()["variance_concentration"]
                np.testing.assert_allclose(found, alone["variance_concentration"][-1], **ROUNDING)
    assert service.calls - before == 3  # one alone, four and one of the burst


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/call", {"arguments": {"difusivity": 1}}, 400, "difusivity: no such argument; did you mean diffusivity?"),
        ("/call", {"arguments": {"diffusivity": [1, 2]}}, 400, "diffusivity: expected the shape [], got [2]."),
        ("/call", {"arguments": {"diffusivity": float("nan")}}, 400, "diffusivity: expected finite numbers of float64"),
        ("/call", {"arguments": {"diffusivity": -0.001}}, 400, "diffusivity = -0.001: expected a finite number >= 0."),
        ("/call", {"arguments": {"width": 0.1}}, 400, "width: no result depends on it"),
        ("/call", {"argument": {}}, 400, "argument: no such section; did you mean arguments?"),
        ("/call", {"cotangents": {}}, 400, "cotangents: no such section"),
        ("/call?frame=all", {}, 400, "frame: no such option; did you mean frames?"),
        ("/call?frames=first", {}, 400, "frames=first: expected one of last, all."),
        ("/call?results=velocity", {}, 400, "velocity: no such result"),
        ("/vjp", {}, 400, "cotangents: expected that of one result at least, among concentration"),
        ("/vjp", {"cotangents": {"concentration": 1}}, 400, "the cotangent of concentration: expected the shape [12,"),
        ("/vjp?gradients=time", {"cotangents": {"mean_concentration": 1}}, 400, "time: no such gradient"),
        ("/call", {"arguments": {"diffusivity": [0] * 40000}}, 413, "the body is too large: expected at most"),
        ("/calls", {}, 404, "POST /calls: expected GET /health, GET /metadata, POST /call or POST /vjp."),
        ("/health", {}, 405, "POST /health: expected GET /health"),
    ],
)
def test_a_request_that_cannot_be_answered_gets_a_sentence(service, url, path, body, status, said):
    before = service.calls
    found, told = ask(url, path, json.dumps(body).encode())
    assert (found, [*told]) == (status, ["error"]) and told["error"].startswith(said)
    assert service.calls == before


def test_a_body_without_its_kind_or_length_is_refused(url):
    assert ask(url, "/call", kind="text/plain")[0] == 415
    endless = (b"0" * 2**16 for _ in range(100))  # in chunks, of a length that is not told
    with contextlib.suppress(OSError):  # the server stops reading, and may close before all is sent
        assert ask(url, "/call", endless)[0] == 413
    assert ask(url, "/call")[0] == 200


def test_a_server_that_is_full_or_late_says_so(service):
    with serving(service, Limits(requests=1, seconds=0.5)) as url, ThreadPoolExecutor(1) as pool:
        with closed(service):
            late = pool.submit(ask, url, "/call")
            assert service.begun.wait(SECONDS)
            status, told = ask(url, "/call")
            assert status == 503 and told["error"].startswith("1 requests are being answered, as many as may be")
            status, told = late.result()
            assert status == 504 and told["error"].startswith("no answer within 0.5 s")
        until(lambda: ask(url, "/call")[0] == 200)


# ---------------------------------------------------------------------- clients that do not mean well, or are slow


@contextlib.contextmanager
def connected(url, count=1):
    """Plain connections to a server."""
    host, port = urlsplit(url).netloc.split(":")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)), SECONDS)) for _ in range(count)]


HALF = b"POST /call HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
SLOW_BODY = b"POST /call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


def seconds_until_closed(connection, trickle=b""):
    """Seconds for which a server bears with a connection, on which a byte comes now and then, and what it has sent."""
    begun, told = time.monotonic(), b""
    connection.settimeout(0.05)
    while time.monotonic() < begun + SECONDS:
        with contextlib.suppress(TimeoutError):
            try:
                connection.sendall(trickle)
                part = connection.recv(2**16)
            except ConnectionError:
                part = b""
            if not part:
                return time.monotonic() - begun, told
            told += part
    raise AssertionError("the connection is still there")


@pytest.mark.parametrize(
    ("sent", "trickle", "status"), [(b"", b"", b""), (HALF, b"", b""), (HALF, b"x", b""), (SLOW_BODY, b" ", b" 504 ")]
)
def test_a_request_that_does_not_come_holds_no_connection(service, sent, trickle, status):
    """Neither at once nor on a connection that has had an answer."""
    with serving(service, Limits(seconds=0.5)) as url:
        for before in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with connected(url) as (connection,):
                if before:
                    connection.sendall(before)
                    assert b"ready" in connection.recv(2**16)
                if before and not sent:
                    continue  # which uvicorn ends itself
                connection.sendall(sent)
                seconds, told = seconds_until_closed(connection, trickle)
                assert seconds > 0.4 and (status in told if status else not told)  # 0.5 s, and more on a busy machine


def test_slow_bodies_take_no_place_of_others(service):
    """An answer that waited for these would take ten minutes, and nobody here waits for more than one."""
    with serving(service, Limits(requests=2, seconds=10 * SECONDS)) as url, connected(url, 12) as connections:
        for connection in connections:
            connection.sendall(SLOW_BODY)
        for _ in range(3):
            assert ask(url, "/call")[0] == 200
        assert Client(url).health()["requests"] == 0


def test_those_that_send_for_longest_give_way(service):
    """Where there are more connections than are kept, 8 for each request; a new one is always heard."""
    with serving(service, Limits(requests=1, seconds=10 * SECONDS)) as url, connected(url, 12) as connections:
        for number, connection in enumerate(connections):
            connection.sendall(SLOW_BODY if number % 2 else HALF)
            time.sleep(0.02)  # so that they are accepted in turn
        assert ask(url, "/call")[0] == 200
        for connection in connections[:4]:
            seconds_until_closed(connection)  # which time alone would not do
        connections[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):
            connections[-1].recv(1)


@pytest.mark.slow
def test_an_answer_that_is_not_taken_holds_no_connection(service, monkeypatch):
    size = 32 << 20  # of which the systems keep a few MB
    monkeypatch.setattr(service, "metadata", lambda: {"text": "a" * size})
    with serving(service, Limits(seconds=0.5)) as url, connected(url) as (connection,):
        connection.sendall(b"GET /metadata HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(3)  # it is given up after 0.5 s
        assert 0 < len(seconds_until_closed(connection)[1]) < size


KNOWN_HOSTS = [
    "localhost",
    "LOCALHOST:80",
    "127.0.0.1:8080",
    "[::1]:8080",
    "10.0.0.7",
    "app.localhost",
    "flow.example",
    "Flow.Example:443",
    socket.gethostname(),
]
STRANGE_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "",
    "flow.example@evil",
    "[evil]",
]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in KNOWN_HOSTS),
        *((host, 421) for host in STRANGE_HOSTS),
    ],
)
def test_names_of_other_machines_are_not_answered(host, status):
    """As of a page that had its own name lead here."""
    answered = []

    async def app(scope, receive, send):
        answered.append(200)

    async def send(message):
        answered.append(message.get("status"))

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())]}
    asyncio.run(AskedByName(app, ["flow.example"])(scope, None, send))
    assert answered[0] == status


def test_a_strange_host_is_told_in_a_sentence(url):
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)) as connection:
        connection.request("GET", "/metadata", headers={"Host": "evil.example:8080"})
        answer = connection.getresponse()
        told = json.loads(answer.read())["error"]
    assert answer.status == 421 and told.startswith(
        "Host: evil.example:8080: expected an address, localhost, or a name"
    )


@pytest.mark.parametrize(
    ("sent", "accept", "kind"),
    [
        ("Application/JSON; charset=utf-8", "", JSON),
        ("APPLICATION/JSON", "Application/X-NPZ", NPZ),
        ("application/json", "application/x-npz, application/json", NPZ),
        ("application/json", "*/*", JSON),
    ],
)
def test_kinds_of_bodies_are_the_same_in_any_case(url, sent, accept, kind):
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)) as connection:
        connection.request("POST", "/call", b"{}", {"Content-Type": sent, "Accept": accept})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (200, kind)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_for_all_machines_warns(host, warned, capsys, monkeypatch):
    served = []
    monkeypatch.setattr("simjax.serve.server.serve", lambda service, at, limits, names: served.append(names))
    monkeypatch.setattr("simjax.serve.service.Service", lambda *_, **__: None)
    assert main(["experiment=dye", "--host", host, "--port", "0", "--names", "a.example, b.example"]) == 0
    assert served == [["a.example", "b.example"]]
    assert ("answers every machine that reaches this one, without password" in capsys.readouterr().err) == warned


def test_a_program_that_cannot_run_is_told_and_the_server_goes_on(url, monkeypatch):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nmore")

    with monkeypatch.context() as patched:
        patched.setattr(Service, "_program", lambda *_: full)
        with pytest.raises(Refusal, match="the program cannot run: RESOURCE_EXHAUSTED: out of memory; start") as told:
            Client(url).call()
    assert told.value.status == 500 and [*Client(url).call(results=[])] == []


def test_metadata_says_what_is_served(url):
    told = Client(url).metadata()
    number, field = told["arguments"]["diffusivity"], told["results"]["concentration"]
    assert (told["what"], told["batch_sizes"]) == ("rollout", [1, 2, 4])
    assert told["times"] == pytest.approx([0, 0.1, 0.2])
    assert (number["units"], number["shape"], field["shape"]) == ("m2 s-1", [], [3, 12, 10])
    assert "width" not in told["arguments"] and "width" in told["without_effect"]
    assert (number["low"], number["allowed"]) == (0.0, "a finite number >= 0")
    assert set(told["gradients"]) <= set(told["arguments"]) and told["limits"]["seconds"] == 60
    assert told["configuration"]["grid"]["shape"] == [12, 10] and told["config_sha256"] == config_digest(dye().config)


@pytest.mark.slow
def test_steps_are_served_on_several_devices():
    service = Service(dye("mesh.x=2").config, what="step", batch=1)
    state = {}
    for number in range(4):
        question = service.question({"arguments": {**state, "time": np.asarray(0.05 * number)}}, {}, gradients=False)
        state = service.answer(question, service.evaluate([question])[0])["results"]
    last = dye().differentiable()().observed["concentration"][-1]
    np.testing.assert_allclose(state["concentration"], last, rtol=1e-12)  # rounding of four steps


@pytest.mark.slow
def test_a_signal_ends_a_server_once_its_requests_are_answered():
    words = ["experiment=dye", *SMALL, "vjp_order=0", "batch=2", "--port", "0", "--window", "1.5"]
    process = PreparedProcess([sys.executable, "-m", "simjax.serve", *words], dict(os.environ))
    told = ""

    def ready():
        nonlocal told
        told += process.stdout.read()
        assert process.poll() is None, told
        return "\n" in told

    try:
        until(ready)
        url = re.search(r"http://127.0.0.1:\d+", told)[0]
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(Client(url).call)  # waits for another one
            until(lambda: Client(url).health()["requests"] == 1)
            process.send_signal(signal.SIGTERM)
            assert answer.result()["mean_concentration"] > 0
        rest, _ = process.communicate(SECONDS)
        assert (process.returncode, rest) == (0, "")
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["what=roll"], "what=roll: expected one of rollout, step, loss."),
        (["batch=3"], "batch=3: expected a power of two up to 256, such as 8."),
        (["batch=many"], "batch=many: expected a power of two, such as 8."),
        (["vjp_order=2"], "vjp_order=2: expected 0 or 1, whether gradients are served."),
        (["mesh.x=2"], "batch=8: expected a run on one device, got a mesh of 2; write batch=1."),
        (["--seconds", "0"], "seconds=0.0: expected a positive number."),
        (["nowhere"], "nowhere: expected the folder of a run"),
    ],
)
def test_what_cannot_be_served_is_told(words, said, capsys):
    assert main(["experiment=dye", "--port", "0", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_address_that_is_taken_is_told_before_anything_is_compiled(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["experiment=dye", "--port", str(other.getsockname()[1])]) == 5
    assert "cannot be served" in capsys.readouterr().err
