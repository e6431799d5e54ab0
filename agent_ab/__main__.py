"""`python -m agent_ab` is `agent-ab`."""

from agent_ab.cli import main

main()
