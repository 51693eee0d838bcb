"""The accelerator record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from .record import Record

COMPUTE_TYPES = ("bf16", "fp16", "fp8", "fp4", "int8")
"""Dtypes a matrix unit multiplies in; the record has a ``peak_`` field for each (and for fp32 and tf32)."""

Positive = Annotated[float, Field(gt=0)]
Bandwidth = Annotated[float, Field(ge=1e6, le=1e18)]
Peak = Annotated[float, Field(ge=1e9, le=1e21)]
"""Bounds that catch a wrong unit: GB/s or TFLOP/s where B/s or FLOP/s are meant, or the other way round."""


class Gpu(Record):
    """One accelerator, SI units: bytes, B/s, FLOP/s, W, USD/h. Peaks are dense, links unidirectional per GPU.

    A number that is not known is None, and a layout that needs it is masked. ``release_year`` is the year the vendor
    launched it: deliveries or access for customers, not the first announcement; None where sources disagree.
    """

    file_units: ClassVar[Mapping[str, tuple[str, float]]] = {
        "memory_gb": ("memory_label_bytes", 1e9),
        "hbm_bandwidth_gb_s": ("hbm_bandwidth", 1e9),
        **{f"peak_{t}_tflops": (f"peak_{t}", 1e12) for t in ("fp32", "tf32", *COMPUTE_TYPES)},
        "link_gb_s": ("link_bandwidth", 1e9),
        "link_pairwise_gb_s": ("link_pairwise", 1e9),
        "nic_gb_s": ("nic_bandwidth", 1e9),
        "tdp_w": ("tdp", 1.0),
        "price_usd_per_hour": ("price_per_hour", 1.0),
    }

    filled: ClassVar[frozenset[str]] = frozenset({"memory_label_bytes", "memory_reported_bytes", "release_year"})

    vendor: str = ""
    release_year: Annotated[int, Field(ge=1990, le=2100)] | None = None
    memory_label_bytes: Positive | None = None
    memory_reported_bytes: Positive | None = None
    memory_bytes: Positive | None = None
    hbm_bandwidth: Bandwidth
    peak_fp32: Peak | None = None
    peak_tf32: Peak | None = None
    peak_bf16: Peak
    peak_fp16: Peak | None = None
    peak_fp8: Peak | None = None
    peak_fp4: Peak | None = None
    peak_int8: Peak | None = None
    link_bandwidth: Bandwidth | None = None
    link_domain: Annotated[int, Field(ge=1)] | None = None
    link_pairwise: Bandwidth | None = None
    nic_bandwidth: Bandwidth | None = None
    tdp: Positive | None = None
    price_per_hour: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _memory(self) -> Gpu:
        """Usable memory: what the device reports where known, else the label in decimal GB."""
        if self.memory_bytes is None:
            usable = self.memory_reported_bytes or self.memory_label_bytes
            if usable is None:
                raise ValueError("one of memory_gb, memory_reported_bytes and memory_bytes is needed")
            object.__setattr__(self, "memory_bytes", usable)
        return self
