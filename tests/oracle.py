"""An independent scalar oracle of the cost model, for tests only.

Plain Python floats, standard library only, written from the definitions and not from the engine: it imports nothing
of the project. Records are plain dicts in SI units. It may branch on any value, and favours plainness over speed.
"""

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
}

INVALID = (
    "workload_below_one",
    "tp_heads",
    "tp_kv_heads",
    "tp_width",
    "wide_tp",
    "ep_layout",
    "ep_dense",
    "etp_width",
    "expert_comm_needs_dp1",
    "seq_beyond_max",
    "no_peak",
    "no_link",
    "no_nic",
)

PARTS = ("compute", "weights", "kv", "activations", "communication", "overhead")


# ------------------------------------------------------------------------------------------------------ small helpers


def number(record, key):
    """A number that is zero where the record does not know it."""
    value = record.get(key)
    return 0 if value is None else value


def is_lumped(model):
    return model.get("n_parameters") is not None and not model.get("groups")


def divides(a, b):
    return b % a == 0


def has_moe(model):
    return any(group["mlp"] == "moe" for group in model.get("groups") or [])


def has_dense(model):
    return any(group["mlp"] == "dense" for group in model.get("groups") or [])


def n_layers(model):
    if is_lumped(model):
        return number(model, "n_layers")
    return sum(group["count"] for group in model["groups"])


def matrices(model):
    """Matrices of an MLP or an expert: gate, up and down, or up and down only."""
    return 3 if model["gated"] else 2


def gating_flops(model):
    """Operations per element of the activation between them."""
    return 6 if model["gated"] else 5


# ----------------------------------------------------------------------------------------------------- the parameters


def attention_parameters(model, group):
    d, heads = model["hidden"], model["n_heads"]
    if group["attention"] == "gqa":
        head_dim, kv_heads = model["head_dim"], model["n_kv_heads"]
        count = d * head_dim * (2 * heads + 2 * kv_heads)
        if model.get("qkv_bias"):
            count += head_dim * (heads + 2 * kv_heads)
        if model.get("o_bias"):
            count += d
        if model.get("qk_norm"):
            count += 2 * head_dim
        return count
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora, q_lora = model["kv_lora_rank"], number(model, "q_lora_rank")
    if q_lora:
        count = d * q_lora + q_lora * heads * (nope + rope)
    else:
        count = d * heads * (nope + rope)
    count += d * (kv_lora + rope) + kv_lora * heads * (nope + v) + heads * v * d
    return count + q_lora + kv_lora  # the latent norms


def mlp_parameters(model, group, experts):
    d = model["hidden"]
    if group["mlp"] == "dense":
        return matrices(model) * d * model["intermediate"]
    count = d * model["n_experts"]
    if model.get("router_bias"):
        count += model["n_experts"]
    count += experts * matrices(model) * d * model["expert_intermediate"]
    return count + matrices(model) * d * number(model, "shared_intermediate")


def count_parameters(model, experts):
    d = model["hidden"]
    total = model["vocab"] * d * (1 if model["tie_embeddings"] else 2) + d
    for group in model["groups"]:
        layer = attention_parameters(model, group) + mlp_parameters(model, group, experts) + 2 * d
        total += group["count"] * layer
    return total


def n_parameters(model):
    if is_lumped(model):
        return model["n_parameters"]
    return count_parameters(model, number(model, "n_experts"))


def n_parameters_active(model):
    if is_lumped(model):
        return model["n_parameters"]
    return count_parameters(model, number(model, "top_k"))


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

    def local_kv_heads(self):
        return max(self.model["n_kv_heads"] / self.tp, 1)

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


# ------------------------------------------------------------------------------------------------- keys and KV tokens


def visible_pairs(case, group):
    """(query, key) pairs of one sequence."""
    window, chunk = group.get("window"), group.get("chunk")
    q, c, s = case.q, case.cached, case.seq_len
    if group["attention"] == "mla" or (window is None and chunk is None):
        if case.phase == "decode":
            return q * s + q * (q - 1) / 2
        if not case.options["causal"]:
            return q * (c + q)
        return q * c + q * (q + 1) / 2
    total = 0
    for i in range(int(q)):
        if case.phase == "decode":
            keys = s + i
        elif case.options["causal"]:
            keys = c + i + 1
        else:
            keys = c + q
        if chunk is not None and case.phase == "prefill":
            keys -= (c + i) // chunk * chunk  # those before the query's own chunk
            keys = min(keys, chunk)  # and, without a causal mask, none after it
        elif chunk is not None:
            keys = (keys - 1) % chunk + 1
        if window is not None:
            keys = min(keys, window)
        total += keys
    return total


def kv_tokens_read(case, group):
    """Cached tokens of one sequence read in one pass."""
    window, chunk = group.get("window"), group.get("chunk")
    if group["attention"] == "mla":
        window = chunk = None
    if case.phase == "decode":
        s = case.seq_len
        if window is not None:
            return min(s, window + case.q - 1)
        if chunk is not None:
            return (s - 1) % chunk + 1
        return s
    c = case.cached
    if window is not None:
        return min(c, window - 1)
    if chunk is not None:
        return c % chunk
    return c


def kv_tokens_held(case, group):
    """Tokens of one sequence kept in the cache of one layer."""
    tokens = case.seq_len + case.cached
    if group["attention"] == "gqa":
        if group.get("window") is not None:
            tokens = min(tokens, group["window"])
        if group.get("chunk") is not None:
            tokens = min(tokens, group["chunk"])
    return tokens


def kv_bytes_per_token(case, group):
    model, b_kv = case.model, case.precision["kv_bytes"]
    if group["attention"] == "gqa":
        return 2 * case.local_kv_heads() * model["head_dim"] * b_kv
    return (model["kv_lora_rank"] + model["qk_rope_head_dim"]) * b_kv


def lumped_kv_bytes_per_token(case):
    model = case.model
    if any(model.get(key) is None for key in ("n_layers", "n_kv_heads", "head_dim")):
        return 0.0
    return 2 * model["n_layers"] * case.local_kv_heads() * model["head_dim"] * case.precision["kv_bytes"]


# ----------------------------------------------------------------------------------------------- kernels of one layer


def local_attention_parameters(case, group):
    """Projection parameters held by one GPU."""
    model, tp = case.model, case.tp
    d, heads = model["hidden"], model["n_heads"]
    if group["attention"] == "gqa":
        return d * model["head_dim"] * (2 * case.local_heads() + 2 * case.local_kv_heads())
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora, q_lora = model["kv_lora_rank"], number(model, "q_lora_rank")
    if q_lora:
        query = d * q_lora + q_lora * heads * (nope + rope) / tp
    else:
        query = d * heads * (nope + rope) / tp
    kv_down = d * (kv_lora + rope)
    kv_up = kv_lora * heads * (nope + v) / tp
    output = heads * v * d / tp
    return query + kv_down + kv_up + output


def gqa_kernels(case, group):
    model, T = case.model, case.T
    d, h_dim = model["hidden"], model["head_dim"]
    heads, kv_heads = case.local_heads(), case.local_kv_heads()
    parameters = local_attention_parameters(case, group)
    visible = visible_pairs(case, group)

    proj = Kernel("attn_proj", case.precision["attention_compute"])
    proj.flops = 2 * T * parameters
    proj.weights = parameters * case.precision["attention_weight_bytes"]
    proj.activations = case.gemm_bytes(T, d, h_dim * (heads + 2 * kv_heads), "attention")
    proj.activations += case.gemm_bytes(T, h_dim * heads, d, "attention")

    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.flops = 4 * h_dim * heads * visible * case.b_r
    core.kv = case.b_r * (kv_tokens_read(case, group) + case.q) * kv_bytes_per_token(case, group)
    if case.gemm_traffic:
        core.activations = 2 * T * h_dim * heads * case.b_act
        if case.phase == "prefill":
            core.activations += T * 2 * kv_heads * h_dim * case.b_act
    return [proj, core]


def mla_kernels(case, group):
    model, T = case.model, case.T
    d, heads = model["hidden"], case.local_heads()
    nope, rope, v = model["qk_nope_head_dim"], model["qk_rope_head_dim"], model["v_head_dim"]
    kv_lora, q_lora = model["kv_lora_rank"], number(model, "q_lora_rank")
    visible = visible_pairs(case, group)
    expanded = case.phase == "prefill" or case.options["mla"] == "expanded"
    # tokens whose keys and values are expanded from the latent cache
    up_tokens = case.b_r * (case.q + case.cached if case.phase == "prefill" else case.seq_len)

    gemms = []  # rows, K, N
    if q_lora:
        gemms.append((T, d, q_lora))
        gemms.append((T, q_lora, heads * (nope + rope)))
    else:
        gemms.append((T, d, heads * (nope + rope)))
    gemms.append((T, d, kv_lora + rope))
    if expanded:
        gemms.append((up_tokens, kv_lora, heads * (nope + v)))
    else:
        gemms.append((T * heads, nope, kv_lora))
        gemms.append((T * heads, kv_lora, v))
    gemms.append((T, heads * v, d))

    proj = Kernel("attn_proj", case.precision["attention_compute"])
    proj.flops = sum(2 * m * k * n for m, k, n in gemms)
    proj.weights = local_attention_parameters(case, group) * case.precision["attention_weight_bytes"]
    proj.activations = sum(case.gemm_bytes(m, k, n, "attention") for m, k, n in gemms)

    core = Kernel("attn_core", case.precision["attn_core_compute"])
    core.kv = case.b_r * (kv_tokens_read(case, group) + case.q) * kv_bytes_per_token(case, group)
    if expanded:
        core.flops = 2 * (nope + rope + v) * heads * visible * case.b_r
        elements = T * heads * (nope + rope + v) + up_tokens * heads * (nope + rope + v)
    else:
        core.flops = 2 * (2 * kv_lora + rope) * heads * visible * case.b_r
        elements = T * heads * (kv_lora + rope + kv_lora)
    if case.gemm_traffic:
        core.activations = elements * case.b_act
    return [proj, core]


def attention_small_ops(case, group):
    model, T = case.model, case.T
    d = model["hidden"]
    if group["attention"] == "gqa":
        rotated = model["head_dim"] * (case.local_heads() + case.local_kv_heads())
    else:
        rotated = model["qk_rope_head_dim"] * (case.local_heads() + 1)
    kernel = Kernel("small_ops", "bf16")
    if case.options["small_ops"] == "flops":
        softmax = 5 * case.local_heads() * visible_pairs(case, group) * case.b_r
        kernel.flops = T * (4 * d + 3 * rotated + d) + softmax
    else:
        kernel.activations = T * case.b_act * (4 * d + 2 * rotated)
    return kernel


def attention_kernels(case, group):
    kernels = gqa_kernels(case, group) if group["attention"] == "gqa" else mla_kernels(case, group)
    if case.options["small_ops"] != "none":
        kernels.append(attention_small_ops(case, group))
    return kernels


def mlp_kernel(case, name, precision_class, tokens, width, matrix_count, copies=1.0):
    """A (gate and) up GEMM and a down GEMM; the weights of `copies` such MLPs are read."""
    d = case.model["hidden"]
    parameters = matrix_count * d * width
    kernel = Kernel(name, case.precision[precision_class + "_compute"])
    kernel.flops = 2 * tokens * parameters
    kernel.weights = copies * parameters * case.precision[precision_class + "_weight_bytes"]
    kernel.activations = case.gemm_bytes(tokens, d, (matrix_count - 1) * width, precision_class)
    kernel.activations += case.gemm_bytes(tokens, width, d, precision_class)
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
    model, T = case.model, case.T
    d, tp = model["hidden"], case.tp
    kernel = Kernel("small_ops", "bf16")
    if group["mlp"] == "dense":
        f = model["intermediate"]
        flops = T * (4 * d + d + gating_flops(model) * f / tp)
        elements = T * (4 * d + matrices(model) * f / tp)
    else:
        f_s, f_e = number(model, "shared_intermediate"), model["expert_intermediate"]
        moves = matrices(model)  # gate, up and product, or in and out
        flops = T * (4 * d + d + gating_flops(model) * f_s / tp)
        flops += case.routed_tokens() * gating_flops(model) * f_e / case.etp
        elements = T * (4 * d + moves * f_s / tp) + case.routed_tokens() * moves * f_e / case.etp
    if case.options["small_ops"] == "flops":
        kernel.flops = flops
    else:
        kernel.activations = elements * case.b_act
    return kernel


def mlp_kernels(case, group):
    model, T = case.model, case.T
    kernels = []
    if group["mlp"] == "dense":
        r = case.dense_tp / case.tp
        width = model["intermediate"] / case.dense_tp
        kernels.append(mlp_kernel(case, "dense_mlp", "dense_mlp", r * T, width, matrices(model)))
    else:
        d, experts = model["hidden"], model["n_experts"]
        router = Kernel("router", case.precision["router_compute"])
        router.flops = 2 * T * d * experts
        router.weights = d * experts * case.precision["router_weight_bytes"]
        router.activations = case.gemm_bytes(T, d, experts, "router")
        kernels.append(router)
        if number(model, "shared_intermediate"):
            r = case.shared_tp / case.tp
            width = model["shared_intermediate"] / case.shared_tp
            kernels.append(mlp_kernel(case, "shared_experts", "shared_experts", r * T, width, matrices(model)))
        width = model["expert_intermediate"] / case.etp
        kernels.append(
            mlp_kernel(
                case,
                "routed_experts",
                "experts",
                case.routed_tokens(),
                width,
                matrices(model),
                copies=distinct_experts(case),
            )
        )
    if case.options["small_ops"] != "none":
        kernels.append(mlp_small_ops(case, group))
    return kernels


# ---------------------------------------------------------------------------------- embedding, LM head, lumped models


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


def lumped_kernel(case):
    local = case.model["n_parameters"] / case.tp
    read = case.seq_len if case.phase == "decode" else case.cached
    kernel = Kernel("dense_mlp", case.precision["dense_mlp_compute"])
    kernel.flops = 2 * case.T * local
    kernel.weights = local * case.precision["dense_mlp_weight_bytes"]
    kernel.kv = case.b_r * (read + case.q) * lumped_kv_bytes_per_token(case)
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
    """The binomial coefficient of a real a."""
    if a < k:
        return 0.0
    return math.exp(math.lgamma(a + 1) - math.lgamma(k + 1) - math.lgamma(a - k + 1))


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
    per_copy = case.T / case.tp * case.model["hidden"] * bytes_per_element * case.options["imbalance"]
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


def moe_collectives(case):
    """Two lists: dispatch, combine and what belongs to them; and the others."""
    model, tp, dp, n, etp = case.model, case.tp, case.dp, case.n, case.etp
    d, b_act, b_in = model["hidden"], case.b_act, case.precision["experts_input_bytes"]
    exchange, rest = [], []
    if case.ep > 1 and case.options["expert_comm"] == "all_to_all":
        exchange.append(all_to_all(case, b_in))
        exchange.append(all_to_all(case, b_act))
        if etp > 1:
            g = members_contiguous(case, etp)
            arriving = case.routed_tokens() * d
            exchange.append(ring("all_gather", etp, g, arriving * b_in))
            exchange.append(ring("reduce_scatter", etp, g, arriving * b_act))
        if tp > 1 and number(model, "shared_intermediate"):
            rest.append(tp_all_reduce(case))
    elif case.ep > 1:
        rest.append(ring("all_reduce", n, members_contiguous(case, n), case.T * d * b_act))
    elif dp == 1:
        rest.append(tp_all_reduce(case))
    else:
        rest.append(ring("all_gather", dp, members_strided(case, dp), case.T_g * d * b_in))
        rest.append(ring("reduce_scatter", n, members_contiguous(case, n), case.T_g * d * b_act))
        rest.append(ring("all_gather", tp, members_contiguous(case, tp), case.T * d * b_act))
    if number(model, "shared_intermediate"):
        rest += wide_gathers(case, case.T, case.shared_tp, "shared_experts")
    return exchange, rest


def layer_collectives(case, group):
    exchange, rest = [], [tp_all_reduce(case)]  # after attention
    if group["mlp"] == "dense":
        rest.append(tp_all_reduce(case))
        rest += wide_gathers(case, case.T, case.dense_tp, "dense_mlp")
    else:
        exchange, others = moe_collectives(case)
        rest += others
    return exchange, rest


def lm_head_collectives(case):
    tokens = logits_tokens(case)
    logits = tokens * case.model["vocab"] * case.b_act
    g = members_contiguous(case, case.lm_head_tp)
    return [*wide_gathers(case, tokens, case.lm_head_tp, "lm_head"), ring("all_gather", case.lm_head_tp, g, logits)]


# --------------------------------------------------------------------------------------------------- work of one pass


class Layer:
    """A group of equal layers: kernels by component, and collectives by how they overlap."""

    def __init__(self, count, components, exchange, rest):
        self.count, self.components, self.exchange, self.rest = count, components, exchange, rest

    def kernels(self):
        return [kernel for component in self.components for kernel in component]


class Work:
    def __init__(self, layers, tail):
        self.layers = layers  # list of Layer
        self.tail = tail  # list of (component, collectives in series with it)

    def items(self):
        """(times, kernels, collectives) of everything."""
        for layer in self.layers:
            yield layer.count, layer.kernels(), layer.exchange + layer.rest
        for component, collectives in self.tail:
            yield 1, component, collectives

    def total(self, attribute):
        return sum(times * sum(getattr(k, attribute) for k in kernels) for times, kernels, _ in self.items())

    def wire(self, attribute):
        total = 0.0
        for times, _, collectives in self.items():
            total += times * sum(getattr(c, attribute) for c in collectives if c.ranks > 1)
        return total


def pass_work(case, batch):
    options = case.options
    include = options["include"]
    m = options["micro_batches"]
    layers, tail = [], []

    if "layers" in include:
        case.set_batch(batch, m)
        if is_lumped(case.model):
            # the kernel stands for all layers; its all-reduces are two per layer
            rest = []
            if case.model.get("hidden") is not None:
                rest = [tp_all_reduce(case) for _ in range(2 * int(n_layers(case.model)))]
            layers.append(Layer(m, [[lumped_kernel(case)]], [], rest))
        else:
            for group in case.model["groups"]:
                components = [attention_kernels(case, group), mlp_kernels(case, group)]
                exchange, rest = layer_collectives(case, group)
                layers.append(Layer(m * group["count"], components, exchange, rest))

    case.set_batch(batch, 1)
    if not is_lumped(case.model):
        if "embedding" in include:
            tail.append(([embedding_kernel(case)], []))
        if "lm_head" in include:
            tail.append(([lm_head_kernel(case)], lm_head_collectives(case)))
    return Work(layers, tail)


# --------------------------------------------------------------------------------------------------------------- time


def nothing():
    return dict.fromkeys(PARTS, 0.0)


def added(*shares):
    return {part: sum(share[part] for share in shares) for part in PARTS}


def scaled(share, factor):
    return {part: factor * value for part, value in share.items()}


def size(share):
    return sum(share.values())


def component_share(case, kernels):
    """The time of a component (one max over its kernels), by cause: memory time is split by the seconds of each."""
    memory, t_compute = nothing(), 0.0
    for kernel in kernels:
        rate = case.efficiency["memory_" + kernel.name] * case.gpu["hbm_bandwidth"]
        for cause in ("weights", "kv", "activations"):
            memory[cause] += getattr(kernel, cause) / rate
        if kernel.flops > 0:
            peak = case.gpu["peak_" + kernel.compute_type]
            t_compute += kernel.flops / (case.efficiency["compute_" + kernel.name] * peak)
    if t_compute >= size(memory):
        return {**nothing(), "compute": t_compute}
    return memory


def components_share(case, components):
    if case.options["granularity"] == "kernel":
        components = [[kernel] for component in components for kernel in component]
    return added(nothing(), *[component_share(case, component) for component in components])


def collectives_share(case, collectives):
    share = nothing()
    share["communication"] = sum(collective.time(case) for collective in collectives)
    return share


def mix(x, y, overlap):
    if size(x) >= size(y):
        return added(x, scaled(y, 1 - overlap))
    return added(scaled(x, 1 - overlap), y)


def pass_time(case, work, batch):
    options, efficiency = case.options, case.efficiency
    total = nothing()
    for layer in work.layers:
        inner = mix(
            components_share(case, layer.components), collectives_share(case, layer.exchange), options["overlap_ep"]
        )
        outer = mix(inner, collectives_share(case, layer.rest), options["overlap_tp"])
        total = added(total, scaled(outer, layer.count))
    for component, collectives in work.tail:
        total = added(total, components_share(case, [component]), collectives_share(case, collectives))
    layers = n_layers(case.model) if "layers" in options["include"] else 0
    total["overhead"] += layers * efficiency["tau_layer"] + efficiency["tau_global"]
    total["overhead"] += efficiency["tau_batch"] * batch
    return total


def bottleneck_of(share):
    memory = share["weights"] + share["kv"] + share["activations"]
    resources = [
        ("compute", share["compute"]),
        ("memory", memory),
        ("communication", share["communication"]),
        ("overhead", share["overhead"]),
    ]
    name = max(resources, key=lambda item: item[1])[0]  # the first of equal ones
    if name == "memory":
        name = max(("weights", "kv", "activations"), key=lambda cause: share[cause])
    return name


# ----------------------------------------------------------------------------------------------------------- capacity


def weight_bytes(case):
    model, precision, tp = case.model, case.precision, case.tp
    if is_lumped(model):
        return model["n_parameters"] / tp * precision["dense_mlp_weight_bytes"]
    d = model["hidden"]
    total = model["vocab"] * d / tp * precision["embedding_weight_bytes"]
    if not model["tie_embeddings"]:
        total += model["vocab"] * d / case.lm_head_tp * precision["lm_head_weight_bytes"]
    for group in model["groups"]:
        layer = local_attention_parameters(case, group) * precision["attention_weight_bytes"]
        if group["mlp"] == "dense":
            layer += matrices(model) * d * model["intermediate"] / case.dense_tp * precision["dense_mlp_weight_bytes"]
        else:
            layer += d * model["n_experts"] * precision["router_weight_bytes"]
            shared = matrices(model) * d * number(model, "shared_intermediate") / case.shared_tp
            layer += shared * precision["shared_experts_weight_bytes"]
            expert = matrices(model) * d * model["expert_intermediate"] / case.etp
            layer += case.slots / case.ep * expert * precision["experts_weight_bytes"]
        total += group["count"] * layer
    return total


def kv_bytes_per_sequence(case):
    if is_lumped(case.model):
        return (case.seq_len + case.cached) * lumped_kv_bytes_per_token(case)
    return sum(
        group["count"] * kv_tokens_held(case, group) * kv_bytes_per_token(case, group) for group in case.model["groups"]
    )


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


def layout_status(case, batch):
    """The first invalid status that the workload, the model and the layout alone decide, or None."""
    model, options = case.model, case.options
    tp, dp, ep, n = case.tp, case.dp, case.ep, case.n
    groups = model.get("groups") or []
    if batch < 1 or case.seq_len < 1:
        return "workload_below_one"
    if model.get("n_heads") is not None and not divides(tp, model["n_heads"]):
        return "tp_heads"
    replicates = is_lumped(model) or any(group["attention"] == "gqa" for group in groups)
    kv_heads = model.get("n_kv_heads")
    if replicates and kv_heads is not None and not divides(tp, kv_heads) and not divides(kv_heads, tp):
        return "tp_kv_heads"
    if has_dense(model) and not divides(case.dense_tp, model["intermediate"]):
        return "tp_width"
    shared = has_moe(model) and number(model, "shared_intermediate") > 0
    if shared and not divides(case.shared_tp, model["shared_intermediate"]):
        return "tp_width"
    for wide in (case.dense_tp, case.shared_tp, case.lm_head_tp):
        if not divides(tp, wide) or not divides(wide, n):
            return "wide_tp"
    if not divides(ep, n) or (has_moe(model) and not divides(ep, case.slots)):
        return "ep_layout"
    if ep > 1 and not has_moe(model):
        return "ep_dense"
    if has_moe(model) and not divides(case.etp, model["expert_intermediate"]):
        return "etp_width"
    if options["expert_comm"] == "all_reduce" and ep > 1 and dp > 1:
        return "expert_comm_needs_dp1"
    if model.get("max_seq_len") is not None and case.seq_len + case.cached > model["max_seq_len"]:
        return "seq_beyond_max"
    for compute_type in compute_types(case):
        if case.gpu.get("peak_" + compute_type) is None:
            return "no_peak"
    return None


def compute_types(case):
    model, precision = case.model, case.precision
    if is_lumped(model):
        return [precision["dense_mlp_compute"]]
    types = [precision["attention_compute"], precision["attn_core_compute"], precision["lm_head_compute"]]
    if has_dense(model):
        types.append(precision["dense_mlp_compute"])
    if has_moe(model):
        types += [precision["experts_compute"], precision["router_compute"]]
        if number(model, "shared_intermediate"):
            types.append(precision["shared_experts_compute"])
    if case.options["small_ops"] == "flops":
        types.append("bf16")
    return types


def network_status(case, work):
    gpu = case.gpu
    if work.wire("link") > 0 and (gpu.get("link_bandwidth") is None or gpu.get("link_domain") is None):
        return "no_link"
    if work.wire("nic") > 0 and gpu.get("nic_bandwidth") is None:
        return "no_nic"
    return None


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

    status = layout_status(case, batch)
    if status is not None:
        return empty_result(status)
    work = pass_work(case, batch)
    status = network_status(case, work)
    if status is not None:
        return empty_result(status)

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
        share = pass_time(case, work, batch)
        result["step_time"] = size(share)
        for part in PARTS:
            result["time_" + part] = share[part]
        result["bottleneck"] = bottleneck_of(share)
    return result
