"""One valid point, for tests that make one argument invalid."""

import cheetah_xr as cx

MODEL, GPU = "llama-3.1-70b", "h100-sxm"
DEFAULTS = {"tp": 4, "batch": 32, "seq_len": 2048, "efficiency": "ideal"}


def evaluate(model=MODEL, gpu=GPU, **more):
    return cx.evaluate(model, gpu, **{**DEFAULTS, **more})
