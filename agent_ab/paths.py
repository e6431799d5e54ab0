"""Every path of a run directory. No other module joins these names.

runs/<run>/
  run.json                     the resolved plan, written before anything starts
  lives/<n>-<arm>.log          servers that serve several attempts: their whole output
  quarantine/<pair>/           pairs that a start after a cut-off one could not take in; nobody reads them
  <pair>/
    pair.json                  the finished pair; the requests are in the exchange logs
    baseline/  candidate/
      settings.json            the arm's resolved settings
      server.log  proxy.log    both streams of each child, whole (of a server that serves several: this attempt's part)
      exchanges.jsonl          what the proxy witnessed (docs/exchange-log.md)
      tokens.json              each reply's text, cut into tokens by the server's own tokenizer
      prompts.json             each request's prompt, sampler and grammar, as the server made them
      agent.log                the agent's transcript and last words
      patch.diff               what the agent changed
      snapshot.tar             the frozen workspace that the checks judged
      checks.json              each check's inputs, replies, verdict and reason
"""

from dataclasses import dataclass
from pathlib import Path

from agent_ab.model import Arm


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The files of one attempt."""

    root: Path

    @property
    def settings(self) -> Path:
        """Return the resolved settings' path."""
        return self.root / "settings.json"

    @property
    def server_log(self) -> Path:
        """Return the server log's path."""
        return self.root / "server.log"

    @property
    def proxy_log(self) -> Path:
        """Return the proxy's own log's path."""
        return self.root / "proxy.log"

    @property
    def exchanges(self) -> Path:
        """Return the exchange log's path."""
        return self.root / "exchanges.jsonl"

    @property
    def tokens(self) -> Path:
        """Return the replies' tokens' path."""
        return self.root / "tokens.json"

    @property
    def prompts(self) -> Path:
        """Return the path of what the server made of the requests."""
        return self.root / "prompts.json"

    @property
    def agent_log(self) -> Path:
        """Return the agent's transcript's path."""
        return self.root / "agent.log"

    @property
    def patch(self) -> Path:
        """Return the patch's path."""
        return self.root / "patch.diff"

    @property
    def snapshot(self) -> Path:
        """Return the snapshot archive's path."""
        return self.root / "snapshot.tar"

    @property
    def checks(self) -> Path:
        """Return the checks' evidence's path."""
        return self.root / "checks.json"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The directory of one run."""

    root: Path

    @property
    def plan(self) -> Path:
        """Return the plan's path."""
        return self.root / "run.json"

    @property
    def lives(self) -> Path:
        """Return the directory of the logs of servers that serve several attempts."""
        return self.root / "lives"

    @property
    def quarantine(self) -> Path:
        """Return the directory of the pairs that could not be taken in."""
        return self.root / "quarantine"

    def pair(self, pair_id: str) -> Path:
        """Return the directory of one pair."""
        return self.root / pair_id

    def pair_json(self, pair_id: str) -> Path:
        """Return the path of a finished pair's JSON."""
        return self.root / pair_id / "pair.json"

    def attempt(self, pair_id: str, arm: Arm) -> AttemptPaths:
        """Return the paths of one attempt."""
        return AttemptPaths(self.root / pair_id / arm.value)
