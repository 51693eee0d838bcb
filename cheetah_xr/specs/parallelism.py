"""Degrees of parallelism of one instance: the record behind every layout.

A new degree is a field here and an argument in :mod:`cheetah_xr.engine.inputs.arguments`; then formulas can divide by
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelDegrees:
    """Hold the degrees of one instance; numbers or arrays, labelled or not."""

    tp: Any = field(metadata={"long_name": "tensor-parallel degree"})
    dp: Any = field(metadata={"long_name": "data-parallel degree of attention"})
    ep: Any = field(metadata={"long_name": "expert-parallel degree"})

    @property
    def n_gpus(self) -> Any:
        """GPUs of the instance."""
        return self.tp * self.dp

    @property
    def etp(self) -> Any:
        """GPUs an expert is split over."""
        return self.tp * self.dp / self.ep


DEGREES: dict[str, str] = {degree.name: degree.metadata["long_name"] for degree in fields(ParallelDegrees)}
"""Degree -> its label, in the order in which a layout lists them."""
