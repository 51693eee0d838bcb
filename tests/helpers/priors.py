"""Posterior files drawn from the priors of the factors."""

import csv

import numpy as np

from cheetah_xr.calibration.parameters import NAMES, PARAMETERS
from cheetah_xr.engine.inputs.posterior_axis import RESIDUAL_SCALES


def draws_of_priors(n=40, seed=0):
    """Column -> numbers as they are written, `n` of each."""
    generator = np.random.default_rng(seed)
    columns = {}
    for parameter in PARAMETERS:
        values = parameter.median * np.exp(parameter.spread * generator.standard_normal(n))
        columns[parameter.name] = [f"{value:.6g}" for value in np.minimum(values, parameter.most)]
    for scale, middle in zip(RESIDUAL_SCALES, (0.08, 0.12, 0.15), strict=True):
        columns[scale] = [f"{value:.4g}" for value in middle * np.exp(0.2 * generator.standard_normal(n))]
    assert list(columns) == [*NAMES, "residual_scale_dense", "residual_scale_moe", "residual_scale_prefill"]
    return columns


def write_csv(path, columns):
    """Write columns as a posterior file; returns its path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
