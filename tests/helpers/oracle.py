"""An independent scalar oracle of the cost model, for tests only.

Plain Python floats, standard library only, written from the definitions and not from the engine: it imports nothing
of the project. Records are plain dicts in SI units. It may branch on any value, and favours plainness over speed.
"""

import functools
import math

NAN = math.nan

DEFAULT_OPTIONS = {
    "granularity": "kernel",
    "activation_traffic": "gemm",
    "small_ops": "none",
    "causal": True,
    "mla": "absorbed",
    "include": ("layers", "embedding", "lm_head"),
    "cached_tokens": 0,
    "overlap_tp": 0.0,
    "overlap_ep": 1.0,
    "micro_batches": 1,
    "expert_comm": "all_to_all",
    "dispatch_copies": "auto",
    "max_nodes": None,
    "redundant_experts": 0,
    "expert_load": "mean",
    "imbalance": 1.0,
    "distinct_factor": 1.0,
    "dense_tp": None,
    "shared_tp": None,
    "lm_head_tp": None,
    "hierarchy": "max",
    "on_infeasible": "mask",
    "memory_base": "total",
    "memory_fraction": 0.9,
    "reserve_bytes": 0,
    "used_at_start_bytes": 0,
    "draft_tokens": 0,
    "acceptance": 0.0,
    "drafter": "free",
}

INVALID = (  # the lowest applicable one wins
    "workload_below_one",
    "tp_heads",
    "tp_kv_heads",
    "tp_width",
    "module_tp",
    "ep_layout",
    "ep_dense",
    "etp_width",
    "expert_comm_needs_dp1",
    "seq_beyond_max",
    "no_peak",
    "no_link",
    "no_nic",
    "top_k_beyond_experts",
    "no_mtp",
)

PRICEABLE = {"no_peak", "top_k_beyond_experts", "no_mtp"}  # reasons despite which the work is defined

RECURRENT = ("deltanet", "kda", "mamba2", "lightning")
OWN = ("n_kv_heads", "head_dim", "v_head_dim", "intermediate", "rotary", "norms_per_layer")
PARTS = ("compute", "weights", "kv", "activations", "communication", "overhead")


# ------------------------------------------------------------------------------------------------------ small helpers


def number(record, key):
    """A number that is zero where the record does not know it."""
    value = record.get(key)
    return 0 if value is None else value


def is_parameter_count(model):
    return model.get("n_parameters") is not None and not model.get("groups")


def divides(a, b):
    return b % a == 0


def merged(model, group):
    """The model with a group's own numbers in place of its own."""
    return {**model, **{key: group[key] for key in OWN if group.get(key) is not None}}


def is_routed(group):
    return group["mlp"] in ("moe", "moe+dense")


def is_dense(group):
    return group["mlp"] in ("dense", "moe+dense")


def indexes(group):
    """Whether a layer scores keys itself."""
    return group.get("indexer") == "own"


def is_sparse(group):
    """Whether a layer looks at chosen keys only, whoever chose them."""
    return group.get("indexer") in ("own", "shared")


def has_moe(model):
    return any(is_routed(group) for group in model.get("groups") or [])


def value_width(model):
    """Width of the values of grouped-query attention; of keys unless given."""
    return model["head_dim"] if model.get("v_head_dim") is None else model["v_head_dim"]


def streams(model):
    return model.get("residual_streams") or 1


def blocks(group):
    """Attention (or a recurrent mixer) and MLP, if a layer has both: 2."""
    return (group["attention"] != "none") + (group["mlp"] != "none")


def is_parallel(model, group):
    """Whether attention and MLP of a layer work side by side."""
    return bool(model.get("parallel_blocks")) and blocks(group) == 2


def expert_hidden(model):
    """Width that experts read."""
    return model["hidden"] if model.get("expert_hidden") is None else model["expert_hidden"]


def has_shared(model):
    return number(model, "shared_intermediate") > 0


def n_layers(model):
    if is_parameter_count(model):
        return number(model, "n_layers")
    return sum(group["count"] for group in model["groups"])


def matrices(model):
    """Matrices of an MLP or an expert: gate, up and down, or up and down only."""
    return 3 if model["gated"] else 2


def gating_flops(model):
    """Operations per element of the activation between them."""
    return 6 if model["gated"] else 5


# ----------------------------------------------------------------------------------------------------- the parameters


def gqa_parameters(model, group):
    d, heads, kv_heads = model["hidden"], model["n_heads"], model["n_kv_heads"]
    h_dim, v = model["head_dim"], value_width(model)
    keys = 0 if group.get("kv_shared") else kv_heads * h_dim
    values = 0 if group.get("kv_shared") or group.get("k_eq_v") else kv_heads * v
    count = d * (heads * h_dim + keys + values) + heads * v * d
    if model.get("output_gate"):
        count += d * heads * v
    if model.get("qkv_bias"):
        count += heads * h_dim + keys + values
    if model.get("o_bias"):
        count += d
    if model.get("qk_norm", "none") == "head":
        count += h_dim + (h_dim if keys else 0)
    if model.get("qk_norm", "none") == "full":
        count += heads * h_dim + keys
    if group.get("sinks"):
        count += heads
    if indexes(group):
        i_h, i_d = model["index_heads"], model["index_dim"]
        count += d * i_h * i_d + d * i_d + 2 * i_d  # queries, keys, a norm of each
    return count


def mla_parameters(model, group):
    d, heads = model["hidden"], model["n_heads"]
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora, q_lora = model["kv_lora_rank"], number(model, "q_lora_rank")
    if q_lora:
        count = d * q_lora + q_lora * heads * (nope + rope)
    else:
        count = d * heads * (nope + rope)
    count += d * (kv_lora + rope) + kv_lora * heads * (nope + v) + heads * v * d
    count += q_lora + kv_lora  # the latent norms
    if model.get("output_gate"):
        count += d * heads * v
    if indexes(group):
        i_h, i_d = model["index_heads"], model["index_dim"]
        count += q_lora * i_h * i_d + d * i_d + d * i_h + 2 * i_d  # a norm with a bias on the keys
    return count


def compressed_parameters(model, group):
    d, heads, h_dim, q_lora = model["hidden"], model["n_heads"], model["head_dim"], model["q_lora_rank"]
    count = d * q_lora + q_lora + q_lora * heads * h_dim  # queries
    count += d * h_dim + h_dim + heads  # keys and values in one, their norm, the sinks
    count += heads * h_dim * model["o_lora_rank"] + model["o_groups"] * model["o_lora_rank"] * d
    if group.get("compress") is not None:
        series = 2 if is_sparse(group) else 1
        count += d * 2 * series * h_dim + group["compress"] * series * h_dim + h_dim  # positions within, and a norm
    if indexes(group):
        i_h, i_d = model["index_heads"], model["index_dim"]
        count += q_lora * i_h * i_d + d * i_h
        count += d * 4 * i_d + group["compress"] * 2 * i_d + i_d
    return count


def recurrent_parameters(model, group):
    d, kind = model["hidden"], group["attention"]
    heads = model["linear_value_heads"]
    K, W = model["linear_key_heads"] * model["linear_key_dim"], heads * model["linear_value_dim"]
    count = d * (2 * K + W) + W * d + (2 * K + W) * model["linear_conv"]
    if model.get("linear_conv_bias"):
        count += 2 * K + W
    rank = number(model, "linear_gate_rank") if kind == "kda" else 0
    count += d * rank + rank * W if rank else d * W
    if kind == "deltanet":  # decay and step of every head; their offsets; the norm of a head
        count += 2 * d * heads + 2 * heads + model["linear_value_dim"]
    if kind == "kda":  # step; decay of every channel; its factor and offset; the norm of a head
        count += d * heads + d * model["linear_key_dim"] + model["linear_key_dim"] * K
        count += heads + K + model["linear_value_dim"]
    if kind == "mamba2":  # step; its offset, decay and skip; the norm over all heads
        count += d * heads + 3 * heads + W
    if kind == "lightning":
        count += W
    return count


def attention_parameters(model, group):
    kind = group["attention"]
    if kind == "none":
        return 0
    if kind in RECURRENT:
        return recurrent_parameters(model, group)
    return {"gqa": gqa_parameters, "mla": mla_parameters, "compressed": compressed_parameters}[kind](model, group)


def mlp_of(model, width, hidden):
    """Parameters of one dense MLP or one expert."""
    count = matrices(model) * hidden * width
    if model.get("mlp_bias"):
        count += (matrices(model) - 1) * width + hidden
    return count


def mlp_parameters(model, group, experts):
    d, count = model["hidden"], 0
    if is_dense(group):
        count += mlp_of(model, model["intermediate"], d)
    if not is_routed(group):
        return count
    latent = expert_hidden(model)
    count += d * model["n_experts"] + experts * mlp_of(model, model["expert_intermediate"], latent)
    if group.get("hash_routing"):
        count += model["vocab"] * model["top_k"]
    elif model.get("router_bias"):
        count += model["n_experts"]
    if has_shared(model):
        count += mlp_of(model, model["shared_intermediate"], d)
    if model.get("shared_gate"):
        count += d
    if model.get("expert_hidden") is not None:
        count += 2 * d * latent
    return count


def layer_parameters(model, group, experts):
    model = merged(model, group)
    d, r = model["hidden"], streams(model)
    norms = blocks(group) if model.get("norms_per_layer") is None else model["norms_per_layer"]
    count = attention_parameters(model, group) + mlp_parameters(model, group, experts)
    count += norms * d + number(group, "extra_parameters")
    if r > 1:  # matrix, offsets and three scales before every block
        count += blocks(group) * ((2 + r) * r * r * d + (2 + r) * r + 3)
    return count


def stream_head(model):
    """Parameters that join the residual streams before a head."""
    r = streams(model)
    return r * r * model["hidden"] + r + 1 if r > 1 else 0


def count_parameters(model, experts):
    d = model["hidden"]
    total = model["vocab"] * d * (1 if model["tie_embeddings"] else 2) + d
    total += stream_head(model) + number(model, "extra_parameters")
    return total + sum(g["count"] * layer_parameters(model, g, experts) for g in model["groups"])


def n_parameters(model):
    if is_parameter_count(model):
        return model["n_parameters"]
    return count_parameters(model, number(model, "n_experts"))


def n_parameters_active(model):
    if is_parameter_count(model):
        return model["n_parameters"]
    return count_parameters(model, number(model, "top_k"))


def n_parameters_mtp(model):
    """The MTP module: its layers, the projection of two hidden states, three norms."""
    groups = model.get("mtp") or ()
    if not groups:
        return 0
    d, experts = model["hidden"], number(model, "n_experts")
    total = 2 * d * d + 3 * d + stream_head(model)
    return total + sum(g["count"] * layer_parameters(model, g, experts) for g in groups)


# ------------------------------------------------------------------------------------------ the situation of one pass


class Case:
    """Everything that one pass needs: records, layout, and the workload of one micro-batch."""

    def __init__(self, model, gpu, precision, efficiency, options, phase, batch, seq_len, tp, dp, ep):
        self.model, self.gpu, self.precision, self.efficiency, self.options = model, gpu, precision, efficiency, options
        self.phase, self.seq_len = phase, seq_len
        self.tp, self.dp, self.ep = tp, dp, ep
        self.n = tp * dp
        self.etp = self.n / ep
        self.domain = math.inf if gpu.get("link_domain") is None else gpu["link_domain"]
        self.dense_tp = tp if options["dense_tp"] is None else options["dense_tp"]
        self.shared_tp = tp if options["shared_tp"] is None else options["shared_tp"]
        self.lm_head_tp = tp if options["lm_head_tp"] is None else options["lm_head_tp"]
        self.cached = options["cached_tokens"] if phase == "prefill" else 0
        self.q = seq_len if phase == "prefill" else 1 + options["draft_tokens"]
        self.b_act = precision["activation_bytes"]
        self.gemm_traffic = options["activation_traffic"] == "gemm"
        self.slots = number(model, "n_experts") + options["redundant_experts"]
        self.set_batch(batch, 1)

    def set_batch(self, batch, micro_batches):
        self.batch = batch
        self.b_r = math.ceil(batch / (self.dp * micro_batches))
        self.T = self.b_r * self.q
        self.T_g = batch * self.q / micro_batches

    def local_heads(self):
        return self.model["n_heads"] / self.tp

    def local_kv_heads(self, model):
        return max(model["n_kv_heads"] / self.tp, 1)

    def held_tokens(self):
        """Tokens of one sequence that capacity reckons with."""
        return self.seq_len + self.cached

    def routed_tokens(self):
        return self.T_g * self.model["top_k"] / self.ep * self.options["imbalance"]

    def gemm_bytes(self, m, k, n, precision_class):
        """Activation bytes of a GEMM of m rows, K = k, N = n."""
        if not self.gemm_traffic:
            return 0.0
        return m * (k * self.precision[precision_class + "_input_bytes"] + n * self.b_act)


class Kernel:
    def __init__(self, name, compute_type, flops=0.0, weights=0.0, kv=0.0, activations=0.0):
        self.name, self.compute_type = name, compute_type
        self.flops, self.weights, self.kv, self.activations = flops, weights, kv, activations

    def add(self, case, gemms, precision_class):
        """GEMMs of (rows, K, N, weight elements)."""
        for m, k, n, elements in gemms:
            self.flops += 2 * m * k * n
            self.weights += elements * case.precision[precision_class + "_weight_bytes"]
            self.activations += case.gemm_bytes(m, k, n, precision_class)


# ------------------------------------------------------------------------------------------------- keys and KV tokens


def keys_of(phase, s, c, q, causal):
    """How many keys each new query may look at, its own included."""
    if phase == "decode":
        return (s + i for i in range(int(q)))
    return (c + i + 1 if causal else c + q for i in range(int(q)))


def numbers_of(case):
    return case.phase, case.seq_len, case.cached, case.q, case.options["causal"]


@functools.cache
def capped_keys(numbers, cap):
    """(query, key) pairs of one sequence when no query sees more than `cap` keys."""
    return sum(min(keys, cap) for keys in keys_of(*numbers))


@functools.cache
def seen_entries(numbers, ratio, cap):
    """(query, entry) pairs of one sequence when `ratio` keys make an entry and no query sees more than `cap`."""
    return sum(min(keys // ratio, cap) for keys in keys_of(*numbers))


@functools.cache
def chunked_keys(numbers, chunk):
    """(query, key) pairs of one sequence when attention restarts at multiples of `chunk`."""
    phase, _, c, _, _ = numbers
    total = 0
    for i, keys in enumerate(keys_of(*numbers)):
        if phase == "prefill":
            keys -= (c + i) // chunk * chunk  # those before the query's own chunk
            total += min(keys, chunk)  # and, without a causal mask, none after it
        else:
            total += (keys - 1) % chunk + 1
    return total


def all_pairs(case):
    """(query, key) pairs of one sequence without a cap."""
    q, c, s = case.q, case.cached, case.seq_len
    if case.phase == "decode":
        return q * s + q * (q - 1) / 2
    if not case.options["causal"]:
        return q * (c + q)
    return q * c + q * (q + 1) / 2


def entry_cap(case, group):
    return case.model["index_top_k"] if is_sparse(group) else math.inf


def visible_pairs(case, group):
    """(query, key) pairs of one sequence that the attention core works on; a compressed entry is a key."""
    window, chunk, ratio = group.get("window"), group.get("chunk"), group.get("compress")
    if group["attention"] == "compressed":
        total = capped_keys(numbers_of(case), window)
        if ratio is not None:
            total += seen_entries(numbers_of(case), ratio, entry_cap(case, group))
        return total
    if is_sparse(group):
        return capped_keys(numbers_of(case), case.model["index_top_k"])
    if window is not None:
        return capped_keys(numbers_of(case), window)
    if chunk is not None:
        return chunked_keys(numbers_of(case), chunk)
    return all_pairs(case)


def cached_before(case):
    """Tokens of one sequence in the cache that a pass could read."""
    return case.seq_len if case.phase == "decode" else case.cached


def kv_tokens_read(case, group):
    """Cached tokens of one sequence read in one pass."""
    window, chunk = group.get("window"), group.get("chunk")
    tokens = cached_before(case)
    if is_sparse(group) and group["attention"] != "compressed":
        return min(tokens, case.q * case.model["index_top_k"])
    if window is not None:
        return min(tokens, window + case.q - 1 if case.phase == "decode" else window - 1)
    if chunk is not None:
        return (tokens - 1) % chunk + 1 if case.phase == "decode" else tokens % chunk
    return tokens


def new_entries(case, ratio):
    """Compressed entries of one sequence that a pass completes; the mean over steps in decode."""
    if case.phase == "decode":
        return case.q / ratio
    return (case.cached + case.q) // ratio - case.cached // ratio


def kv_bytes_per_token(case, group):
    """Of grouped-query and latent attention, without an indexer's keys."""
    model, b_kv = merged(case.model, group), case.precision["kv_bytes"]
    if group["attention"] == "gqa":
        return case.local_kv_heads(model) * (model["head_dim"] + value_width(model)) * b_kv
    return (model["kv_lora_rank"] + model["qk_rope_head_dim"]) * b_kv


def index_key_bytes(case):
    return case.model["index_dim"] * case.precision["index_bytes"]


def state_bytes(case, group):
    """State of one sequence of a recurrent mixer, with the last inputs of its convolution."""
    model = case.model
    K, W = recurrent_widths(case, group)
    state = W * model["linear_key_dim"] * case.precision["state_bytes"]  # key width x value width for each head
    return state + (2 * K + W) * max(model["linear_conv"] - 1, 0) * case.b_act


def held_bytes(case, group):
    """Cache of one sequence in one layer."""
    kind, tokens = group["attention"], case.held_tokens()
    if kind == "none":
        return 0.0
    if kind in RECURRENT:
        return state_bytes(case, group)
    if kind == "compressed":
        entries = tokens // group["compress"] if group.get("compress") is not None else 0
        resident = (min(tokens, group["window"]) + entries) * case.model["head_dim"] * case.precision["kv_bytes"]
        return resident + (entries * index_key_bytes(case) if indexes(group) else 0.0)
    index = tokens * index_key_bytes(case) if indexes(group) else 0.0
    if group.get("kv_shared"):
        return index
    for field in ("window", "chunk"):
        if group.get(field) is not None:
            tokens = min(tokens, group[field])
    return tokens * kv_bytes_per_token(case, group) + index


def parameter_count_kv_bytes_per_token(case):
    model = case.model
    if any(model.get(key) is None for key in ("n_layers", "n_kv_heads", "head_dim")):
        return 0.0
    return 2 * model["n_layers"] * case.local_kv_heads(model) * model["head_dim"] * case.precision["kv_bytes"]


# ----------------------------------------------------------------------------------------------- kernels of one layer


def gqa_projections(case, group):
    model, T = merged(case.model, group), case.T
    d, h_dim, v = model["hidden"], model["head_dim"], value_width(model)
    heads, kv_heads = case.local_heads(), case.local_kv_heads(model)
    width = heads * h_dim
    if not group.get("kv_shared"):
        width += kv_heads * h_dim
        if not group.get("k_eq_v"):
            width += kv_heads * v
    if model.get("output_gate"):
        width += heads * v
    gemms = [(T, d, width, d * width), (T, heads * v, d, heads * v * d)]
    if indexes(group):
        queries, keys = model["index_heads"] * model["index_dim"], model["index_dim"]
        gemms += [(T, d, queries, d * queries), (T, d, keys, d * keys)]
    return gemms


def is_expanded(case, group):
    """Whether keys and values are rebuilt from their latents."""
    if is_sparse(group):  # what is not chosen is not even read, but a prefill in which all is chosen is dense
        return case.phase == "prefill" and case.q + case.cached <= case.model["index_top_k"]
    return case.phase == "prefill" or case.options["mla"] == "expanded"


def rebuilt_tokens(case):
    return case.b_r * (case.q + case.cached if case.phase == "prefill" else case.seq_len)


def mla_projections(case, group):
    model, T = merged(case.model, group), case.T
    d, heads = model["hidden"], case.local_heads()
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora, q_lora = model["kv_lora_rank"], number(model, "q_lora_rank")
    gemms = []
    if q_lora:
        gemms.append((T, d, q_lora, d * q_lora))
        gemms.append((T, q_lora, heads * (nope + rope), q_lora * heads * (nope + rope)))
    else:
        gemms.append((T, d, heads * (nope + rope), d * heads * (nope + rope)))
    gemms.append((T, d, kv_lora + rope, d * (kv_lora + rope)))
    if is_expanded(case, group):
        gemms.append((rebuilt_tokens(case), kv_lora, heads * (nope + v), kv_lora * heads * (nope + v)))
    else:  # every head has its own matrix
        gemms.append((T * heads, nope, kv_lora, heads * nope * kv_lora))
        gemms.append((T * heads, kv_lora, v, heads * kv_lora * v))
    gemms.append((T, heads * v, d, heads * v * d))
    if model.get("output_gate"):
        gemms.append((T, d, heads * v, d * heads * v))
    if indexes(group):
        i_h, i_d = model["index_heads"], model["index_dim"]
        gemms.append((T, q_lora, i_h * i_d, q_lora * i_h * i_d))
        gemms.append((T, d, i_d, d * i_d))
    return gemms


def compressed_projections(case, group):
    model, T = merged(case.model, group), case.T
    d, heads, h_dim, q_lora = model["hidden"], case.local_heads(), model["head_dim"], model["q_lora_rank"]
    groups, o_lora = model["o_groups"] / case.tp, model["o_lora_rank"]
    per_group = model["n_heads"] * h_dim / model["o_groups"]
    gemms = [
        (T, d, q_lora, d * q_lora),
        (T, q_lora, heads * h_dim, q_lora * heads * h_dim),
        (T, d, h_dim, d * h_dim),
        (T * groups, per_group, o_lora, groups * per_group * o_lora),
        (T, groups * o_lora, d, groups * o_lora * d),
    ]
    if indexes(group):
        queries = model["index_heads"] * model["index_dim"]
        gemms.append((T, q_lora, queries, q_lora * queries))
    return gemms


def recurrent_widths(case, group):
    """Local widths of keys and of values."""
    model = case.model
    key_heads = model["linear_key_heads"] / case.tp
    if group["attention"] == "mamba2":
        key_heads = max(key_heads, 1)
    return key_heads * model["linear_key_dim"], model["linear_value_heads"] / case.tp * model["linear_value_dim"]


def recurrent_projections(case, group):
    model, T, kind = case.model, case.T, group["attention"]
    d, d_k = model["hidden"], model["linear_key_dim"]
    K, W = recurrent_widths(case, group)
    rank = number(model, "linear_gate_rank") if kind == "kda" else 0
    scalars = {"deltanet": 2, "mamba2": 1, "kda": 1, "lightning": 0}[kind] * model["linear_value_heads"] / case.tp
    width = 2 * K + W + (0 if rank else W) + scalars
    gemms = [(T, d, width, d * width), (T, W, d, W * d)]
    if rank:
        gemms += [(T, d, rank, d * rank), (T, rank, W, rank * W)]
    if kind == "kda":
        gemms += [(T, d, d_k, d * d_k), (T, d_k, K, d_k * K)]
    return gemms


PROJECTIONS = {
    "gqa": gqa_projections,
    "mla": mla_projections,
    "compressed": compressed_projections,
    **dict.fromkeys(RECURRENT, recurrent_projections),
}


def unquantised_projections(case, group):
    """GEMMs of an attention with the router's bytes: compressors, and the head weights of an indexer."""
    model, T, kind = case.model, case.T, group["attention"]
    d, widths = model["hidden"], []
    if group.get("compress") is not None:
        widths.append(2 * (2 if is_sparse(group) else 1) * model["head_dim"])
    if indexes(group) and kind != "gqa":
        widths.append(model["index_heads"])
    if indexes(group) and kind == "compressed":
        widths.append(4 * model["index_dim"])
    return [(T, d, width, d * width) for width in widths]


def convolution_weights(case, group):
    K, W = recurrent_widths(case, group)
    return (2 * K + W) * case.model["linear_conv"]


def local_attention_parameters(case, group):
    """Projection parameters held by one GPU."""
    if group["attention"] == "none":
        return 0.0
    resident = sum(elements for _, _, _, elements in PROJECTIONS[group["attention"]](case, group))
    return resident + (convolution_weights(case, group) if group["attention"] in RECURRENT else 0.0)


def projection_kernel(case, group):
    kernel = Kernel("attn_proj", case.precision["attention_compute"])
    kernel.add(case, PROJECTIONS[group["attention"]](case, group), "attention")
    if group["attention"] in RECURRENT and case.model["linear_conv"] > 0:
        K, W = recurrent_widths(case, group)
        kernel.flops += 2 * convolution_weights(case, group) * case.T
        kernel.weights += convolution_weights(case, group) * case.precision["attention_weight_bytes"]
        if case.gemm_traffic:
            kernel.activations += 2 * (2 * K + W) * case.T * case.b_act
    return kernel


def gqa_core(case, group):
    model, T = merged(case.model, group), case.T
    both = model["head_dim"] + value_width(model)
    heads, kv_heads = case.local_heads(), case.local_kv_heads(model)
    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.flops = 2 * both * heads * visible_pairs(case, group) * case.b_r
    written = 0 if group.get("kv_shared") else case.q
    core.kv = case.b_r * (kv_tokens_read(case, group) + written) * kv_bytes_per_token(case, group)
    if case.gemm_traffic:
        core.activations = T * both * heads * case.b_act
        if case.phase == "prefill":
            core.activations += T * both * kv_heads * case.b_act
    return core


def mla_core(case, group):
    model, T, heads = case.model, case.T, case.local_heads()
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora = model["kv_lora_rank"]
    pairs = visible_pairs(case, group) * case.b_r
    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.kv = case.b_r * (kv_tokens_read(case, group) + case.q) * kv_bytes_per_token(case, group)
    if is_expanded(case, group):
        core.flops = 2 * (nope + rope + v) * heads * pairs
        elements = (T + rebuilt_tokens(case)) * heads * (nope + rope + v)
    else:
        core.flops = 2 * (2 * kv_lora + rope) * heads * pairs
        elements = T * heads * (kv_lora + rope + kv_lora)
        if case.phase == "prefill":
            elements += T * (kv_lora + rope)
    if case.gemm_traffic:
        core.activations = elements * case.b_act
    return core


def compressed_core(case, group):
    model, ratio = case.model, group.get("compress")
    heads, h_dim = case.local_heads(), model["head_dim"]
    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.flops = 4 * h_dim * heads * visible_pairs(case, group) * case.b_r
    read, written = kv_tokens_read(case, group), case.q
    if ratio is not None:
        entries = cached_before(case) // ratio
        if is_sparse(group):
            entries = min(entries, case.q * model["index_top_k"])
        read += entries
        written += new_entries(case, ratio)
    core.kv = case.b_r * (read + written) * h_dim * case.precision["kv_bytes"]
    if case.gemm_traffic:
        core.activations = 2 * case.T * heads * h_dim * case.b_act
        if case.phase == "prefill":
            core.activations += case.b_r * written * h_dim * case.b_act
    return core


def recurrent_core(case, group):
    model = case.model
    K, W = recurrent_widths(case, group)
    heads, d_k, d_v = model["linear_value_heads"] / case.tp, model["linear_key_dim"], model["linear_value_dim"]
    delta = group["attention"] in ("deltanet", "kda")
    if case.phase == "decode":
        flops = (7 if delta else 5) * d_k * d_v
    else:
        C = min(model["linear_chunk"], case.q)
        scores = K / heads if group["attention"] == "mamba2" else d_k  # once per group, shared by its heads
        flops = 6 * d_k * d_v + 2 * C * (3 * d_k + 2 * d_v) if delta else 4 * d_k * d_v + 2 * C * (scores + d_v)
    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.flops = case.T * heads * flops
    moves = 2 if case.phase == "decode" or case.cached > 0 else 1
    core.kv = case.b_r * moves * state_bytes(case, group)
    if case.gemm_traffic:
        core.activations = case.T * (2 * K + 2 * W) * case.b_act
    return core


CORES = {
    "gqa": gqa_core,
    "mla": mla_core,
    "compressed": compressed_core,
    **dict.fromkeys(RECURRENT, recurrent_core),
}


def indexer_kernel(case, group):
    """Scores of all keys, or of all compressed entries."""
    model, ratio = case.model, group.get("compress")
    i_h, i_d = model["index_heads"], model["index_dim"]
    pairs = all_pairs(case) if ratio is None else seen_entries(numbers_of(case), ratio, math.inf)
    read = cached_before(case) if ratio is None else cached_before(case) // ratio
    written = case.q if ratio is None else new_entries(case, ratio)
    kernel = Kernel("indexer", case.precision["indexer_compute"])
    kernel.flops = 2 * i_h * i_d * pairs * case.b_r
    kernel.kv = case.b_r * (read + written) * index_key_bytes(case)
    if case.gemm_traffic:
        kernel.activations = case.T * i_h * i_d * case.b_act
        if case.phase == "prefill":
            kernel.activations += case.b_r * written * i_d * case.b_act
    return kernel


def attention_small_ops(case, group):
    model, T, kind = merged(case.model, group), case.T, group["attention"]
    d, residual = model["hidden"], streams(model) * model["hidden"]
    if is_parallel(model, group):
        residual = 0  # one for both blocks, counted with the MLP
    rotated = gated = scores = 0
    if kind in RECURRENT:
        _, gated = recurrent_widths(case, group)
    else:
        heads = case.local_heads()
        scores = heads * visible_pairs(case, group) * case.b_r
        if kind == "gqa":
            keys = 0 if group.get("kv_shared") else case.local_kv_heads(model)
            rotated = model["head_dim"] * (heads + keys) * model["rotary"]
            gated = heads * value_width(model) if model.get("output_gate") else 0
        else:
            rotated = model["qk_rope_head_dim"] * (heads + 1) * model["rotary"]
            gated = heads * model["v_head_dim"] if kind == "mla" and model.get("output_gate") else 0
    kernel = Kernel("small_ops", "bf16")
    if case.options["small_ops"] == "flops":
        kernel.flops = T * (4 * d + residual + 3 * rotated + 6 * gated) + 5 * scores
    else:
        kernel.activations = T * case.b_act * (2 * d + 2 * residual + 2 * rotated + 3 * gated)
    return kernel


def stream_gemm(case):
    """The mixing of residual streams before a block."""
    d, r = case.model["hidden"], streams(case.model)
    return case.T, r * d, (2 + r) * r, r * d * (2 + r) * r


def router_kernel(case, gemms):
    kernel = Kernel("router", case.precision["router_compute"])
    kernel.add(case, gemms, "router")
    return kernel


def attention_kernels(case, group):
    if group["attention"] == "none":
        return []
    kernels = [projection_kernel(case, group), CORES[group["attention"]](case, group)]
    if indexes(group):
        kernels.append(indexer_kernel(case, group))
    small = unquantised_projections(case, group)
    if streams(case.model) > 1:
        small.append(stream_gemm(case))
    if small:
        kernels.append(router_kernel(case, small))
    if case.options["small_ops"] != "none":
        kernels.append(attention_small_ops(case, group))
    return kernels


def mlp_kernel(case, name, precision_class, tokens, hidden, width, copies=1.0):
    """A (gate and) up GEMM and a down GEMM; the weights of `copies` such MLPs are read."""
    up = (matrices(case.model) - 1) * width
    kernel = Kernel(name, case.precision[precision_class + "_compute"])
    gemms = [(tokens, hidden, up, copies * hidden * up), (tokens, width, hidden, copies * width * hidden)]
    kernel.add(case, gemms, precision_class)
    return kernel


def binomial_cdf(j, n, p):
    return min(1.0, sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(j + 1)))


def distinct_experts(case):
    """Experts whose weights one rank (the slowest one) reads in a pass."""
    local = case.slots / case.ep
    p = 1 - max(0.0, 1 - case.model["top_k"] / case.slots) ** case.T_g
    if case.options["expert_load"] == "mean":
        distinct = local * p
    else:
        distinct = sum(1 - binomial_cdf(j, round(local), p) ** case.ep for j in range(round(local)))
    return distinct * case.options["distinct_factor"]


def mlp_small_ops(case, group):
    model, T = merged(case.model, group), case.T
    d, tp = model["hidden"], case.tp
    residual = streams(model) * d
    norm = 0 if is_parallel(model, group) else d  # else that of attention is for both
    gated = 0.0
    if is_dense(group):
        gated += T * model["intermediate"] / tp
    if is_routed(group):
        gated += T * number(model, "shared_intermediate") / tp
        gated += case.routed_tokens() * model["expert_intermediate"] / case.etp
    kernel = Kernel("small_ops", "bf16")
    if case.options["small_ops"] == "flops":
        kernel.flops = T * (4 * norm + residual) + gating_flops(model) * gated
    else:  # gate, up and product, or in and out
        kernel.activations = (T * (2 * norm + 2 * residual) + matrices(model) * gated) * case.b_act
    return kernel


def scoring_gemm(case):
    """Scores of all experts, and alongside them the gate of the shared ones."""
    d, width = case.model["hidden"], case.model["n_experts"] + (1 if case.model.get("shared_gate") else 0)
    return case.T, d, width, d * width


def shared_kernel(case):
    """Shared experts, and the projections to and from the width of the routed ones."""
    model = case.model
    d, tokens = model["hidden"], case.shared_tp / case.tp * case.T
    width = number(model, "shared_intermediate") / case.shared_tp
    kernel = mlp_kernel(case, "shared_experts", "shared_experts", tokens, d, width)
    if not has_shared(model):
        kernel = Kernel("shared_experts", kernel.compute_type)
    if model.get("expert_hidden") is not None:
        latent = model["expert_hidden"]
        kernel.add(case, [(case.T, d, latent, d * latent), (case.T, latent, d, latent * d)], "shared_experts")
    return kernel


def mlp_kernels(case, group):
    model = merged(case.model, group)
    if group["mlp"] == "none":
        return []
    kernels, routing = [], []
    if streams(model) > 1:
        routing.append(stream_gemm(case))
    if is_routed(group):
        routing.append(scoring_gemm(case))
    if routing:
        kernels.append(router_kernel(case, routing))
    if is_dense(group):
        r = case.dense_tp / case.tp
        width = model["intermediate"] / case.dense_tp
        kernels.append(mlp_kernel(case, "dense_mlp", "dense_mlp", r * case.T, model["hidden"], width))
    if is_routed(group):
        if has_shared(model) or model.get("expert_hidden") is not None:
            kernels.append(shared_kernel(case))
        width, copies = model["expert_intermediate"] / case.etp, distinct_experts(case)
        kernels.append(
            mlp_kernel(case, "routed_experts", "experts", case.routed_tokens(), expert_hidden(model), width, copies)
        )
    if case.options["small_ops"] != "none":
        kernels.append(mlp_small_ops(case, group))
    return kernels


# -------------------------------------------------------------------------- embedding, LM head, parameter-count models


def logits_tokens(case):
    return case.T if case.phase == "decode" else case.b_r


def embedding_kernel(case):
    kernel = Kernel("embedding", None)
    kernel.weights = case.T * case.model["hidden"] * case.precision["embedding_weight_bytes"]
    return kernel


def lm_head_kernel(case):
    d, vocab = case.model["hidden"], case.model["vocab"]
    tokens = logits_tokens(case) * case.lm_head_tp / case.tp
    local = vocab / case.lm_head_tp
    kernel = Kernel("lm_head", case.precision["lm_head_compute"])
    kernel.flops = 2 * tokens * d * local
    kernel.weights = d * local * case.precision["lm_head_weight_bytes"]
    kernel.activations = case.gemm_bytes(tokens, d, local, "lm_head")
    return kernel


def parameter_count_kernel(case):
    local = case.model["n_parameters"] / case.tp
    read = case.seq_len if case.phase == "decode" else case.cached
    kernel = Kernel("dense_mlp", case.precision["dense_mlp_compute"])
    kernel.flops = 2 * case.T * local
    kernel.weights = local * case.precision["dense_mlp_weight_bytes"]
    kernel.kv = case.b_r * (read + case.q) * parameter_count_kv_bytes_per_token(case)
    return kernel


# -------------------------------------------------------------------------------------------------------- collectives


class Collective:
    """Bytes sent by one GPU in one collective of `ranks` ranks, `members` of which share a link domain."""

    def __init__(self, kind, ranks, members, link, nic):
        self.kind, self.ranks, self.members, self.link, self.nic = kind, ranks, members, link, nic

    def time(self, case):
        if self.ranks <= 1 or self.link + self.nic <= 0:
            return 0.0
        gpu, efficiency = case.gpu, case.efficiency
        times = [0.0, 0.0]
        if self.link > 0:
            rate = gpu["link_bandwidth"]
            if gpu.get("link_pairwise") is not None:
                rate = min(rate, max(self.members - 1, 1) * gpu["link_pairwise"])
            times[0] = self.link / (efficiency["link_" + self.kind] * rate)
        if self.nic > 0:
            times[1] = self.nic / (efficiency["nic_" + self.kind] * gpu["nic_bandwidth"])
        if self.kind == "all_to_all" or case.options["hierarchy"] == "max":
            time = max(times)
        else:
            time = sum(times)
        messages = (2 if self.kind == "all_reduce" else 1) * (self.ranks - 1)
        return time + efficiency["latency_" + self.kind] + messages * efficiency["latency_message"]


def ring(kind, ranks, members, volume):
    """All-reduce, all-gather or reduce-scatter of a total volume."""
    factor = 2 if kind == "all_reduce" else 1
    nodes = ranks / members
    link = factor * (members - 1) / members * volume
    nic = factor * (nodes - 1) / nodes * volume / members
    return Collective(kind, ranks, members, link, nic)


def members_contiguous(case, ranks):
    return min(ranks, case.domain)


def members_strided(case, ranks):
    """Ranks that are tp apart: of a dp group, or of the gather of a wide MLP."""
    return min(ranks, max(case.domain / case.tp, 1))


def tp_all_reduce(case):
    volume = case.T * case.model["hidden"] * case.b_act
    return ring("all_reduce", case.tp, members_contiguous(case, case.tp), volume)


def wide_gathers(case, tokens, wide_tp, precision_class):
    r = wide_tp / case.tp
    if r <= 1:
        return []
    elements = r * tokens * case.model["hidden"]
    g = members_strided(case, r)
    return [
        ring("all_gather", r, g, elements * case.precision[precision_class + "_input_bytes"]),
        ring("reduce_scatter", r, g, elements * case.b_act),
    ]


def choose(a, k):
    """The binomial coefficient of a real a; none where even the last factor is missing."""
    if a <= k - 1:
        return 0.0
    return math.prod((a - i) / (i + 1) for i in range(int(k)))


def distinct_ranks(case):
    return case.ep * (1 - (1 - 1 / case.ep) ** case.model["top_k"])


def remote_nodes(case, nodes):
    """Expected other nodes that one token goes to."""
    if nodes <= 1:
        return 0.0
    k = case.model["top_k"]
    limit = case.options["max_nodes"]
    reachable = nodes if limit is None else min(limit, nodes)
    experts = case.model["n_experts"] * reachable / nodes
    every = choose(experts, k)
    missed = choose(experts - experts / reachable, k) / every if every > 0 else 0.0
    distinct = reachable * (1 - missed)
    return distinct * (nodes - 1) / nodes


def all_to_all(case, bytes_per_element):
    """Dispatch or combine."""
    ep = case.ep
    g = min(ep, max(case.domain / case.etp, 1))
    per_copy = case.T / case.tp * expert_hidden(case.model) * bytes_per_element * case.options["imbalance"]
    copies = case.options["dispatch_copies"]
    if copies == "auto":
        copies = "expert" if case.phase == "decode" else "node"
    if copies == "node":
        link = per_copy * distinct_ranks(case) * (g - 1) / g
        nic = per_copy * remote_nodes(case, ep / g)
    else:
        volume = per_copy * (case.model["top_k"] if copies == "expert" else distinct_ranks(case))
        link = volume * (g - 1) / ep
        nic = volume * (ep - g) / ep
    return Collective("all_to_all", ep, g, link, nic)


def moe_collectives(case, group):
    """Two lists: dispatch, combine and what belongs to them; and the others."""
    model, tp, dp, n, etp = case.model, case.tp, case.dp, case.n, case.etp
    d, b_act, b_in = model["hidden"], case.b_act, case.precision["experts_input_bytes"]
    latent = expert_hidden(model)
    all_to_alls, rest = [], []
    if case.ep > 1 and case.options["expert_comm"] == "all_to_all":
        all_to_alls.append(all_to_all(case, b_in))
        all_to_alls.append(all_to_all(case, b_act))
        if etp > 1:
            g = members_contiguous(case, etp)
            arriving = case.routed_tokens() * latent
            all_to_alls.append(ring("all_gather", etp, g, arriving * b_in))
            all_to_alls.append(ring("reduce_scatter", etp, g, arriving * b_act))
        if tp > 1 and (has_shared(model) or is_dense(group)):
            rest.append(tp_all_reduce(case))
    elif case.ep > 1:
        rest.append(ring("all_reduce", n, members_contiguous(case, n), case.T * d * b_act))
    elif dp == 1:
        rest.append(tp_all_reduce(case))
    else:
        rest.append(ring("all_gather", dp, members_strided(case, dp), case.T_g * latent * b_in))
        rest.append(ring("reduce_scatter", n, members_contiguous(case, n), case.T_g * latent * b_act))
        rest.append(ring("all_gather", tp, members_contiguous(case, tp), case.T * latent * b_act))
    if has_shared(model):
        rest += wide_gathers(case, case.T, case.shared_tp, "shared_experts")
    return all_to_alls, rest


def layer_collectives(case, group):
    all_to_alls, rest = [], []
    if group["attention"] != "none" and not is_parallel(case.model, group):
        rest.append(tp_all_reduce(case))
    if is_routed(group):
        all_to_alls, others = moe_collectives(case, group)
        rest += others
    elif is_dense(group):
        rest.append(tp_all_reduce(case))
    if is_dense(group):
        rest += wide_gathers(case, case.T, case.dense_tp, "dense_mlp")
    return all_to_alls, rest


def lm_head_collectives(case):
    tokens = logits_tokens(case)
    logits = tokens * case.model["vocab"] * case.b_act
    g = members_contiguous(case, case.lm_head_tp)
    return [*wide_gathers(case, tokens, case.lm_head_tp, "lm_head"), ring("all_gather", case.lm_head_tp, g, logits)]


# ----------------------------------------------------------------------------------------------------------- launches


def launches(gemm=0, attn_core=0, routed_experts=0):
    return {"launch_gemm": gemm, "launch_attn_core": attn_core, "launch_routed_experts": routed_experts}


def attention_launches(case, group):
    """GEMMs that are launched for an attention, those of an indexer included."""
    model, kind = case.model, group["attention"]
    if kind == "none":
        return 0
    count = 1 if indexes(group) else 0
    count += 1 if streams(model) > 1 else 0
    if kind == "gqa":
        return count + 2
    if kind == "mla":
        count += 2  # both steps down and the step up; or queries and the step down
        count += 1 if is_expanded(case, group) else 2
        return count + (2 if model.get("output_gate") else 1)
    if kind == "compressed":
        return count + 4 + (0 if group.get("compress") is None else 1)
    if kind == "kda":
        return count + (6 if number(model, "linear_gate_rank") else 4)
    return count + 2


def layer_launches(case, group):
    """Launches of one layer by what one of them costs."""
    model, counts = case.model, launches()
    counts["launch_gemm"] += attention_launches(case, group)
    if group["attention"] != "none":
        counts["launch_attn_core"] += 2 if indexes(group) else 1
    if group["mlp"] != "none" and streams(model) > 1:
        counts["launch_gemm"] += 1
    if is_dense(group):
        counts["launch_gemm"] += 2
    if is_routed(group):
        counts["launch_gemm"] += 1 + (2 if has_shared(model) else 0) + (0 if model.get("expert_hidden") is None else 2)
        counts["launch_routed_experts"] += 2
    return counts


def four_bit_experts(case):
    """How experts with four-bit weights are multiplied: as such, after conversion, or not said; None for wider ones."""
    if case.precision["experts_weight_bytes"] >= 1:
        return None
    return {"fp4": "fp4", "fp8": "fp4", "bf16": "w4", "fp16": "w4"}.get(case.precision["experts_compute"])


def expert_efficiency(case, name):
    """An efficiency of the routed experts: that of four-bit weights where it is known."""
    own = case.efficiency.get(f"{name}_{four_bit_experts(case)}")
    return case.efficiency[name] if own is None else own


def launch_time(case, counts):
    total = counts["launch_routed_experts"] * expert_efficiency(case, "launch_routed_experts")
    return total + sum(counts[name] * case.efficiency[name] for name in ("launch_gemm", "launch_attn_core"))


def compute_efficiency(case, kernel):
    """What a kernel reaches of the peak of its type."""
    efficiency = case.efficiency["compute_" + kernel.name]
    if kernel.name == "routed_experts" and case.dp > 1 and case.ep > 1:  # tokens arrive by all-to-all, expert by expert
        grouped = case.efficiency.get("compute_routed_experts_grouped")
        efficiency = efficiency if grouped is None else grouped
    if kernel.name in ("attn_proj", "dense_mlp", "shared_experts", "routed_experts"):
        efficiency *= case.efficiency.get("compute_" + kernel.compute_type, 1.0)
    return efficiency


def memory_efficiency(case, kernel):
    if kernel.name == "routed_experts":
        return expert_efficiency(case, "memory_routed_experts")
    return case.efficiency["memory_" + kernel.name]


# --------------------------------------------------------------------------------------------------- work of one pass


class Layer:
    """A group of equal layers: kernels by component, collectives by how they overlap, launches."""

    def __init__(self, count, components, all_to_alls, rest, launched):
        self.count, self.components, self.all_to_alls, self.rest = count, components, all_to_alls, rest
        self.launched = launched

    def kernels(self):
        return [kernel for component in self.components for kernel in component]


class Work:
    """What a pass does, and the overhead it pays: its layers, and the passes themselves."""

    def __init__(self, layers, tail, n_layers=0, n_passes=0):
        self.layers = layers  # list of Layer
        self.tail = tail  # list of (times, component, collectives in series with it)
        self.n_layers, self.n_passes = n_layers, n_passes

    def times(self, passes):
        layers = [Layer(passes * a.count, a.components, a.all_to_alls, a.rest, a.launched) for a in self.layers]
        tail = [(passes * times, component, collectives) for times, component, collectives in self.tail]
        return Work(layers, tail, passes * self.n_layers, passes * self.n_passes)

    def plus(self, other):
        layers, tail = self.layers + other.layers, self.tail + other.tail
        return Work(layers, tail, self.n_layers + other.n_layers, self.n_passes + other.n_passes)

    def items(self):
        """(times, kernels, collectives) of everything."""
        for layer in self.layers:
            yield layer.count, layer.kernels(), layer.all_to_alls + layer.rest
        yield from self.tail

    def total(self, attribute):
        return sum(times * sum(getattr(k, attribute) for k in kernels) for times, kernels, _ in self.items())

    def wire(self, attribute):
        total = 0.0
        for times, _, collectives in self.items():
            total += times * sum(getattr(c, attribute) for c in collectives if c.ranks > 1)
        return total


def group_layers(case, groups):
    m = case.options["micro_batches"]
    layers = []
    for group in groups:
        components = [attention_kernels(case, group), mlp_kernels(case, group)]
        collectives = layer_collectives(case, group)
        layers.append(Layer(m * group["count"], components, *collectives, layer_launches(case, group)))
    return layers


def outside_work(case):
    """Embedding and LM head, as far as they are priced."""
    tail = []
    if "embedding" in case.options["include"]:
        tail.append((1, [embedding_kernel(case)], []))
    if "lm_head" in case.options["include"]:
        tail.append((1, [lm_head_kernel(case)], lm_head_collectives(case)))
    return tail


def model_work(case, batch):
    """One pass of a model, without what drafts for it."""
    m = case.options["micro_batches"]
    priced = "layers" in case.options["include"]
    layers, tail = [], []
    if priced:
        case.set_batch(batch, m)
        if is_parameter_count(case.model):
            # the kernel stands for all layers; its all-reduces are two per layer
            rest = []
            if case.model.get("hidden") is not None:
                rest = [tp_all_reduce(case) for _ in range(2 * int(n_layers(case.model)))]
            layers.append(Layer(m, [[parameter_count_kernel(case)]], [], rest, launches(gemm=1)))
        else:
            layers = group_layers(case, case.model["groups"])
    case.set_batch(batch, 1)
    if not is_parameter_count(case.model):
        tail = outside_work(case)
    return Work(layers, tail, n_layers(case.model) if priced else 0, 1)


def module_work(case, batch):
    """One pass of the MTP module; `case` has one new token in decode."""
    m, d = case.options["micro_batches"], case.model["hidden"]
    priced = "layers" in case.options["include"]
    layers, tail = [], []
    if priced:
        case.set_batch(batch, m)
        projection = Kernel("dense_mlp", case.precision["dense_mlp_compute"])
        projection.add(case, [(case.T, 2 * d, d, 2 * d * d)], "dense_mlp")
        layers = [*group_layers(case, case.model["mtp"]), Layer(m, [[], [projection]], [], [], launches(gemm=1))]
    case.set_batch(batch, 1)
    if case.phase == "decode":
        tail = outside_work(case)
    return Work(layers, tail, sum(group["count"] for group in case.model["mtp"]) if priced else 0, 1)


def drafting_case(case):
    """The situation of a draft pass, None where nothing is priced."""
    drafter = case.options["drafter"]
    if drafter == "free" or (drafter == "mtp" and not case.model.get("mtp")):
        return None
    model = case.model if drafter == "mtp" else drafter
    options = {**case.options, "draft_tokens": 0, "drafter": "free"}
    ep = case.ep if has_moe(model) or drafter == "mtp" else 1
    records = (case.gpu, case.precision, case.efficiency, options)
    return Case(model, *records, case.phase, case.batch, case.seq_len, case.tp, case.dp, ep)


def pass_work(case, batch):
    """One pass and all draft passes that belong to it."""
    work = model_work(case, batch)
    draft = drafting_case(case)
    if draft is None:
        return work
    passes = case.options["draft_tokens"] if case.phase == "decode" else 1
    if passes == 0:
        return work
    one = module_work(draft, batch) if case.options["drafter"] == "mtp" else model_work(draft, batch)
    return work.plus(one.times(passes))


# --------------------------------------------------------------------------------------------------------------- time


def nothing():
    return dict.fromkeys(PARTS, 0.0)


def added(*parts_of):
    return {part: sum(parts[part] for parts in parts_of) for part in PARTS}


def scaled(parts, factor):
    return {part: factor * value for part, value in parts.items()}


def size(parts):
    return sum(parts.values())


def component_share(case, kernels):
    """The time of a component (one max over its kernels), by cause: memory time is split by the seconds of each."""
    memory, t_compute = nothing(), 0.0
    for kernel in kernels:
        rate = memory_efficiency(case, kernel) * case.gpu["hbm_bandwidth"]
        for cause in ("weights", "kv", "activations"):
            memory[cause] += getattr(kernel, cause) / rate
        if kernel.flops > 0:
            peak = case.gpu["peak_" + kernel.compute_type]
            t_compute += kernel.flops / (compute_efficiency(case, kernel) * peak)
    if t_compute >= size(memory):
        return {**nothing(), "compute": t_compute}
    return memory


def components_share(case, components):
    if case.options["granularity"] == "kernel":
        components = [[kernel] for component in components for kernel in component]
    return added(nothing(), *[component_share(case, component) for component in components])


def collectives_share(case, collectives):
    parts = nothing()
    parts["communication"] = sum(collective.time(case) for collective in collectives)
    return parts


def mix(x, y, overlap):
    if size(x) >= size(y):
        return added(x, scaled(y, 1 - overlap))
    return added(scaled(x, 1 - overlap), y)


def pass_time(case, work, batch):
    options, efficiency = case.options, case.efficiency
    total = nothing()
    for layer in work.layers:
        inner = mix(
            components_share(case, layer.components), collectives_share(case, layer.all_to_alls), options["overlap_ep"]
        )
        outer = mix(inner, collectives_share(case, layer.rest), options["overlap_tp"])
        total = added(total, scaled(outer, layer.count))
        total["overhead"] += layer.count * launch_time(case, layer.launched)
    for times, component, collectives in work.tail:
        one = added(components_share(case, [component]), collectives_share(case, collectives))
        total = added(total, scaled(one, times))
    total["overhead"] += work.n_layers * efficiency["tau_layer"] + work.n_passes * efficiency["tau_global"]
    if case.phase == "prefill" and batch / options["micro_batches"] * case.seq_len / case.dp > 512:
        total["overhead"] += work.n_layers * efficiency["tau_layer_prefill"]
    total["overhead"] += efficiency["tau_batch"] * batch + efficiency["tau_sequence"] * math.ceil(batch / case.dp)
    return total


def bottleneck_of(parts):
    memory = parts["weights"] + parts["kv"] + parts["activations"]
    resources = [
        ("compute", parts["compute"]),
        ("memory", memory),
        ("communication", parts["communication"]),
        ("overhead", parts["overhead"]),
    ]
    name = max(resources, key=lambda item: item[1])[0]  # the first of equal ones
    if name == "memory":
        name = max(("weights", "kv", "activations"), key=lambda cause: parts[cause])
    return name


# ----------------------------------------------------------------------------------------------------------- capacity


def layer_weight_bytes(case, group):
    model, precision = merged(case.model, group), case.precision
    d, r = model["hidden"], streams(model)
    resident = local_attention_parameters(case, group) * precision["attention_weight_bytes"]
    unquantised = sum(elements for _, _, _, elements in unquantised_projections(case, group))
    resident += unquantised * precision["router_weight_bytes"]
    if r > 1:
        resident += blocks(group) * r * d * (2 + r) * r * precision["router_weight_bytes"]
    if is_dense(group):
        resident += matrices(model) * d * model["intermediate"] / case.dense_tp * precision["dense_mlp_weight_bytes"]
    if is_routed(group):
        scored = model["n_experts"] + (1 if model.get("shared_gate") else 0)
        resident += d * scored * precision["router_weight_bytes"]
        shared = matrices(model) * d * number(model, "shared_intermediate") / case.shared_tp
        latent = 0 if model.get("expert_hidden") is None else 2 * d * model["expert_hidden"]
        resident += (shared + latent) * precision["shared_experts_weight_bytes"]
        expert = matrices(model) * expert_hidden(model) * model["expert_intermediate"] / case.etp
        resident += case.slots / case.ep * expert * precision["experts_weight_bytes"]
    return resident


def model_weight_bytes(case):
    """Weights of one GPU, without those of a drafter."""
    model, precision, tp = case.model, case.precision, case.tp
    if is_parameter_count(model):
        return model["n_parameters"] / tp * precision["dense_mlp_weight_bytes"]
    d = model["hidden"]
    embedded = model["vocab"] * d + number(model, "vision_parameters")
    total = embedded / tp * precision["embedding_weight_bytes"]
    if not model["tie_embeddings"]:
        total += model["vocab"] * d / case.lm_head_tp * precision["lm_head_weight_bytes"]
    return total + sum(group["count"] * layer_weight_bytes(case, group) for group in model["groups"])


def weight_bytes(case):
    draft, total = drafting_case(case), model_weight_bytes(case)
    if draft is None:
        return total
    if case.options["drafter"] != "mtp":
        return total + model_weight_bytes(draft)
    total += 2 * case.model["hidden"] ** 2 * case.precision["dense_mlp_weight_bytes"]
    return total + sum(group["count"] * layer_weight_bytes(draft, group) for group in case.model["mtp"])


def model_kv_bytes(case):
    if is_parameter_count(case.model):
        return case.held_tokens() * parameter_count_kv_bytes_per_token(case)
    return sum(group["count"] * held_bytes(case, group) for group in case.model["groups"])


def kv_bytes_per_sequence(case):
    draft, total = drafting_case(case), model_kv_bytes(case)
    if draft is None:
        return total
    if case.options["drafter"] != "mtp":
        return total + model_kv_bytes(draft)
    return total + sum(group["count"] * held_bytes(draft, group) for group in case.model["mtp"])


def memory_budget(case, weights):
    options, memory = case.options, case.gpu["memory_bytes"]
    fraction, used = options["memory_fraction"], options["used_at_start_bytes"]
    if options["memory_base"] == "total":
        budget = fraction * memory
    elif options["memory_base"] == "free_at_start":
        budget = fraction * (memory - used)
    else:
        budget = weights + fraction * (memory - used - weights)
    return budget - options["reserve_bytes"]


def largest_batch(case, budget, weights, per_sequence):
    if per_sequence == 0:
        return math.inf if weights <= budget else 0
    return max(0, case.dp * math.floor((budget - weights) / per_sequence))


# ------------------------------------------------------------------------------------------------------------- status


def group_problems(case, group):
    """Reasons for which one kind of layer cannot be split over tp."""
    model, tp, kind = merged(case.model, group), case.tp, group["attention"]
    if kind in RECURRENT:
        groups, heads = model["linear_key_heads"], model["linear_value_heads"]
        if not divides(tp, heads) or (kind != "mamba2" and not divides(tp, groups)):
            yield "tp_heads"
        if kind == "mamba2" and not divides(tp, groups) and not divides(groups, tp):
            yield "tp_kv_heads"
    elif kind != "none":
        if not divides(tp, model["n_heads"]):
            yield "tp_heads"
        if kind == "gqa" and not divides(tp, model["n_kv_heads"]) and not divides(model["n_kv_heads"], tp):
            yield "tp_kv_heads"
        if kind == "compressed" and not divides(tp, model["o_groups"]):
            yield "tp_width"
    if is_dense(group) and not divides(case.dense_tp, model["intermediate"]):
        yield "tp_width"


def split_problems(case, groups):
    """Reasons for which these layers cannot be split over the layout."""
    model = case.model
    for group in groups:
        yield from group_problems(case, group)
    if any(is_routed(group) for group in groups):
        if has_shared(model) and not divides(case.shared_tp, model["shared_intermediate"]):
            yield "tp_width"
        if not divides(case.ep, case.slots):
            yield "ep_layout"
        if not divides(case.etp, model["expert_intermediate"]):
            yield "etp_width"
        if model["top_k"] > model["n_experts"]:
            yield "top_k_beyond_experts"
        if case.options["expert_comm"] == "all_reduce" and case.ep > 1 and case.dp > 1:
            yield "expert_comm_needs_dp1"


def model_problems(case):
    """Reasons that a model, target or draft, alone decides."""
    model = case.model
    yield from split_problems(case, model.get("groups") or [])
    kv_heads = model.get("n_kv_heads") if is_parameter_count(model) else None
    if kv_heads is not None and not divides(case.tp, kv_heads) and not divides(kv_heads, case.tp):
        yield "tp_kv_heads"
    if model.get("max_seq_len") is not None and case.held_tokens() > model["max_seq_len"]:
        yield "seq_beyond_max"


def layout_problems(case, batch):
    """Reasons that the workload, the models and the layout alone decide."""
    if batch < 1 or case.seq_len < 1:
        yield "workload_below_one"
    for wide in (case.dense_tp, case.shared_tp, case.lm_head_tp):
        if not divides(case.tp, wide) or not divides(wide, case.n):
            yield "module_tp"
    if not divides(case.ep, case.n):
        yield "ep_layout"
    if case.ep > 1 and not has_moe(case.model):
        yield "ep_dense"
    yield from model_problems(case)
    draft = drafting_case(case)
    if case.options["drafter"] == "mtp" and draft is None:
        yield "no_mtp"
    elif case.options["drafter"] == "mtp":
        yield from split_problems(draft, case.model["mtp"])
    elif draft is not None:
        yield from model_problems(draft)
    for compute_type in compute_types(case):
        if case.gpu.get("peak_" + compute_type) is None:
            yield "no_peak"


def group_compute_types(case, groups):
    classes = set()
    for group in groups:
        if group["attention"] != "none":
            classes |= {"attention", "attn_core"}
        if indexes(group):
            classes.add("indexer")
        if streams(case.model) > 1 or is_routed(group) or unquantised_projections(case, group):
            classes.add("router")
        if is_dense(group):
            classes.add("dense_mlp")
        if is_routed(group):
            classes.add("experts")
            if has_shared(case.model) or case.model.get("expert_hidden") is not None:
                classes.add("shared_experts")
    return classes


def compute_types(case):
    classes = {"dense_mlp"} if is_parameter_count(case.model) else {"lm_head"}
    classes |= group_compute_types(case, case.model.get("groups") or [])
    drafter, draft = case.options["drafter"], drafting_case(case)
    if drafter == "mtp" and draft is not None:
        classes |= {"dense_mlp"} | group_compute_types(case, case.model["mtp"])
    types = {case.precision[name + "_compute"] for name in classes}
    if case.options["small_ops"] == "flops" and not is_parameter_count(case.model):
        types.add("bf16")
    return types | compute_types(draft) if isinstance(drafter, dict) else types


def network_problems(case, work):
    gpu = case.gpu
    if work.wire("link") > 0 and (gpu.get("link_bandwidth") is None or gpu.get("link_domain") is None):
        yield "no_link"
    if work.wire("nic") > 0 and gpu.get("nic_bandwidth") is None:
        yield "no_nic"


# ------------------------------------------------------------------------------------------------------------ results


def empty_result(status):
    numbers = ["step_time"] + ["time_" + part for part in PARTS]
    numbers += ["flops", "bytes_weights", "bytes_kv", "bytes_activations", "bytes_link", "bytes_nic"]
    numbers += ["weight_bytes", "kv_bytes_per_sequence", "memory_shortfall", "max_batch"]
    result = dict.fromkeys(numbers, NAN)
    result.update(status=status, bottleneck=None)
    return result


def evaluate(model, gpu, precision, efficiency, options, *, phase, batch, seq_len, tp=1, dp=1, ep=1):
    options = {**DEFAULT_OPTIONS, **(options or {})}
    case = Case(model, gpu, precision, efficiency, options, phase, batch, seq_len, tp, dp, ep)

    problems = set(layout_problems(case, batch))
    if not problems - PRICEABLE:  # else not even the work is defined
        work = pass_work(case, batch)
        problems |= set(network_problems(case, work))
    if problems:
        return empty_result(min(problems, key=INVALID.index))

    weights = weight_bytes(case)
    per_sequence = kv_bytes_per_sequence(case)
    budget = memory_budget(case, weights)
    max_batch = largest_batch(case, budget, weights, per_sequence)
    shortfall = max(0.0, weights + math.ceil(batch / dp) * per_sequence - budget)

    status = "ok"
    if batch > max_batch and options["on_infeasible"] != "ignore":
        status = "infeasible_memory"
        if options["on_infeasible"] == "clip" and max_batch >= 1:
            status = "clipped"
            batch = max_batch
            work = pass_work(case, batch)

    result = empty_result(status)
    result["weight_bytes"] = weights
    result["kv_bytes_per_sequence"] = per_sequence
    result["memory_shortfall"] = shortfall
    result["max_batch"] = max_batch
    result["flops"] = work.total("flops")
    for cause in ("weights", "kv", "activations"):
        result["bytes_" + cause] = work.total(cause)
    for wire in ("link", "nic"):
        result["bytes_" + wire] = work.wire(wire)
    if status != "infeasible_memory":
        parts = pass_time(case, work, batch)
        result["step_time"] = size(parts)
        for part in PARTS:
            result["time_" + part] = parts[part]
        result["bottleneck"] = bottleneck_of(parts)
    return result
