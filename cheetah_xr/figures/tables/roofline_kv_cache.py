"""Tabulate [Roofline]: the KV cache, which its bandwidth model leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ..shared.quotations import Quote, quoted
from ..shared.source_accounting import H100, assumed_on, ideal

MODEL, LONG = "llama-3.1-8b", 8192


def _rows() -> Iterator[Quote]:
    ds = ideal(MODEL, H100, batch=[1, 64, 256], seq_len=[1, LONG])
    one = ds["kv_bytes_per_sequence"]
    read, where = ds["bytes_kv"].sel(seq_len=LONG) / 1e9, "what batching does: two caveats"
    yield Quote("KV cache of one token", "B", "131,072", one.sel(seq_len=1), where)
    yield Quote("KV cache of one 8k context", "GB", "1.07", one.sel(seq_len=LONG) / 1e9, where)
    yield Quote("KV cache moved per step, 64 contexts of 8,192", "GB", "69", read.sel(batch=64), where)
    yield Quote("KV cache of 256 contexts of 8,192", "GB", "275", 256 * one.sel(seq_len=LONG) / 1e9, where)
    count_model = ideal("8b", H100)["bytes_weights"] / 1e9
    yield Quote("weights, 8e9 parameters", "GB", "16", count_model, where)
    real = ds["bytes_weights"].isel(batch=0, seq_len=0) / 1e9
    yield Quote("weights read, Llama-3.1-8B", "GB", "16", real, where, "the embedding table is not read whole")


def data() -> xr.Dataset:
    """Return sizes of the KV cache, printed and computed."""
    return quoted(
        _rows(),
        title="[Roofline]: Llama-3.1-8B, long contexts move more KV cache than weights",
        shows="KV cache and weights of Llama-3.1-8B, as [Roofline] prints them and as the engine computes them; the "
        "cache moved per step includes the token written.",
        assumptions=assumed_on(ideal(MODEL, H100)),
    )
