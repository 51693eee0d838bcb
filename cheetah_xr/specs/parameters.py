"""Count parameters exactly: every matrix and vector of a model's checkpoint."""

from __future__ import annotations

from .attention_kinds import ATTENTION_KINDS, Merged
from .layers import LayerGroup


def layer_parameters(m: Merged, group: LayerGroup, experts: int) -> int:
    """Parameters of one layer of which a token meets, or memory holds, `experts` routed experts."""
    blocks = (group.attention != "none") + (group.mlp != "none")
    norms = blocks if m.norms_per_layer is None else m.norms_per_layer
    streams = m.residual_streams
    # Hyper-connections: a mixing matrix, its bias and three scales, before attention and before the MLP.
    mixing = blocks * ((2 + streams) * streams * (streams * m.hidden + 1) + 3) if streams > 1 else 0
    vectors = norms * m.hidden + group.extra_parameters
    return int(
        ATTENTION_KINDS[group.attention].parameters(m, group) + mlp_parameters(m, group, experts) + vectors + mixing
    )


def outside_parameters(m: Merged) -> int:
    """Count embedding, LM head (once when tied), final norm and other parameters outside the layers."""
    streams = m.residual_streams
    merging = streams * streams * m.hidden + streams + 1 if streams > 1 else 0
    embeddings = m.vocab * m.hidden * (1 if m.tie_embeddings else 2)
    return int(embeddings + m.hidden + merging + m.extra_parameters)


def mtp_parameters(m: Merged, layers: int) -> int:
    """Count the parameters of the MTP module: its layers, the projection of state and embedding, three norms."""
    streams = m.residual_streams
    merging = streams * streams * m.hidden + streams + 1 if streams > 1 else 0
    return int(layers + 2 * m.hidden * m.hidden + 3 * m.hidden + merging)


def mlp_parameters(m: Merged, group: LayerGroup, experts: int) -> int:
    """Parameters of the MLP of one layer with `experts` routed experts counted."""
    dense = _mlp(m, m.hidden, m.intermediate) if group.mlp in ("dense", "moe+dense") else 0
    if not group.is_routed:
        return dense
    d, width = m.hidden, m.expert_hidden or m.hidden
    shared = _mlp(m, d, m.shared_intermediate) if m.shared_intermediate else 0
    latent = 2 * d * m.expert_hidden if m.expert_hidden else 0
    router = d * m.n_experts + (d if m.shared_gate else 0)
    bias = m.vocab * m.top_k if group.hash_routing else m.n_experts if m.router_bias else 0
    return int(dense + experts * _mlp(m, width, m.expert_intermediate) + shared + latent + router + bias)


def _mlp(m: Merged, hidden: int, intermediate: int) -> int:
    sides = 2 if m.gated else 1
    biases = sides * intermediate + hidden if m.mlp_bias else 0
    return int((sides + 1) * hidden * intermediate + biases)
