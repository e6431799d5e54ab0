"""Runs OpenCode in a box: configuration and instruction in, JSON events out.

Everything that would leave the box, or send a request besides the conversation, is off: updates, sharing, title
generation, plugins and their npm installation, LSP downloads, the model list, web tools, agents below it (they run side by
side, and the server has one slot). The configuration lies outside of the workspace; one in the workspace is not read.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from agent_ab.agents import clock, opencode_install
from agent_ab.agents.job import LOG_BYTES, MODEL, AgentJob, Tick, ended, require_start, watching_the_start
from agent_ab.agents.opencode_events import LEFT, Story
from agent_ab.config import Agent
from agent_ab.model import AgentEnd, AgentRun, Event, Json, Observer, SandboxKind
from agent_ab.sandbox import Box, Mount

PROGRAM, FOLDER = "/opt/opencode", "/opt/agent"
TOOLS = ("bash", "edit", "glob", "grep", "read", "skill", "todowrite", "write")
SLIM_TOOLS = ("bash", "edit", "read", "write")
PERMITTED = ("doom_loop", "external_directory")
"""No tools, but questions that nobody is there to answer."""
SLIM_PROMPT = """You repair code in a git repository by calling tools. Nobody answers questions.

Read before you change anything. Make the smallest change that carries out the whole instruction, and keep to the style of
the file. Run the tests after a change. When all is done, say so in one sentence.
"""
ENVIRONMENT = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_CLAUDE_CODE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_EMBEDDED_WEB_UI": "1",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
    "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
    "OPENCODE_PURE": "1",
}
# Its children outlive OpenCode for the moment in which they are named; then the box ends and they with it. 1 is the box's
# first process, $$ this shell.
NAME_WHAT_IS_LEFT = f"""
"$@"; status=$?
for folder in /proc/[0-9]*; do
  pid=${{folder#/proc/}}
  [ "$pid" = 1 ] || [ "$pid" = $$ ] && continue
  line=$(tr '\\0' ' ' 2>/dev/null <"$folder/cmdline") && [ "$line" ] && echo "{LEFT}$line"
done
exit $status"""


def prepare(settings: Agent, observer: Observer) -> None:
    """Find or install OpenCode, before anything else is started. Raises UserError."""
    opencode_install.find(settings.binary, settings.version, observer)
    clock.prepare(settings.clock)


def identity(settings: Agent) -> dict[str, Json]:
    """Return which OpenCode runs and with which configuration."""
    program = _find(settings)
    tried = opencode_install.TRIED
    config = json.dumps(configuration(settings, "", 0, ""), sort_keys=True)
    return {
        "version": program.version,
        "sha256": program.sha256,
        "source": program.source,
        "remark": ""
        if program.version == tried
        else f"OpenCode {program.version}; this adapter was tried with {tried}",
        "permission": permission(settings),
        "environment": {**_environment(settings, FOLDER), **clock.environment(settings.clock)},
        "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
        **clock.identity(settings.clock),
    }


def configuration(settings: Agent, base_url: str, context: int, workspace: str) -> dict[str, Json]:
    """Return `opencode.json`; `context` in tokens, 0 when it is unknown."""
    model: dict[str, Json] = {
        "name": MODEL,
        "tool_call": True,
        "limit": {"context": context, "output": settings.response_budget},
    }
    if settings.reasoning_effort:
        model |= {"reasoning": True, "options": {"reasoningEffort": settings.reasoning_effort}}
    # The time limit is ours: a request that OpenCode gives up and repeats would meet the first one at the server.
    options = {"baseURL": base_url, "apiKey": "none", "timeout": False, "headerTimeout": False, "chunkTimeout": False}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": MODEL, "options": options, "models": {MODEL: model}}
    build: dict[str, Json] = {"steps": settings.max_turns}
    if settings.prompt or settings.slim:
        build["prompt"] = settings.prompt or SLIM_PROMPT
    return {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "plugin": [],
        "mcp": {},
        "lsp": False,
        "formatter": False,
        # The task's own guidance is read, although no other file of the workspace configures OpenCode.
        "instructions": [f"{workspace}/AGENTS.md"],
        "enabled_providers": [MODEL],
        "model": f"{MODEL}/{MODEL}",
        "small_model": f"{MODEL}/{MODEL}",
        "provider": {MODEL: provider},
        "permission": permission(settings),
        "agent": {"build": build, "title": {"disable": True}},
    }


def permission(settings: Agent) -> dict[str, str]:
    """Return what OpenCode may do without asking; it offers the model no tool that it may never use."""
    tools = SLIM_TOOLS if settings.slim else TOOLS
    # `edit` is the permission of the tool `write`, too.
    return {"*": "deny", **{name: "allow" for name in (*tools, *PERMITTED) if name != "write"}}


def run(job: AgentJob, tick: Tick) -> AgentRun:
    """Run OpenCode until it ends, hangs after its work is done, or its time is up.

    Raises ApparatusError when the box does not start, when OpenCode asks the model nothing within `startup_limit_s`, and
    when it fails before it has asked anything.
    """
    story = Story()
    with _installed(job) as (box, argv, env):
        watch = _Watch(job, story, watching_the_start(job, tick))
        try:
            result = box.run(
                argv,
                cwd=job.workspace,
                env=env,
                timeout_s=job.settings.time_limit_s,
                # As an argument it would reach the model in quotation marks.
                stdin=job.task.instruction.encode(),
                cap_bytes=LOG_BYTES,
                output=job.log,
                tick=watch,
            )
        except _HungError as hung:
            note = story.words(cut_off=False, hung=True)
            return AgentRun(AgentEnd.COMPLETED, None, hung.finished_s, job.settings.time_limit_s, note)
    watch.read()
    require_start(job, result)
    cut_off = result.timed_out or result.exit_code > 128
    return ended(job, result, story.words(cut_off=cut_off, hung=result.timed_out and story.finished))


class _HungError(Exception):
    """OpenCode has finished its work and does not exit (upstream #17516, #42268)."""

    def __init__(self, finished_s: float) -> None:
        super().__init__(f"finished after {finished_s:.0f} s")
        self.finished_s = finished_s


class _Watch:
    """Follows the growing log, and ends a run that is over but does not end itself."""

    def __init__(self, job: AgentJob, story: Story, tick: Tick) -> None:
        self._job, self._story, self._tick = job, story, tick
        self._offset, self._tail = 0, b""
        self._moves, self._moved_s = 0, 0.0
        self._requests = 0

    def __call__(self, elapsed_s: float) -> None:
        self._tick(elapsed_s)
        self.read()
        if self._story.moves != self._moves:
            self._moves, self._moved_s = self._story.moves, elapsed_s
            self._requests = self._asked() if self._story.finished else 0
        elif self._story.finished and elapsed_s - self._moved_s > self._job.settings.exit_limit_s:
            if self._asked() == self._requests:
                raise _HungError(self._moved_s)
            self._story.moves += 1

    def _asked(self) -> int:
        return self._job.requests() if self._job.requests else 0

    def read(self) -> None:
        """Take what was added to the log since the last look."""
        try:
            with self._job.log.open("rb") as log:
                log.seek(self._offset)
                data = log.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            self._story.take(line.decode("utf-8", "replace"))


@contextmanager
def _installed(job: AgentJob) -> Iterator[tuple[Box, list[str], dict[str, str]]]:
    """Give the box with OpenCode and its configuration in it, the command line, and the environment."""
    with tempfile.TemporaryDirectory(prefix="agent-ab-agent-") as name:
        private = Path(name)
        program = _find(job.settings).binary
        mounts = (*job.box.mounts, Mount(program, PROGRAM), Mount(private, FOLDER))
        box = clock.shown(job.settings.clock, replace(job.box, mounts=mounts))
        _write_config(
            private / "opencode", configuration(job.settings, job.base_url, job.context, box.inside(job.workspace))
        )
        private.chmod(0o755)
        box.own()
        argv = [box.inside(program), "run", "--format", "json", "--print-logs", "--log-level", "INFO"]
        if box.settings.kind is SandboxKind.BWRAP:
            argv = ["/bin/sh", "-c", NAME_WHAT_IS_LEFT, "sh", *argv]
        env = _environment(job.settings, box.inside(private)) | clock.environment(job.settings.clock, box)
        yield box, argv, env


def _write_config(folder: Path, config: Json) -> None:
    """Write the configuration directory; OpenCode would install its plugin library there, unless it looks installed."""
    (folder / "node_modules").mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (folder / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def _environment(settings: Agent, folder: str) -> dict[str, str]:
    return {
        **ENVIRONMENT,
        # Without it OpenCode asks for at most 32,000 tokens, whatever the model's limit says.
        "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": str(settings.response_budget),
        "XDG_CONFIG_HOME": folder,
    }


def _find(settings: Agent) -> opencode_install.OpenCode:
    return opencode_install.find(settings.binary, settings.version, _silent)


def _silent(_event: Event) -> None:
    """Observe nothing: `prepare` has told."""
