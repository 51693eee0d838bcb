"""Recurrent mixers of one layer as operations: Gated DeltaNet, Kimi Delta Attention, Mamba-2, lightning attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..specs import LayerGroup, Options, Precision
from .formulas import linear_attention
from .formulas.attention import local_kv_heads
from .kv_cache import CacheFootprint
from .operations import Architecture, ForwardPass, LayoutRule, Num, Operation, kv_heads_rule
from .projections import gate, projection, widths

SCALARS = {"deltanet": 2, "kda": 1, "mamba2": 1, "lightning": 0}
"""Projected numbers per value head: write strength and decay, write strength, step size."""


@dataclass(frozen=True)
class Widths:
    """Local widths of a mixer on one GPU: value heads, all keys, all values."""

    heads: Num
    keys: Num
    values: Num

    @property
    def channels(self) -> Num:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values


def local_widths(m: Architecture, group: LayerGroup, p: ForwardPass) -> Widths:
    """Return the widths of one GPU: heads divided by tp, groups of Mamba-2 replicated once tp exceeds them."""
    key_heads = local_kv_heads(m.linear_key_heads, p.tp) if group.attention == "mamba2" else m.linear_key_heads / p.tp
    heads = m.linear_value_heads / p.tp
    return Widths(heads, key_heads * m.linear_key_dim, heads * m.linear_value_dim)


def state_bytes(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> Num:
    """Return the bytes of the state of one sequence in one layer on one GPU, the same at every length."""
    w = local_widths(m, group, p)
    state = linear_attention.state_bytes(w.heads, m.linear_key_dim, m.linear_value_dim, precision.state_bytes)
    if not has_convolution(m):
        return state
    return state + linear_attention.convolution_bytes(w.channels, m.linear_conv, precision.activation_bytes)


def has_convolution(m: Architecture) -> bool:
    """Return whether queries, keys and values pass a causal convolution (structure)."""
    return not (isinstance(m.linear_conv, int) and m.linear_conv == 0)


def recurrent(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass
) -> list[Operation]:
    """Return the operations of a recurrent mixer between its norm and its residual."""
    d, w = m.hidden, local_widths(m, group, p)
    _, b_act = widths(precision, options)

    def project(name: str, k: Num, n: Num) -> Operation:
        return projection(name, precision, options, p, k, n)

    low_rank = group.attention == "kda" and not (isinstance(m.linear_gate_rank, int) and m.linear_gate_rank == 0)
    wide = w.channels + SCALARS[group.attention] * w.heads + (0.0 if low_rank else w.values)
    decay = [project("decay_down", d, m.linear_key_dim), project("decay_up", m.linear_key_dim, w.keys)]
    gates = [project("gate_down", d, m.linear_gate_rank), project("gate_up", m.linear_gate_rank, w.values)]
    return [
        project("in_proj", d, wide),
        *(decay if group.attention == "kda" else []),
        *(gates if low_rank else []),
        *(_convolution(m, w, precision, b_act, p) if has_convolution(m) else []),
        Operation(
            "state_update",
            "attn_core",
            flops=p.new * w.heads * _flops(m, w, group, p),
            kv=_passes(p) * state_bytes(m, group, precision, p),
            activations=p.new * (w.channels + w.values) * b_act,
        ),
        *gate(options, precision, p.new * w.values),
        project("out_proj", w.values, d),
    ]


def _convolution(m: Architecture, w: Widths, precision: Precision, b_act: Num, p: ForwardPass) -> list[Operation]:
    weights = w.channels * m.linear_conv * precision.attention_weight_bytes
    flops = 2 * p.new * w.channels * m.linear_conv
    moved = 2 * p.new * w.channels * b_act
    return [
        Operation(
            "convolution",
            "attn_proj",
            flops=flops,
            weights=weights,
            activations=moved,
            resident_weights=weights,
            launches=0,
        ),
    ]


def _flops(m: Architecture, w: Widths, group: LayerGroup, p: ForwardPass) -> Num:
    """Return FLOPs of one token and value head."""
    delta = group.attention in linear_attention.DELTA_RULE
    if p.decode:
        return linear_attention.step_flops(m.linear_key_dim, m.linear_value_dim, delta=delta)
    chunk = np.minimum(m.linear_chunk, p.new)
    key_fraction = w.keys / m.linear_key_dim / w.heads if group.attention == "mamba2" else 1.0
    return linear_attention.chunk_flops(
        m.linear_key_dim, m.linear_value_dim, chunk, delta=delta, key_fraction=key_fraction
    )


def _passes(p: ForwardPass) -> Num:
    """Return how often the state is moved: read and written, only written by a prefill with nothing cached."""
    return 2.0 if p.decode else 1.0 + np.minimum(p.cached, 1.0)


def state_cache(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> list[CacheFootprint]:
    """Return the footprint of the recurrent state, the same at every length."""
    return [CacheFootprint("recurrent state", fixed_bytes=state_bytes(m, group, precision, p))]


def recurrent_rules(m: Architecture, group: LayerGroup, p: ForwardPass) -> list[LayoutRule]:
    """Return the layout rules of a recurrent mixer: tp divides its heads, and fits the groups of Mamba-2."""
    values = LayoutRule("tp_heads", ("tp",), m.linear_value_heads % p.tp != 0)
    if group.attention == "mamba2":
        return [kv_heads_rule(m.linear_key_heads, p), values]
    return [values, LayoutRule("tp_heads", ("tp",), m.linear_key_heads % p.tp != 0)]
