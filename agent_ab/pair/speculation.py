"""What can be asked of a server's speculation, and how ways to decode may be called. Pure."""

import re
from collections.abc import Mapping

BASELINE = "none"
"""The name of the way to decode that every other is compared with."""
NGRAM = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""llama-server's types that look up what was already said."""
DRAFTING = {"mtp": 3, "simple": 3, "eagle3": 3, "dflash": 7, "dspark": 7}
"""llama-server's types that draft with a model, without `draft-`, and how many tokens each drafts when none is told."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "llama-server": (BASELINE, *NGRAM, *(f"draft-{name}" for name in DRAFTING)),
    "vllm": (BASELINE, "ngram", "mtp", "eagle3", "dflash", "draft_model"),
}
"""The values of `server.speculation.type`, by engine."""
MOST = 64
"""The greatest number of tokens that can be drafted at a time."""


def nameable(name: str) -> bool:
    """Return whether a method or a candidate can be called so: in a comma list, in a line and in a file's name."""
    return re.fullmatch(r"[\w.+-]{1,60}", name) is not None
