"""Statistics of paired runs: pure, typed, and each with its source. Nothing here reads, prints or decides.

The randomised unit is the pair: ten checks of one attempt stand and fall together, so that 80 checks behave like 8
observations (docs/statistics.md). numpy, scipy and statsmodels are imported here and by what only the gate needs.
"""
