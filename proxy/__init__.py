"""The witness: what runs inside mitmdump. Needs mitmproxy and the standard library only, and never `agent_ab`."""
