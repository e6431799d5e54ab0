"""Decoding methods on recorded requests, side by side: what `agent-ab bench` plays, measures and shows."""
