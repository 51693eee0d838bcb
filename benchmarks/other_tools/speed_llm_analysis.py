"""Measure points per second of llm-analysis 0.2.2: Llama-2-70B on H100, configurations already read."""

import logging

import timing
from llm_analysis import analysis

analysis.logger.setLevel(logging.CRITICAL)


def decode(tp):
    """Return the time of one generated token; the package computes the prefill before it too."""
    whole = analysis.LLMAnalysis(
        analysis.get_model_config_by_name("upstage_Llama-2-70b-instruct-v2"),
        analysis.get_gpu_config_by_name("h100-sxm-80gb"),
        analysis.get_dtype_config_by_name("w16a16e16"),
        analysis.ParallelismConfig(tp_size=tp, sp_size=1),
    )
    return lambda batch, length: whole.inference(batch, length, 1)["decode_latency"]


if __name__ == "__main__":
    timing.report("llm-analysis", {"inference": (decode, 1000)})
