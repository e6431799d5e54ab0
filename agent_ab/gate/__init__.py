"""The gate: a run's pairs become observations, estimates and a decision."""
