"""Paired A/B runs of coding agents against one change of their model server."""

__version__ = "0.1.0"
