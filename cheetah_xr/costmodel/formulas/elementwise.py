"""Elementwise operations between the GEMMs: FLOPs per element ([Qwen3-FLOPs], appendix A) and elements moved.

Elements moved are reads plus writes in units of the activation width (docs/explanation/cost-model.md, section 3.5).
"""

NORM_FLOPS = 4
ROPE_FLOPS = 3
SOFTMAX_FLOPS = 5
RESIDUAL_FLOPS = 1

NORM_MOVES = 2
ROPE_MOVES = 2
RESIDUAL_MOVES = 2


def gating_flops(gated: bool) -> int:
    """Return FLOPs per intermediate element of the activation, 6 with its gate ([Qwen3-FLOPs]), one less without."""
    return 6 if gated else 5


def gating_moves(gated: bool) -> int:
    """Return elements moved per intermediate element: gate and up in, product out; without a gate one in, one out."""
    return 3 if gated else 2
