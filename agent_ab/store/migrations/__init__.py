"""The database's schema, step by step; `store/store.py` applies the steps when it opens a file."""
