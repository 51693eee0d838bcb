"""Attention with top-k selection: the indexer of sparse attention, and DeepSeek-V4's compressed attention."""

from __future__ import annotations

from ..specs import LayerGroup, Options, Precision
from .formulas import attention
from .formulas.gemm import gemm_activations, gemm_flops
from .kv_cache import CacheFootprint
from .operations import Architecture, ForwardPass, LayoutRule, Num, Operation, replicated
from .projections import linear, projection, rope, softmax, widths


def indexer(
    m: Architecture,
    group: LayerGroup,
    precision: Precision,
    options: Options,
    p: ForwardPass,
    *,
    query_width: Num,
    head_weights: bool = False,
) -> list[Operation]:
    """Score every key in a small head, on every tensor-parallel rank (DeepSeek-V3.2 report, section 2).

    The queries of the indexer are projected from `query_width` numbers a token; with `head_weights`, each token also
    has a weight for every head.
    """
    if group.indexer != "own":
        return []
    b_in, b_act = widths(precision, options)
    d, width = m.hidden, m.index_dim
    pairs = (
        attention.visible_pairs(p.new, p.before)
        if p.decode or options.causal
        else attention.uncausal_pairs(p.new, p.cached)
    )
    weights = [_small("index_weights", m.index_heads, m, precision, options, p, launches=0)] if head_weights else []
    cached = p.seq_len if p.decode else p.cached
    return [
        projection("index_q", precision, options, p, query_width, m.index_heads * width),
        linear("index_k", precision, p, d, width, gemm_activations(p.new, d, width, b_in, b_act), launches=0),
        *weights,
        _index_scores(m, precision, p, pairs, cached + p.new, p.new, b_act),
    ]


def _small(
    name: str, n: Num, m: Architecture, precision: Precision, options: Options, p: ForwardPass, launches: int = 1
) -> Operation:
    """Return a projection that engines keep unquantised on every rank, like the router."""
    return replicated(name, "router", p, m.hidden, n, precision, options, "attn", launches)


def _index_scores(
    m: Architecture, precision: Precision, p: ForwardPass, pairs: Num, moved: Num, new_keys: Num, b_act: Num
) -> Operation:
    width = m.index_heads * m.index_dim
    read = p.new * width * b_act + (0.0 if p.decode else new_keys * m.index_dim * b_act)
    kv = moved * m.index_dim * precision.index_bytes
    return Operation("index_scores", "indexer", flops=2 * width * pairs, kv=kv, activations=read)


def compressed(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass
) -> list[Operation]:
    """Return the operations of compressed attention between its norm and its residual."""
    d, heads, width = m.hidden, m.n_heads / p.tp, m.head_dim
    _, b_act = widths(precision, options)

    def project(name: str, k: Num, n: Num, launches: int = 1) -> Operation:
        return projection(name, precision, options, p, k, n, launches)

    pairs = heads * (_window_pairs(group, options, p) + _entry_pairs(m, group, options, p, chosen=True))
    moved = _window_read(group, p) + p.new + _entries_read(m, group, p) + new_entries(group, p)
    in_prefill = 0.0 if p.decode else (p.new + new_entries(group, p)) * width * b_act
    series = 2 if group.indexer == "own" else 1
    return [
        project("q_down", d, m.q_lora_rank),
        project("q_up", m.q_lora_rank, heads * width),
        project("kv_proj", d, width, launches=0),  # fused with q_down
        *([] if group.compress is None else [_small("compressor", 2 * series * width, m, precision, options, p)]),
        *_entry_indexer(m, group, precision, options, p),
        *rope(options, precision, p.new * m.qk_rope_head_dim * (heads + 1) * m.rotary),
        Operation(
            "scores",
            "attn_core",
            flops=2 * width * pairs,
            kv=moved * width * precision.kv_bytes,
            activations=p.new * heads * width * b_act + in_prefill,
        ),
        *softmax(options, precision, pairs),
        Operation(
            "attn_values",
            "attn_core",
            flops=2 * width * pairs,
            activations=p.new * heads * width * b_act,
            launches=0,
        ),
        _grouped_output(m, precision, options, p),
        project("o_up", m.o_groups * m.o_lora_rank / p.tp, d),
    ]


def _grouped_output(m: Architecture, precision: Precision, options: Options, p: ForwardPass) -> Operation:
    """Return the projection of every group of heads to its own latent."""
    rows, k, n = p.new * m.o_groups / p.tp, m.n_heads * m.head_dim / m.o_groups, m.o_lora_rank
    weights = m.o_groups / p.tp * k * n * precision.attention_weight_bytes
    return Operation(
        "o_down",
        "attn_proj",
        flops=gemm_flops(rows, k, n),
        weights=weights,
        activations=gemm_activations(rows, k, n, *widths(precision, options)),
        resident_weights=weights,
    )


def _entry_indexer(
    m: Architecture, group: LayerGroup, precision: Precision, options: Options, p: ForwardPass
) -> list[Operation]:
    """Return the scores of every entry, on index keys compressed like the entries themselves."""
    if group.indexer != "own" or group.compress is None:
        return []
    cached = p.seq_len if p.decode else p.cached
    new = new_entries(group, p)
    pairs = _entry_pairs(m, group, options, p, chosen=False)
    moved = cached // group.compress + new
    return [
        projection("index_q", precision, options, p, m.q_lora_rank, m.index_heads * m.index_dim),
        _small("index_weights", m.index_heads, m, precision, options, p, launches=0),
        _small("index_compressor", 4 * m.index_dim, m, precision, options, p, launches=0),
        _index_scores(m, precision, p, pairs, moved, new, widths(precision, options)[1]),
    ]


def _window_pairs(group: LayerGroup, options: Options, p: ForwardPass) -> Num:
    if not p.decode and not options.causal:
        return attention.uncausal_pairs(p.new, p.cached, window=group.window)
    return attention.visible_pairs(p.new, p.before, window=group.window)


def _window_read(group: LayerGroup, p: ForwardPass) -> Num:
    if p.decode:
        return attention.cache_read_decode(p.seq_len, p.new, window=group.window)
    return attention.cache_read_prefill(p.cached, window=group.window)


def _entry_pairs(m: Architecture, group: LayerGroup, options: Options, p: ForwardPass, *, chosen: bool) -> Num:
    """Return (query, entry) pairs: all of them, or those attended to."""
    if group.compress is None:
        return 0.0
    most = m.index_top_k if chosen and group.indexer != "none" else None
    if not p.decode and not options.causal:
        return attention.entry_pairs_uncausal(p.new, p.cached, group.compress, most)
    return attention.entry_pairs(p.new, p.before, group.compress, most)


def _entries_read(m: Architecture, group: LayerGroup, p: ForwardPass) -> Num:
    """Return cached entries some new query attends to."""
    if group.compress is None:
        return 0.0
    entries = (p.seq_len if p.decode else p.cached) // group.compress
    return entries if group.indexer == "none" else attention.tokens_in_cache(entries, window=p.new * m.index_top_k)


def new_entries(group: LayerGroup, p: ForwardPass) -> Num:
    """Return entries completed by a forward pass; in decode the mean over steps."""
    if group.compress is None:
        return 0.0
    if p.decode:
        return p.new / group.compress
    return (p.cached + p.new) // group.compress - p.cached // group.compress


def compressed_cache(m: Architecture, group: LayerGroup, precision: Precision, p: ForwardPass) -> list[CacheFootprint]:
    """Return the footprint of the window of raw tokens, of the compressed entries and of their index keys."""
    width, every = m.head_dim * precision.kv_bytes, group.compress
    footprints = [CacheFootprint("window cache", bytes_per_token=width, max_tokens=group.window)]
    if every is not None:
        footprints.append(CacheFootprint("compressed cache", bytes_per_token=width, tokens_per_entry=every))
        if group.indexer == "own":
            width = m.index_dim * precision.index_bytes
            footprints.append(CacheFootprint("index keys", bytes_per_token=width, tokens_per_entry=every))
    return footprints


def compressed_rules(m: Architecture, group: LayerGroup, p: ForwardPass) -> list[LayoutRule]:
    """Return the layout rules of compressed attention: tp divides the query heads and the output groups."""
    return [
        LayoutRule("tp_heads", ("tp",), m.n_heads % p.tp != 0),
        LayoutRule("tp_width", ("tp",), m.o_groups % p.tp != 0),
    ]
