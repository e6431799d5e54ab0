"""The e-value by numerical integration over the bets: independent of the grid that the package uses."""

from collections.abc import Sequence

import numpy as np
from scipy import integrate, stats

from agent_ab.stats.eprocess import Side


def by_quadrature(d: Sequence[float], mu0: float, side: Side) -> float:
    """Return the mean capital over the bets, by their weights as docs/statistics.md gives them."""
    m = (mu0 + 1) / 2
    sign, stake = (1, m) if side is Side.GAIN else (-1, 1 - m)

    def capital(g: float) -> float:
        return float(np.prod([1 + sign * g / stake * ((x + 1) / 2 - m) for x in d]))

    if side is Side.GAIN:
        # root = sqrt(1 - g) takes the weight's infinity at g = 1 away.
        return float(integrate.quad(lambda root: capital(1 - root**2), 0, 1)[0])
    spread, _ = integrate.quad(lambda g: capital(g) * stats.beta.pdf(g, 1.5, 2), 0, 1)
    return float(0.79 * spread + 0.21 * capital(1))
