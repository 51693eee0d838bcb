"""Tables of the catalogue for the command line."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from .. import specs
from ..costmodel.capacity import cache_bytes, cache_footprints
from ..costmodel.operations import ForwardPass
from ..specs import DEGREES, AnyModel, ParameterCountModel, Precision

KV_TOKENS = 8192
"""Length at which models are compared."""


def _table(*columns: str) -> Table:
    table = Table(box=None)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table


def _cell(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:,.5g}"


def _one_gpu(tokens: int) -> ForwardPass:
    return ForwardPass(
        decode=True,
        seq_len=float(tokens),
        cached=0.0,
        new=1.0,
        before=tokens - 1.0,
        instance_tokens=1.0,
        domain=1,
        **dict.fromkeys(DEGREES, 1),
    )


def kv_per_token(model: AnyModel, precision: Precision) -> float:
    """Return the bytes a sequence grows by with every token once its windows are full, one GPU."""
    rows = cache_footprints(model, precision, _one_gpu(1))
    return float(
        sum(count * item.bytes_per_token / item.tokens_per_entry for count, item in rows if item.max_tokens is None)
    )


def kv_per_sequence(model: AnyModel, precision: Precision, tokens: int) -> float:
    """Return the KV-cache footprint of one sequence, in bytes on one GPU."""
    return float(cache_bytes(model, precision, _one_gpu(tokens)))


def attention_kind(model: AnyModel) -> str:
    """Return the kinds of attention and how many layers have each: "36 deltanet, 12 gqa"."""
    if isinstance(model, ParameterCountModel):
        return "parameter-count"
    layers: dict[str, int] = {}
    for group in model.groups:
        window = f" w{group.window}" if group.window and group.attention == "gqa" else ""
        limit = f" c{group.chunk}" if group.chunk else window
        entry = f" /{group.compress}" if group.compress else ""
        index = f" top {model.index_top_k}" if group.indexer != "none" else ""
        if group.attention != "none":
            kind = f"{group.attention}{limit}{entry}{index}"
            layers[kind] = layers.get(kind, 0) + group.count
    return ", ".join(f"{count} {kind}" for kind, count in layers.items())


def models() -> Table:
    """List the models: size, attention, cache in bf16."""
    bf16 = specs.load_precision("bf16")
    table = Table(box=None)
    for column in ("model", "parameters (1e9)", "active (1e9)", "KV/token (kB)", "KV at 8k (MB)", "max tokens"):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    table.add_column("precision", no_wrap=True)
    table.add_column("attention: layers of each kind", no_wrap=True)
    for name in specs.list_models():
        m = specs.load_model(name)
        count_model = isinstance(m, ParameterCountModel)
        table.add_row(
            name,
            _cell(m.n_parameters, 1e-9),
            _cell(m.n_parameters_active, 1e-9),
            "-" if count_model and m.n_kv_heads is None else _cell(kv_per_token(m, bf16), 1e-3),
            "-" if count_model and m.n_kv_heads is None else _cell(kv_per_sequence(m, bf16, KV_TOKENS), 1e-6),
            f"{m.max_seq_len:,}" if m.max_seq_len else "-",
            "-" if isinstance(m, ParameterCountModel) else m.default_precision,
            attention_kind(m),
        )
    return table


def gpus() -> Table:
    """List the accelerators: memory, rates, price."""
    columns = (
        "memory GB",
        "HBM GB/s",
        "bf16 TFLOP/s",
        "fp8",
        "fp4",
        "link GB/s",
        "domain",
        "NIC GB/s",
        "TDP W",
        "USD/h",
    )
    table = _table("gpu", *columns)
    for name in specs.list_gpus():
        g = specs.load_gpu(name)
        table.add_row(
            name,
            _cell(g.memory_bytes, 1e-9),
            _cell(g.hbm_bandwidth, 1e-9),
            _cell(g.peak_bf16, 1e-12),
            _cell(g.peak_fp8, 1e-12),
            _cell(g.peak_fp4, 1e-12),
            _cell(g.link_bandwidth, 1e-9),
            _cell(g.link_domain),
            _cell(g.nic_bandwidth, 1e-9),
            _cell(g.tdp),
            _cell(g.price_per_hour),
        )
    return table


def precisions() -> Table:
    """List the precisions: bytes and compute types."""
    table = _table(
        "precision", "weights B", "experts B", "GEMM inputs B", "GEMM type", "attention core", "KV B", "act. B"
    )
    for name in specs.list_precisions():
        p = specs.load_precision(name)
        numbers = (p.dense_mlp_weight_bytes, p.experts_weight_bytes, p.dense_mlp_input_bytes)
        types = (p.dense_mlp_compute, p.attn_core_compute)
        table.add_row(name, *map(_cell, numbers), *types, _cell(p.kv_bytes), _cell(p.activation_bytes))
    return table


def efficiencies() -> Table:
    """List the efficiency profiles."""
    table = _table("efficiency", "numbers away from 1 and 0")
    for name in specs.list_efficiencies():
        e = specs.load_efficiency(name)
        away = sum(getattr(e, f) not in (None, 0.0, 1.0) for f in type(e).numeric_fields())
        table.add_row(name, str(away))
    return table


def sweeps() -> Table:
    """List the shipped sweeps and their questions."""
    from ..sweep.config import read_sweep

    table = Table("sweep", "question", box=None)
    for name in specs.list_sweeps():
        table.add_row(name, read_sweep(specs.sweep_path(name)).question)
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "models": models,
    "gpus": gpus,
    "precisions": precisions,
    "efficiencies": efficiencies,
    "sweeps": sweeps,
}
