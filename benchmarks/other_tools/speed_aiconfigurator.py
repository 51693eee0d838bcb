"""Measure points per second of aiconfigurator 0.12.0: decode of Llama-3.1-70B on H100, models and tables loaded."""

import functools
import logging

import timing
from aiconfigurator_core.sdk.backends.factory import get_backend
from aiconfigurator_core.sdk.config import RuntimeConfig
from aiconfigurator_core.sdk.config_builders import build_model_config
from aiconfigurator_core.sdk.engine import EngineHandle
from aiconfigurator_core.sdk.models import get_model
from aiconfigurator_core.sdk.perf_database import get_database_view

MODEL, SYSTEM, ENGINE = "meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "trtllm"


def static(tp, method):
    """Return a static estimate of one generated token through the Python SDK."""
    backend = get_backend(ENGINE)
    model = get_model(MODEL, build_model_config(tp, 1, 1, 1, 1, None, None, None, None, None), ENGINE)
    estimate = functools.partial(getattr(backend, method), model, get_database_view(SYSTEM, ENGINE, "current"))
    return lambda batch, length: estimate(RuntimeConfig(batch_size=batch, isl=length, osl=2), "static_gen")


def latency_only(tp):
    step = static(tp, "run_static_latency_only")
    return lambda batch, length: step(batch, length) / 1e3


def whole(tp):
    step = static(tp, "run_static")
    return lambda batch, length: step(batch, length).get_result_dict()["tpot"] / 1e3


def compiled(tp):
    """Return the compiled engine below the SDK, without any breakdown."""
    step = EngineHandle.compile(MODEL, SYSTEM, ENGINE, tp_size=tp).predict_decode_latency
    return lambda batch, length: step(batch, length, 2) / 1e3


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    timing.report(
        "aiconfigurator",
        {
            "static estimate": (whole, 5000),
            "static estimate, latency only": (latency_only, 5000),
            "compiled engine, one number": (compiled, 5000),
        },
    )
