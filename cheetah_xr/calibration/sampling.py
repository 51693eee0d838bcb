"""Posterior of the parameters by ensemble Markov chains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..engine.inputs.posterior_axis import RESIDUAL_SCALES
from .objective import LOG_RESIDUAL_SCALES, Target
from .parameters import NAMES, PARAMETERS

Array = NDArray[Any]

ENSEMBLES = 2
"""Independent ensembles, so that agreement between them can be seen."""


def sample(
    target: Target,
    start: Array,
    *,
    walkers: int,
    steps: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> xr.Dataset:
    """Sample the posterior of the parameters and of the residual scales.

    Parameters
    ----------
    target
        Measured rows and priors.
    start
        Logarithms of the parameters the walkers start around.
    walkers
        Walkers of an ensemble, an even number of at least twice what is sampled.
    steps
        Steps of every walker; the first half is left out.
    seed
        Of starting points and moves.
    on_progress
        Called with the number of steps done in all ensembles.

    Returns
    -------
    xarray.Dataset
        A variable per parameter and residual scale on the dims ``chain`` (one per walker) and ``draw``.
    """
    import emcee

    chains = []
    for ensemble in range(ENSEMBLES):
        generator = np.random.default_rng([seed, ensemble])
        spread = 0.02 * generator.standard_normal((walkers, len(PARAMETERS) + len(RESIDUAL_SCALES)))
        most = np.log([parameter.most for parameter in PARAMETERS])
        around = np.append(start, LOG_RESIDUAL_SCALES) + spread
        highest = most - 1e-3 * generator.random((walkers, len(PARAMETERS)))
        around[:, : len(PARAMETERS)] = np.minimum(around[:, : len(PARAMETERS)], highest)
        # Whole differences (gamma0 1) and snooker moves follow the ridge on which launches of two kinds trade places.
        moves = [
            (emcee.moves.DEMove(), 0.45),
            (emcee.moves.DEMove(gamma0=1.0), 0.25),
            (emcee.moves.DESnookerMove(), 0.3),
        ]
        sampler = emcee.EnsembleSampler(walkers, around.shape[1], target.log_probability, vectorize=True, moves=moves)
        sampler.random_state = np.random.RandomState(int(generator.integers(2**31))).get_state()
        for number, _ in enumerate(sampler.sample(around, iterations=steps), start=1):
            if on_progress:
                on_progress(ensemble * steps + number)
        chains.append(np.exp(sampler.get_chain(discard=steps // 2)))
    joined = np.concatenate([chain.transpose(1, 0, 2) for chain in chains])
    names = (*NAMES, *RESIDUAL_SCALES)
    posterior = xr.Dataset({name: (("chain", "draw"), joined[:, :, place]) for place, name in enumerate(names)})
    return posterior.assign_coords(chain=np.arange(len(joined)), draw=np.arange(joined.shape[1]))


def diagnostics(posterior: xr.Dataset) -> pd.DataFrame:
    """Return r-hat (rank-normalised, split) and bulk effective sample size of every parameter, by ArviZ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # once a day arviz tells of its next version
        import arviz

    computed: Any = arviz  # its functions have no types in all supported versions
    rhat, ess = computed.rhat(posterior), computed.ess(posterior)
    columns = {"r_hat": rhat, "effective_samples": ess}
    return pd.DataFrame({label: {name: float(ds[name]) for name in posterior} for label, ds in columns.items()})
