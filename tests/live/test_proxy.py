"""The real mitmdump between a real client and a small real server that produces each fault on purpose."""

import hashlib
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_ab import process, proxy
from agent_ab.errors import ApparatusError
from tests.fakes import model_server as fake
from tests.test_proxy import program, settings

Line = dict[str, Any]
SERVER = Path(fake.__file__)
CHAT = "/chat/completions"


def until(condition: Callable[[], bool], what: str, limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def chat(scenario: str, **more: Any) -> dict[str, Any]:
    return {"model": "local", "messages": [{"role": "user", "content": scenario}], "stream": True, **more}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Bench:
    """A proxy in front of the fake server, and a client."""

    witness: proxy.Proxy
    client: httpx.Client
    upstream: str
    exchanges: Path

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Return the answer once its line is written: the last byte of a body can overtake the line."""
        before = len(self.lines())
        response = self.client.request(method, self.witness.url + path, **more)
        until(lambda: len(self.lines()) > before, "the line is written")
        return response

    def post(self, scenario: str, **more: Any) -> httpx.Response:
        return self.send("POST", CHAT, json=chat(scenario, **more))

    def lines(self) -> list[Line]:
        text = self.exchanges.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def last(self) -> Line:
        return self.lines()[-1]

    def seen(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get(self.upstream + "/seen").json()
        return found

    def raw(self, data: bytes) -> bytes:
        """Return what the proxy answers to exact bytes."""
        with socket.create_connection(("127.0.0.1", int(self.witness.url.split(":")[2].split("/")[0])), 20) as line:
            before = len(self.lines())
            line.sendall(data)
            answer = line.recv(65536)
            until(lambda: len(self.lines()) > before, "the line is written")
            return answer


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("model") / "log"
    with process.started([sys.executable, str(SERVER), str(port)], env={}, log=log, name="fake"):
        until(lambda: answers(port), "the fake server answers")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(directory: Path, upstream: str, **changes: Any) -> Iterator[Bench]:
    exchanges = directory / "exchanges.jsonl"
    given = settings(upstream=upstream, **changes)
    with (
        proxy.started(
            given, log=directory / "proxy.log", exchanges=exchanges, socket=directory / "proxy.sock"
        ) as witness,
        httpx.Client(trust_env=False, timeout=20) as client,
    ):
        witness.wait_ready()
        yield Bench(witness, client, upstream, exchanges)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Iterator[Bench]:
    with serving(tmp_path_factory.mktemp("proxy"), upstream) as bench:
        yield bench
        bench.post("hello")
        bench.witness.stop()
        assert proxy.read_log(bench.exchanges).exchanges


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_client_gets_the_servers_bytes_however_they_were_cut(bench: Bench, size: int) -> None:
    assert bench.post(f"split:{size}").content == b"".join(fake.events("hello"))
    assert bench.last()["content"] == fake.TEXT


@pytest.mark.parametrize("scenario", ["crlf", "comments", "tools", "reasoning", "no-done", "no-usage-chunk"])
def test_every_shape_of_stream_passes_unchanged_and_is_recorded(bench: Bench, scenario: str) -> None:
    assert bench.post(scenario).content == b"".join(fake.events(scenario))
    line = bench.last()
    assert (line["status"], line["error"], line["streamed"]) == (200, None, True)
    assert line["finish_reason"] and line["timings"]


def test_a_count_that_no_server_can_have_makes_the_log_no_evidence(tmp_path: Path, upstream: str) -> None:
    with serving(tmp_path, upstream) as bench:
        assert bench.post("counts-wildly").content == b"".join(fake.events("counts-wildly"))
        bench.witness.stop()
        with pytest.raises(ApparatusError, match=r"line 2: exchange\.timings\.predicted_n: Input should be less than"):
            proxy.read_log(bench.exchanges)


def test_an_answer_that_is_not_streamed_is_recorded(bench: Bench) -> None:
    assert bench.post("hello", stream=False).json() == fake.whole()
    line = bench.last()
    assert (line["content"], line["streamed"], line["timings"]["draft_n"]) == (fake.TEXT, False, 6)


def test_text_completions_pass(bench: Bench) -> None:
    bench.send("POST", "/completions", json={"prompt": "text", "stream": True})
    assert (bench.last()["path"], bench.last()["content"]) == ("/v1/completions", "Once upon")


@pytest.mark.parametrize("by_socket", [False, True], ids=["tcp", "unix"])
def test_the_first_byte_reaches_the_client_before_the_server_sends_the_second(bench: Bench, by_socket: bool) -> None:
    transport = httpx.HTTPTransport(uds=str(bench.witness.socket)) if by_socket else None
    base = "http://proxy/v1" if by_socket else bench.witness.url
    with (
        httpx.Client(transport=transport, timeout=20, trust_env=False) as client,
        client.stream("POST", base + CHAT, json=chat("gated")) as response,
    ):
        chunks = response.iter_raw()
        first = next(chunks)
        bench.client.post(bench.upstream + "/release")
        assert first + b"".join(chunks) == b"".join(fake.events("gated"))
    line = bench.last()
    assert line["started_s"] <= line["first_byte_s"] <= line["last_byte_s"]


def test_only_the_proxys_own_headers_reach_the_server(bench: Bench) -> None:
    theirs = {"authorization": "Bearer agents-key", "cookie": "c=agents-cookie", "accept-encoding": "gzip, zstd"}
    bench.send("POST", CHAT, json=chat("hello"), headers=theirs)
    headers = {name.lower(): value for name, value in bench.seen()[-1]["headers"].items()}
    assert set(headers) == {"host", "accept", "connection", "authorization", "content-type", "content-length"}
    assert headers["authorization"] == "Bearer the-key"
    assert headers["host"] == bench.upstream.removeprefix("http://")


def test_both_digests_are_of_the_exact_bytes(bench: Bench) -> None:
    body = json.dumps(chat("hello"), indent=1).encode()
    bench.send("POST", CHAT, content=iter([body[:9], body[9:]]))
    line, seen = bench.last(), bench.seen()[-1]["body"]
    assert line["agent_sha256"] == hashlib.sha256(body).hexdigest()
    assert line["server_sha256"] == hashlib.sha256(seen.encode()).hexdigest()
    assert json.loads(seen) == line["request"]
    assert line["request"]["seed"] == line["pinned"]["seed"] == 4242
    bench.send("POST", CHAT, content=seen.encode())
    again = bench.last()
    assert (again["agent_sha256"], again["server_sha256"], again["pinned"]) == (line["server_sha256"],) * 2 + ({},)


def test_secrets_pass_but_never_reach_the_disk(bench: Bench) -> None:
    assert b"a word and the-key" in bench.post("echo:a word and the-key").content
    assert bench.last()["content"] == "a word and <secret>"
    written = bench.exchanges.read_bytes() + (bench.exchanges.parent / "proxy.log").read_bytes()
    for secret in (b"the-key", b"agents-key", b"agents-cookie"):
        assert secret not in written


@pytest.mark.parametrize(
    ("scenario", "status", "error"),
    [
        ("http-400", 400, "the request exceeds the available context size"),
        ("http-500", 500, fake.MISMATCH),
        ("html", 200, "the response is not JSON: '<html>'"),
        ("error-midstream", 200, fake.MISMATCH),
        ("eof", 200, "the stream ended without a finish reason"),
    ],
)
def test_an_answer_that_went_wrong_passes_and_its_error_is_recorded(
    bench: Bench, scenario: str, status: int, error: str
) -> None:
    assert bench.post(scenario).status_code == status
    assert (bench.last()["status"], bench.last()["error"]) == (status, error)


def test_a_connection_that_the_server_cuts_in_mid_stream_is_recorded(bench: Bench) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        bench.post("cut")
    line = bench.last()
    assert (line["status"], line["finish_reason"]) == (200, None)
    assert fake.TEXT.startswith(line["content"]) and line["content"]
    assert "without sending complete message body" in line["error"]


def test_a_server_that_closes_without_an_answer_is_recorded(bench: Bench) -> None:
    assert bench.post("refuse").status_code == 502
    assert (bench.last()["status"], bench.last()["error"]) == (None, "server closed connection")


@pytest.mark.parametrize("by_socket", [False, True], ids=["tcp", "unix"])
def test_a_client_that_leaves_in_mid_stream_ends_the_generation_at_once(bench: Bench, by_socket: bool) -> None:
    transport = httpx.HTTPTransport(uds=str(bench.witness.socket)) if by_socket else None
    base = "http://proxy/v1" if by_socket else bench.witness.url
    before = len(bench.seen())
    with (
        httpx.Client(transport=transport, timeout=20, trust_env=False) as client,
        client.stream("POST", base + CHAT, json=chat("endless")) as response,
    ):
        chunks = response.iter_raw()
        next(chunks)
    until(lambda: bool(bench.seen()[before]["cut"]), "the server noticed")
    until(lambda: bench.last()["error"] == "client closed", "the exchange is recorded")
    assert bench.last()["content"].startswith("xxx")


def test_a_request_beside_another_never_reaches_the_server(bench: Bench) -> None:
    with bench.client.stream("POST", bench.witness.url + CHAT, json=chat("endless")) as response:
        chunks = response.iter_raw()
        next(chunks)
        before = len(bench.seen())
        assert bench.post("hello").status_code == 409
        assert bench.last()["reason"].startswith("concurrent")
        assert len(bench.seen()) == before
        state = bench.witness.poll()
        assert state.begun == state.turns + 1
    until(lambda: bench.last().get("error") == "client closed", "the first one is recorded")
    assert bench.post("hello").status_code == 200


def test_a_client_that_gives_up_and_asks_again_at_once_is_answered(bench: Bench) -> None:
    for _ in range(5):
        with bench.client.stream("POST", bench.witness.url + CHAT, json=chat("endless")) as response:
            next(response.iter_raw())
        assert bench.post("hello").status_code == 200


@pytest.mark.parametrize("method", ["post", "Post"])
def test_another_spelling_of_post_never_reaches_the_server(bench: Bench, method: str) -> None:
    before = len(bench.seen())
    answer = bench.raw(f"{method} /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert answer.startswith(b"HTTP/1.1 403")
    assert (bench.last()["reason"], bench.last()["method"]) == ("path", method)
    assert len(bench.seen()) == before


def test_half_sent_bodies_are_cut_when_they_are_more_than_one_request_may_be(bench: Bench) -> None:
    path = str(bench.witness.socket)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 63000000\r\n\r\n"
    lines = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    cut = 0
    try:
        for line in lines:
            line.settimeout(20)
            line.connect(path)
            try:
                line.sendall(head + b" " * 50_000_000)
            except OSError:
                cut += 1
    finally:
        for line in lines:
            line.close()
    assert cut >= 1
    until(lambda: bench.last().get("detail") == "client closed", "the connections are closed")
    assert bench.post("hello").status_code == 200


def test_more_connections_than_an_agent_needs_are_closed(bench: Bench) -> None:
    lines = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    try:
        for line in lines:
            line.settimeout(20)
            line.connect(str(bench.witness.socket))
        # The first ones stay open and silent; the last one was closed.
        assert lines[-1].recv(1) == b""
    finally:
        for line in lines:
            line.close()


def test_the_model_list_passes_and_is_no_exchange(bench: Bench) -> None:
    turns = bench.witness.poll().turns
    assert bench.send("GET", "/models").json()["data"] == [{"id": "local"}]
    assert (bench.last()["kind"], bench.last()["status"]) == ("models", 200)
    assert bench.witness.poll().turns == turns


@pytest.mark.parametrize(
    ("request_line", "status", "reason"),
    [
        ("GET /slots HTTP/1.1", 403, "path"),
        ("POST /v1/chat/completions?a=1 HTTP/1.1", 403, "path"),
        ("GET http://127.0.0.1/v1/models HTTP/1.1", 403, "path"),
        ("CONNECT 127.0.0.1:443 HTTP/1.1", 400, "path"),
        ("POST /v1/chat/completions HTTP/1.1", 400, "unreadable"),
        ("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99000000", 413, "unreadable"),
        ("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: minus", 400, "unreadable"),
    ],
)
def test_anything_else_is_refused_recorded_and_never_reaches_the_server(
    bench: Bench, request_line: str, status: int, reason: str
) -> None:
    before = len(bench.seen())
    answer = bench.raw(f"{request_line}\r\nHost: elsewhere\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert (bench.last()["kind"], bench.last()["reason"]) == ("refused", reason)
    assert len(bench.seen()) == before


def test_a_request_without_a_host_passes(bench: Bench) -> None:
    assert b" 200 " in bench.raw(b"GET /v1/models HTTP/1.0\r\n\r\n")


def test_the_log_is_private_and_the_socket_is_open_to_the_box(bench: Bench) -> None:
    assert bench.exchanges.stat().st_mode & 0o777 == 0o600
    assert bench.witness.socket.stat().st_mode & 0o777 == 0o666


def test_the_state_follows_the_log(bench: Bench) -> None:
    before = bench.witness.poll()
    bench.post("hello")
    after = bench.witness.poll()
    assert (after.turns, after.tokens) == (before.turns + 1, before.tokens + fake.TIMINGS["predicted_n"])
    assert after.alive and not after.identity_refused


def test_stopping_in_mid_stream_records_what_was_open_and_closes_the_log(tmp_path: Path, upstream: str) -> None:
    with serving(tmp_path, upstream) as bench:
        bench.post("hello")
        bench.send("GET", "/models")
        with bench.client.stream("POST", bench.witness.url + CHAT, json=chat("endless")) as response:
            chunks = response.iter_raw()
            next(chunks)
            bench.witness.stop()
        assert not bench.witness.poll().alive
        assert not bench.witness.socket.exists()
        log = proxy.read_log(bench.exchanges)
    assert [exchange.error for exchange in log.exchanges] == [None, "proxy stopped"]
    assert bench.last() == {"kind": "end", "exchanges": 2, "refused": 0, "models": 1}


def test_a_differing_first_request_never_reaches_the_server(tmp_path: Path, upstream: str) -> None:
    with serving(tmp_path, upstream, expected_first="0" * 64) as bench:
        before = len(bench.seen())
        assert not bench.witness.poll().identity_refused
        assert [bench.post("hello").status_code for _ in range(2)] == [409, 409]
        assert bench.witness.poll().identity_refused
        assert len(bench.seen()) == before
        bench.witness.stop()
        log = proxy.read_log(bench.exchanges)
    assert log.exchanges == ()
    assert [(refused.reason, refused.request) for refused in log.refused] == [
        ("identity", chat("hello")),
        ("identity", None),
    ]


def wrapper(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a shell script in front of mitmdump; `MITMDUMP` in its text is the real one."""
    real = shlex.quote(proxy.find_mitmdump(os.environ))
    monkeypatch.setenv("AGENT_AB_MITMDUMP", str(program(directory / "wrapped", text.replace("MITMDUMP", real))))


def test_an_addon_that_fails_to_import_is_reported_with_the_reason(
    tmp_path: Path, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = 'for a in "$@"; do case "$a" in */addon.py) echo "import no_such_module" >> "$a";; esac; done'
    wrapper(tmp_path, monkeypatch, f'#!/bin/sh\n{broken}\nexec MITMDUMP "$@"\n')
    with pytest.raises(ApparatusError, match="No module named 'no_such_module'"), serving(tmp_path, upstream):
        pass


def test_a_port_that_another_process_took_meanwhile_is_replaced(
    tmp_path: Path, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "import os, pathlib, socket, sys",
        f"taken = pathlib.Path({str(tmp_path / 'taken')!r})",
        "if not taken.exists():",
        "    port = sys.argv[sys.argv.index('--listen-port') + 1]",
        "    taken.write_text(port)",
        "    line = socket.create_server(('127.0.0.1', int(port)))",
        "    line.set_inheritable(True)",
        "os.execv(sys.argv[1], sys.argv[1:])",
    )
    (tmp_path / "take.py").write_text("\n".join(lines), encoding="utf-8")
    argv = shlex.join([sys.executable, str(tmp_path / "take.py")])
    wrapper(tmp_path, monkeypatch, f'#!/bin/sh\nexec {argv} MITMDUMP "$@"\n')
    with serving(tmp_path, upstream) as bench:
        assert bench.post("hello").status_code == 200
        assert (tmp_path / "taken").read_text(encoding="utf-8") not in bench.witness.url
        bench.witness.stop()
        assert len(proxy.read_log(bench.exchanges).exchanges) == 1


def test_a_line_that_cannot_be_written_ends_the_proxy_and_the_log_is_no_evidence(
    tmp_path: Path, upstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper(tmp_path, monkeypatch, '#!/bin/bash\nulimit -f 100\nexec MITMDUMP "$@"\n')
    with serving(tmp_path, upstream) as bench:
        with pytest.raises(httpx.TransportError):
            bench.post("hello", padding="x" * 200_000)
        until(lambda: not bench.witness.poll().alive, "the proxy is gone")
        with pytest.raises(ApparatusError, match="ends in the middle of a line"):
            proxy.read_log(bench.exchanges)
        bench.witness.stop()
    assert not bench.witness.socket.exists()
    assert "evidence lost: OSError" in (tmp_path / "proxy.log").read_text(encoding="utf-8")
