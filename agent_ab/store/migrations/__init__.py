"""The database's schema, step by step; `store.py` applies the steps when it opens a file."""
