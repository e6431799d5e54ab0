"""One start of agent-ab: what it has in the world, and the end of what a killed start left."""
