"""The witness's mitmproxy hooks: pass on, record, refuse. Every decision is made in ledger.py.

    PYTHONPATH=<folder that holds proxy/> AGENT_AB_SERVER_KEY=... \\
        mitmdump --mode reverse:http://127.0.0.1:PORT --listen-host 127.0.0.1 --listen-port PORT \\
        -s proxy/addon.py --set agent_ab_settings=settings.json

Works with mitmproxy 11 and 12. An exception here means lost evidence and ends the process: mitmproxy itself would log
it and let the traffic go on unrecorded.
"""

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TextIO

import mitmproxy.proxy.server
from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader
from mitmproxy.version import VERSION

from proxy.ledger import Ledger, Passage, Refusal
from proxy.pins import Json, Settings, dumps
from proxy.wire import Reply

OPTION = "agent_ab_settings"
SILENCE_S = 24 * 3600
"""A reply may be silent for so long; mitmproxy's own 600 s would cut a slow generation that is not streamed."""
SETTLE_S = 2.0
"""How long a request waits for the one before it to end: a client that gave up asks again before we notice."""
CONNECTIONS = 32
"""Most connections from the box at a time; one more is closed at once."""
IN_FLIGHT_BYTES = 80_000_000
"""Most bytes from the box that wait for an answer, over all connections; the largest request that is accepted is 64 MB."""
LOST_EVIDENCE = 70
"""Exit status when an exchange could not be recorded."""


class evidence(ContextDecorator):
    """End the process at once when the block raises: no byte may pass unrecorded."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Pass on SystemExit and cancellation; anything else is the end."""
        if isinstance(error, Exception):
            traceback.print_exception(error, file=sys.stderr)
            sys.stderr.write(f"agent_ab: evidence lost: {kind.__name__ if kind else ''}: {error}\n")
            sys.stderr.flush()
            # sys.exit would unwind through the event loop, and other connections would move meanwhile.
            os._exit(LOST_EVIDENCE)


class Witness:
    """Records every exchange of one attempt."""

    def __init__(self) -> None:
        """Begin before the settings are known."""
        self._settings: Settings | None = None
        self._ledger: Ledger | None = None
        self._log: TextIO | None = None
        self._socket: asyncio.AbstractServer | None = None
        self._key = os.environ.get("AGENT_AB_SERVER_KEY", "")
        self._begin = time.monotonic()
        self._passages: dict[str, Passage] = {}
        self._answered: set[str] = set()

    # --- life ---

    def load(self, loader: Loader) -> None:
        """Declare the option."""
        loader.add_option(OPTION, str, "", "Path of the JSON file with this attempt's settings.")

    def configure(self, updated: set[str]) -> None:
        """Read the settings; an exception here ends mitmdump at start-up."""
        path = getattr(ctx.options, OPTION)
        if OPTION in updated and path:
            self._settings = Settings(**json.loads(Path(path).read_text(encoding="utf-8")))
        if "tcp_timeout" not in ctx.options:
            # Before 12.2.1 the limit is a constant of the module.
            mitmproxy.proxy.server.TCP_TIMEOUT = SILENCE_S

    async def running(self) -> None:
        """Open the log and the unix socket; the opening line says that all is ready."""
        with evidence():
            if self._settings is None:
                raise ValueError(f"no settings: --set {OPTION}=FILE is missing")
            self._ledger = Ledger(self._settings, [self._key])
            self._socket = await asyncio.start_unix_server(_pump, self._settings.socket)
            # The box's user is not ours; who may come near is decided by the directory.
            Path(self._settings.socket).chmod(0o666)
            exclusive = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._log = os.fdopen(os.open(self._settings.exchanges, exclusive, 0o600), "w", encoding="ascii")
            self._write(self._ledger.start(VERSION, datetime.now(UTC).isoformat(timespec="milliseconds")))

    @evidence()
    def done(self) -> None:
        """Record what is still open, write the closing line, take the socket away."""
        if self._socket is not None and self._settings is not None:
            self._socket.close()
            Path(self._settings.socket).unlink(missing_ok=True)
        if self._log is not None and self._ledger is not None:
            for passage in self._ledger.open:
                self._write(self._ledger.close(passage, "proxy stopped"))
            self._write(self._ledger.end())
            self._log.close()
        self._log = self._socket = None

    # --- traffic ---

    @evidence()
    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Let nothing in before the log is open or after it is closed."""
        if self._log is None:
            flow.kill()

    async def request(self, flow: http.HTTPFlow) -> None:
        """Admit or refuse a complete request, and rewrite an admitted one."""
        begin = time.monotonic()
        while self._ledger is not None and self._ledger.busy and time.monotonic() - begin < SETTLE_S:
            await asyncio.sleep(0.01)
        with evidence():
            self._decide(flow)

    def _decide(self, flow: http.HTTPFlow) -> None:
        if self._log is None or self._ledger is None or self._ledger.full:
            flow.kill()
            return
        request = flow.request
        encoding = request.headers.get("content-encoding", "")
        decision = self._ledger.admit(
            # Not `request.method`, which is in capitals whatever was sent.
            request.data.method.decode("ascii", "replace"),
            _target(request),
            request.raw_content or b"",
            encoding,
            self._now(),
        )
        if isinstance(decision, Refusal):
            self._answered.add(flow.id)
            self._write(decision.line)
            headers = {"content-type": "application/json", "connection": "close"}
            flow.response = http.Response.make(decision.status, decision.body, headers)
            return
        self._passages[flow.id] = decision
        if decision.sent and self._settings and self._settings.begun:
            with Path(self._settings.begun).open("ab") as begun:
                begun.write(b".")
        body = decision.sent.body if decision.sent else b""
        request.raw_content = body
        request.headers = self._headers(f"{request.host}:{request.port}", len(body) if decision.sent else None)

    @evidence()
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Pass the body on chunk by chunk, recording each; mitmproxy would hold an event stream back otherwise."""
        passage = self._passages.get(flow.id)
        if passage is None or flow.response is None:
            return
        headers = flow.response.headers
        reply = Reply(flow.response.status_code, headers.get("content-type", ""), headers.get("content-encoding", ""))
        passage.reply = reply
        length = headers.get("content-length", "")
        passage.length = int(length) if length.isascii() and length.isdigit() else None
        # One connection per exchange, on both sides: none is idle when the server's keep-alive runs out.
        headers["connection"] = "close"
        headers.pop("keep-alive", None)

        @evidence()
        def record(chunk: bytes) -> bytes:
            if chunk:
                passage.feed(chunk, self._now())
            return chunk

        flow.response.stream = record

    @evidence()
    def response(self, flow: http.HTTPFlow) -> None:
        """Record a response that came to its end."""
        self._finish(flow, None)
        self._answered.discard(flow.id)

    @evidence()
    def error(self, flow: http.HTTPFlow) -> None:
        """Record what broke: the client left, the server died, or the request never became complete."""
        message = flow.error.msg if flow.error else "unknown error"
        if not flow.client_conn.connected:
            message = "client closed"
        if flow.id in self._passages:
            self._finish(flow, message)
        elif flow.id not in self._answered and self._log is not None and self._ledger and not self._ledger.full:
            self._write(self._ledger.lost(flow.request.method, _target(flow.request), message, self._now()))
        self._answered.discard(flow.id)

    def _finish(self, flow: http.HTTPFlow, broken: str | None) -> None:
        passage = self._passages.pop(flow.id, None)
        # After the closing line there is nothing to write: `done` has recorded what was open.
        if passage is not None and self._log is not None and self._ledger is not None:
            self._write(self._ledger.close(passage, broken))

    def _headers(self, host: str, length: int | None) -> http.Headers:
        # Nothing else that the agent sends reaches the server, so nothing else can differ between the arms.
        fields = {"host": host, "accept": "*/*", "connection": "close"}
        if self._key:
            fields["authorization"] = f"Bearer {self._key}"
        if length is not None:
            fields |= {"content-type": "application/json", "content-length": str(length)}
        return http.Headers([(name.encode(), value.encode()) for name, value in fields.items()])

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _write(self, line: Json) -> None:
        assert self._log is not None
        text = dumps(line) + "\n"
        self._log.write(text)
        self._log.flush()
        if self._ledger is not None:
            self._ledger.count(len(text))


def _target(request: http.Request) -> str:
    """Return the request's target as it was sent: a whole URL or host when the client asked for another place."""
    scheme = f"{request.scheme}://" if request.path else ""
    return f"{scheme}{request.authority}{request.path}" if request.authority else request.path


_waiting: dict[asyncio.StreamWriter, int] = {}
"""Each connection from the box, and how many bytes it has sent since its last answer."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Join one connection of the unix socket to our own port."""
    if len(_waiting) >= CONNECTIONS:
        writer.close()
        return
    _waiting[writer] = 0
    try:
        await _join(reader, writer)
    finally:
        del _waiting[writer]


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    def sent(size: int) -> bool:
        _waiting[writer] += size
        return sum(_waiting.values()) <= IN_FLIGHT_BYTES

    def answered(_size: int) -> bool:
        _waiting[writer] = 0
        return True

    try:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", ctx.options.listen_port)
    except OSError:
        writer.close()
        return
    sending = asyncio.create_task(_copy(reader, upstream_writer, sent))
    try:
        await _copy(upstream_reader, writer, answered)
    finally:
        sending.cancel()
        upstream_writer.close()
        writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, may: Callable[[int], bool]) -> None:
    # A peer that is gone ends the copy; its end is passed on, and the other side decides.
    with suppress(OSError):
        while data := await source.read(65536):
            if not may(len(data)):
                sink.close()
                return
            sink.write(data)
            await sink.drain()
        sink.write_eof()


addons = [Witness()]
