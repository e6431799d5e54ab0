"""What a llama-server's log says: why it died, how it speculates, how many requests it handled. Pure text work."""

import re
import signal
from dataclasses import dataclass

_CAUSES = (
    (r"couldn't bind HTTP server socket", "the port is taken by another process"),
    (r"error while loading shared libraries: ([^:\s]+)", "it lacks the shared library {0}"),
    (r"error: invalid argument: (\S+)", "this build does not know the option {0}"),
    (r'error while handling argument "([^"]+)": (.*)', "the option {0} was refused: {1}"),
    (r"context type MTP requested but model doesn't contain MTP layers", "the model has no MTP block"),
    (
        r"(?i)out of memory|std::bad_alloc|unable to allocate|failed to allocate|cudaMalloc failed",
        "it ran out of memory: use a smaller context or fewer GPU layers",
    ),
    (r"data is not within the file bounds|failed to read tensor|invalid magic", "the model file is damaged"),
    (r"failed to open GGUF file '([^']+)'", "it cannot open {0}"),
    (r"GGML_ASSERT\(.*", "an assertion failed"),
    (r"CUDA error: (.*)", "CUDA error: {0}"),
)
_ERROR_LINE = re.compile(
    r"^(?:\d[\d.]* E |error\b|.*\berror:|.*GGML_ASSERT|setpriv: |.*terminate called)", re.IGNORECASE
)
_TIMESTAMP = re.compile(r"^\d[\d.]* [A-Z] ")
_SPECULATION = re.compile(r"adding speculative implementation '([\w-]+)'")
_SYNTHETIC = re.compile(r"synthetic acceptance: .*")


def explain_exit(exit_code: int, text: str) -> str:
    """Return why a server ended, in words where a cause is known, with its own first error lines."""
    why = _signal(exit_code)
    for pattern, words in _CAUSES:
        match = re.search(pattern, text)
        if match:
            why = words.format(*(part.strip() for part in match.groups()))
            break
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [_TIMESTAMP.sub("", line) for line in lines if _ERROR_LINE.match(line)][:3] or lines[-1:]
    return f"status {exit_code}: " + ": ".join(
        part for part in (why, " | ".join(line[:200] for line in telling)) if part
    )


def _signal(exit_code: int) -> str:
    if exit_code == -signal.SIGILL:
        return "SIGILL: the binary was built for another CPU"
    if exit_code == -signal.SIGKILL:
        return "killed, as the kernel does when memory is short"
    return f"ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else ""


def speculation_types(text: str) -> tuple[str, ...]:
    """Return the types whose implementation the server says it added, in its order."""
    return tuple(_SPECULATION.findall(text))


def speculation_line(text: str) -> str:
    """Return the server's own words about its speculation, without timestamps, or an empty string."""
    return " | ".join(
        match[0].strip()
        for line in text.splitlines()
        for match in (_SPECULATION.search(line) or _SYNTHETIC.search(line),)
        if match
    )


@dataclass(frozen=True, slots=True)
class RequestCounter:
    """A way to count generation requests in a log: one match of `pattern` each."""

    name: str
    pattern: re.Pattern[str]

    def count(self, text: str) -> int:
        """Return the number of requests that `text` shows."""
        return sum(1 for _ in self.pattern.finditer(text))


REQUEST_COUNTERS = (
    # Older builds log each finished request.
    RequestCounter(
        "request lines", re.compile(r"^.*\brequest: POST /(?:v1/)?(?:chat/)?completions?\b.*$", re.MULTILINE)
    ),
    # At -lv 4 every request for a generation logs `conv_id=` as its handler begins, whether it then succeeds, is refused
    # for its parameters or its length, or is cut by the client. Only a body that is no JSON or no chat misses that
    # line, and logs `got exception` instead. 401 and 404 log neither: they never reach the handler.
    RequestCounter(
        "conv_id lines",
        re.compile(
            r"^[\d.]+ [A-Z] srv +server_strea\w*: conv_id=.* \(empty=[01]\)$|^[\d.]+ [A-Z] srv +operator\(\): got exception: \{.*$",
            re.MULTILINE,
        ),
    ),
    # Any build; misses what is refused before a slot is launched.
    RequestCounter(
        "launched tasks", re.compile(r"^.*launch_slot_: id +\d+ \| task \d+ \| processing task", re.MULTILINE)
    ),
)


def request_counter(text: str) -> RequestCounter | None:
    """Return the best counter that this build's log supports, judged by a log that holds at least one request."""
    return next((counter for counter in REQUEST_COUNTERS if counter.count(text)), None)
