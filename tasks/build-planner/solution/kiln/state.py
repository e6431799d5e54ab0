"""What is remembered of earlier builds."""

import json

VERSION = 2  # 1 remembered modification times


class State:
    """For each target that was built: its record."""

    def __init__(self, records=None):
        self.records = dict(records or {})  # name -> {"command": text, "inputs": {name: sha256 of its content}}

    def to_json(self):
        """Return the state as text."""
        return json.dumps({"version": VERSION, "records": self.records}, sort_keys=True)

    @classmethod
    def from_json(cls, text):
        """Return the state that `to_json` wrote; a fresh one when another version of kiln wrote it."""
        data = json.loads(text)
        return cls(data["records"] if data.get("version") == VERSION else None)

    def __eq__(self, other):
        return isinstance(other, State) and self.records == other.records
