"""The command line: the only place that prints and exits.

Exit status: 0 done (for `pair`: the pair is valid), 2 the user's mistake, 4 the apparatus broke or the pair is void,
130 interrupted.
"""

from agent_ab.cli.app import app, run_command

__all__ = ["app", "run_command"]
