"""The database of runs, its tables and their history, and the evidence beside it."""
