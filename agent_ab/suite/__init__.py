"""Suites: planned, played block by block, extended; and blocks and sweeps, which are several at once."""
