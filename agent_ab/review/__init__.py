"""Flips looked at by people, and attempts judged again by the checks."""
