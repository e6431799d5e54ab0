"""What works on this machine, and whether an arm fits into it."""
