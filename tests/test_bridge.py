"""The bridge between the box's only port and the proxy's socket, run on the host as a program of its own."""

import signal
import socket
import sys
from pathlib import Path

import pytest

from agent_ab import process
from agent_ab.bubblewrap import BRIDGE
from tests.fakes.unix_server import DIGESTER, HANGER, STREAM_CLIENT, serving

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LONG_S = 60.0

HELLO = """
import http.client, sys
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
client.request("GET", "/")
print(client.getresponse().read())
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def bridged(upstream: Path, command: list[str], before: tuple[str, ...] = (), port: int = 0) -> process.Completed:
    argv = [*before, sys.executable, "-I", "-S", str(BRIDGE), str(upstream), str(port or free_port()), *command]
    return process.run(argv, env=ENV, timeout_s=LONG_S)


def client(code: str, upstream: Path, before: tuple[str, ...] = ()) -> process.Completed:
    port = free_port()
    done = bridged(upstream, [sys.executable, "-I", "-S", "-c", code, str(port)], before, port)
    assert not done.timed_out
    assert (done.exit_code, done.stderr) == (0, b"")
    return done


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    return tmp_path / "proxy.sock"


def test_the_very_first_connection_finds_a_listener(upstream: Path) -> None:
    with serving(upstream):
        assert client(HELLO, upstream).stdout == b"b'hello'\n"


def test_a_stream_arrives_chunk_by_chunk(upstream: Path) -> None:
    with serving(upstream) as events:
        done = client(STREAM_CLIENT, upstream)
        assert events.acknowledged.is_set()
    assert done.stdout == b"[b'one\\n', b'two\\n']\n"


def test_a_large_body_arrives_whole(upstream: Path) -> None:
    code = """
import hashlib, http.client, os, sys
body = os.urandom(8_000_000)
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
client.request("POST", "/", body)
print(client.getresponse().read().decode() == hashlib.sha256(body).hexdigest())
"""
    with serving(upstream):
        assert client(code, upstream).stdout == b"True\n"


def test_a_client_that_has_said_its_last_word_still_hears_the_answer(upstream: Path) -> None:
    code = """
import hashlib, os, socket, sys
body = os.urandom(3_000_000)
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.sendall(body)
client.shutdown(socket.SHUT_WR)
print(client.makefile("rb").read().decode() == hashlib.sha256(body).hexdigest())
"""
    with serving(upstream, DIGESTER):
        assert client(code, upstream).stdout == b"True\n"


MANY = """
import socket, sys
clients = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int("COUNT"))]
for client in clients:
    client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
ok = 0
for client in clients:
    ok += client.makefile("rb").read().endswith(b"hello")
    client.close()
print(ok)
"""


def test_many_connections_are_served_at_once(upstream: Path) -> None:
    with serving(upstream):
        assert client(MANY.replace("COUNT", "200"), upstream).stdout == b"200\n"


def test_more_connections_than_descriptors_wait_for_their_turn(upstream: Path) -> None:
    with serving(upstream):
        done = client(MANY.replace("COUNT", "50"), upstream, before=("prlimit", "--nofile=64", "--"))
    assert done.stdout == b"50\n"


def test_a_client_that_leaves_in_mid_stream_is_noticed_upstream(upstream: Path) -> None:
    code = """
import http.client, sys
client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
client.request("GET", "/endless")
client.getresponse().read(10)
client.close()
while True:
    other = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    other.request("GET", "/cut")
    if other.getresponse().read() == b"yes":
        break
print("noticed")
"""
    with serving(upstream):
        assert client(code, upstream).stdout == b"noticed\n"


def test_an_upstream_that_leaves_is_the_end_of_the_clients_stream(upstream: Path) -> None:
    code = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.sendall(b"x")
print(client.recv(1))
"""
    with serving(upstream, HANGER):
        assert client(code, upstream).stdout == b"b''\n"


def test_without_a_proxy_the_command_runs_and_its_connections_end(upstream: Path) -> None:
    code = "import socket, sys\nprint(socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)); sys.exit(5)"
    port = free_port()
    done = bridged(upstream, [sys.executable, "-I", "-S", "-c", code, str(port)], port=port)
    assert (done.exit_code, done.stdout) == (5, b"b''\n")
    assert str(upstream) in done.stderr.decode()


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 77", 77), ("kill -KILL $$", 128 + signal.SIGKILL), ("kill -TERM $$", 128 + signal.SIGTERM)],
)
def test_the_status_of_the_command_is_passed_on(script: str, status: int, upstream: Path) -> None:
    assert bridged(upstream, ["sh", "-c", script]).exit_code == status


def test_a_command_that_does_not_exist_is_127(upstream: Path) -> None:
    done = bridged(upstream, ["/no/such/command"])
    assert done.exit_code == 127
    assert b"/no/such/command" in done.stderr


def test_input_and_output_belong_to_the_command(upstream: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(BRIDGE), str(upstream), str(free_port()), "cat"]
    done = process.run(argv, env=ENV, timeout_s=LONG_S, given=process.Given(b"passed through"))
    assert done.stdout == b"passed through"


def test_signals_that_python_ignores_are_not_ignored_by_the_command(upstream: Path) -> None:
    done = bridged(upstream, ["sh", "-c", "grep SigIgn /proc/self/status"])
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))


def test_the_end_of_the_command_is_the_end_of_the_bridge(upstream: Path) -> None:
    code = "import os, sys\nif os.fork() == 0: import time; time.sleep(600)\nprint(os.getppid())"
    done = bridged(upstream, [sys.executable, "-I", "-S", "-c", code])
    assert done.exit_code == 0
    assert not process.exists(int(done.stdout))
