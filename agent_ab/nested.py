"""Tables within tables, as TOML and JSON have them. Pure."""

from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the tables of `over` merged into it, key by key."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings under dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, inner in value.items():
        leaves |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return leaves
