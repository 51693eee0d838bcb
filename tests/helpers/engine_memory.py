"""Memory that serving engines logged alongside what the cost model says; behind docs/evidence/engine-memory.md.

``python -m tests.helpers.engine_memory`` renews the table of that page.
"""

import csv
import math
import re
from dataclasses import dataclass

import cheetah_xr as cx
from tests.helpers import DATA, DOCS

GIB = 2**30
DOC = DOCS / "evidence" / "engine-memory.md"

TOLERANCE = {"weights": 0.01, "pool": 0.1, "tokens": 0.012, "sequence": 0.01}
"""Largest error: of the pool in GiB, of the others as a fraction of the log."""

EXCEPTIONS = {
    ("3090-llama-8b-29k", "tokens"): 0.0129,
    ("h200-v4-pro-tp8", "weights"): -0.1902,
    ("b200-v4-flash-dp8", "tokens"): 0.9614,
    ("5090-qwen3.6-35b", "tokens"): 0.0552,
    ("gh200-v4-flash-tp2", "sequence"): -0.9834,
}
"""Errors above the tolerance, as measured; the reason is in the row."""

QWEN_1_5_7B = {
    "name": "qwen1.5-7b",
    "hidden": 4096,
    "vocab": 151936,
    "n_heads": 32,
    "n_kv_heads": 32,
    "head_dim": 128,
    "intermediate": 11008,
    "qkv_bias": True,
    "groups": [{"count": 32, "attention": "gqa", "mlp": "dense"}],
}
"""Config of Qwen/Qwen1.5-7B: not in the catalogue."""

V4 = cx.load_precision("fp8-fp4-experts")
PRECISIONS = {
    # 448 elements in 8 bits with 8 bytes of scales and 64 rotary ones in 16 bits; index keys of 128 and a scale.
    "v4-kv8": V4.model_copy(update={"kv_bytes": 584 / 512, "index_bytes": 132 / 128}),
    # The scales of the experts a second time, in float32.
    "v4-scales-twice": V4.model_copy(update={"experts_weight_bytes": V4.experts_weight_bytes + 4 / 32}),
}
BASES = {"vllm": "total", "sglang": "free_at_start", "trtllm": "free_after_load"}
TEXTS = ("row", "source", "engine", "version", "model", "used", "gpu", "memory_from", "precision", "compared", "reason")


@dataclass(frozen=True)
class Row:
    """One row of data/engine_memory.csv: sizes of one GPU in GiB, None where the log does not say."""

    row: str
    source: str
    engine: str
    version: str
    model: str
    used: str
    gpu: str
    memory_gib: float | None
    memory_from: str
    gpus: float | None
    tp: float | None
    dp: float | None
    fraction: float | None
    precision: str
    activation_gib: float | None
    other_gib: float | None
    free_gib: float | None
    weights_gib: float | None
    pool_gib: float | None
    needed_gib: float | None
    tokens: float | None
    max_model_len: float | None
    concurrency: float | None
    compared: str
    reason: str

    @property
    def quantities(self) -> list[str]:
        """What is compared with the model, to a tolerance."""
        return [] if self.compared in ("none", "limit") else self.compared.split()


def rows() -> list[Row]:
    with (DATA / "engine_memory.csv").open(encoding="utf-8", newline="") as file:
        return [
            Row(**{name: text if name in TEXTS else float(text) if text else None for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


ROWS = {row.row: row for row in rows()}


# ---- the model's side


def gib_per_gpu(row: Row, *, precision=None, seq_len=None, **options) -> dict[str, float]:
    """Weights, budget and bytes of one sequence on one GPU, GiB, from the engine."""
    card = {
        "name": row.gpu or "card",
        "memory_bytes": (row.memory_gib or 1024) * GIB,
        "hbm_bandwidth_gb_s": 1000,
        "peak_bf16_tflops": 100,
    }
    kept = cx.explain_memory(
        QWEN_1_5_7B if row.used == QWEN_1_5_7B["name"] else row.used,
        card,
        PRECISIONS.get(row.precision, row.precision) if precision is None else precision,
        seq_len=int(seq_len or row.max_model_len or 1),
        batch=int(row.dp or 1),
        tp=int(row.tp or 1),
        dp=int(row.dp or 1),
        ep=int(row.dp or 1),
        options=cx.Options(**options),
    )
    size = kept.set_index("what").bytes / GIB
    return {"weights": size["all weights"], "budget": size["budget"], "sequence": size["one sequence"]}


def options_of(row: Row) -> dict[str, object]:
    """The engine's rule for its budget, with what the log states."""
    options = {
        "memory_base": BASES[row.engine],
        "memory_fraction": row.fraction or 0.9,
        "reserve_bytes": ((row.activation_gib or 0) + (row.other_gib or 0)) * GIB,
    }
    if row.free_gib is not None:
        loaded = gib_per_gpu(row)["weights"] if row.engine == "trtllm" else 0.0
        options["used_at_start_bytes"] = (row.memory_gib - row.free_gib - loaded) * GIB
    return options


def predicted(row: Row) -> dict[str, float]:
    """Weights, pool, tokens in the pool, and one sequence of the longest length."""
    size = gib_per_gpu(row, **options_of(row))
    pool = size["budget"] - size["weights"]
    # Where the log states its pool but not its activations, its tokens can be compared and its pool cannot.
    room = row.pool_gib if row.pool_gib is not None and row.activation_gib is None and row.compared != "limit" else pool
    tokens = room / size["sequence"] * (row.max_model_len or 1)
    return {"weights": size["weights"], "pool": pool, "tokens": tokens, "sequence": size["sequence"]}


def logged(row: Row, quantity: str) -> float:
    name = {"tokens": "tokens", "sequence": "needed_gib"}.get(quantity, f"{quantity}_gib")
    value = getattr(row, name)
    assert value is not None, f"{row.row} has no {name}"
    return value


def error(row: Row, quantity: str) -> float:
    """Model less log: of the pool in GiB, of the others as a fraction of the log."""
    difference = predicted(row)[quantity] - logged(row, quantity)
    return difference if quantity == "pool" else difference / logged(row, quantity)


# ---- what engines keep on top of the content


def v4_pro_extra(tp: int = 8) -> dict[str, float]:
    """GiB of one GPU that the image of row h200-v4-pro-tp8 held on top of what the precision counts, by tensor."""
    m = cx.load_model("deepseek-v4-pro")
    layers = m.n_layers
    chosen = sum(g.count for g in m.groups if g.indexer == "own")
    summed = sum(g.count for g in m.groups if g.compress) - chosen
    extra = {
        "scales of the experts, again in float32": 4
        / 32
        * layers
        * m.n_experts
        * 3
        * m.hidden
        * m.expert_intermediate
        / tp,
        "first half of the output projection in 16 bits": layers * m.n_heads * m.head_dim * m.o_lora_rank / tp,
        "hyper-connections in float32": 2 * layers * 2 * (2 + 4) * 4 * 4 * m.hidden,
        "two rotary tables in float32": 2 * 4 * m.max_seq_len * m.qk_rope_head_dim,
        "tables of the hash-routed layers": 3 * 4 * m.vocab * m.top_k,
        "positions inside entries in float32": 4
        * (chosen * 4 * 2 * (m.head_dim + m.index_dim) + summed * 128 * m.head_dim),
    }
    return {name: size / GIB for name, size in extra.items()}


V4_BLOCK = 22 * (37_440 + 8_640 + 1_728)
"""Bytes of one of vLLM's blocks for DeepSeek-V4-Flash: 22 slots of 64 entries, 64 index keys and 2 entries, of 584, 132
and 584 bytes, rounded up to 576."""


def v4_blocks(tokens: int, new_tokens: int) -> int:
    """Blocks vLLM reserves for one request: content, two groups of windows, and inputs of unfinished entries.

    Content takes 256 tokens a block. The others hold what is in sight of `new_tokens` scheduled at once: windows of 128
    in pages of 64 tokens, inputs of entries of 4 (8 in sight) in pages of 4, of 128 in pages of 8; one page more each.
    """

    def pages(window: int, page: int) -> int:
        return math.ceil(min(window - 1 + new_tokens, tokens) / page) + 1

    return math.ceil(tokens / 256) + 2 * pages(128, 64) + pages(8, 4) + pages(128, 8)


# ---- the page


UNITS = {
    "weights": "weights {:.2f} GiB",
    "pool": "pool {:.2f} GiB",
    "tokens": "{:,.0f} tokens",
    "sequence": "{:.2f} GiB",
}
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def table() -> str:
    """Every row in Markdown: compared ones first."""
    lines = ["| log | what | log says | model says | error | remark |", "|---|---|---|---|---|---|"]
    order = sorted(rows(), key=lambda row: (row.compared == "none", row.compared == "limit"))
    return "\n".join([*lines, *map(line, order)])


def line(row: Row) -> str:
    cells = [f"[{row.row}]({row.source})", setting(row)]
    if row.compared == "none":
        cells += [
            ", ".join(statement(row, q) for q in ("weights", "pool", "tokens") if has(row, q)),
            "",
            "not compared",
        ]
    else:
        shown = [limited(row)] if row.compared == "limit" else row.quantities
        values = predicted(row)
        cells += [
            ", ".join(statement(row, quantity) for quantity in shown),
            ", ".join(UNITS[quantity].format(values[quantity]) for quantity in shown),
            ", ".join(error_text(row, quantity) for quantity in shown),
        ]
    return "| " + " | ".join([*cells, row.reason]) + " |"


def setting(row: Row) -> str:
    degrees = [f"{name.upper()}{value:.0f}" for name, value in (("tp", row.tp), ("dp", row.dp)) if value]
    gpu = " ".join(part for part in (f"{row.gpus:.0f}x" if row.gpus else "", row.gpu) if part)
    parts = [ENGINES[row.engine], row.model or "model not named", gpu, *degrees]
    parts += [f"fraction {row.fraction:g}"] if row.fraction else []
    parts += [f"as {row.used}, {row.precision}"] if row.compared != "none" else []
    return ", ".join(part for part in parts if part)


def statement(row: Row, quantity: str) -> str:
    return UNITS[quantity].format(logged(row, quantity))


def has(row: Row, quantity: str) -> bool:
    return getattr(row, "tokens" if quantity == "tokens" else f"{quantity}_gib") is not None


def limited(row: Row) -> str:
    """What a log may not exceed: tokens where they are stated, else the pool."""
    return "tokens" if row.tokens is not None else "pool"


def error_text(row: Row, quantity: str) -> str:
    by = error(row, quantity)
    if quantity == "pool":
        return f"{by:+.2f} GiB"
    return "0.0 %" if abs(by) < 5e-4 else f"{100 * by:+.1f} %"


def renew() -> None:
    """Write the table into the page."""
    text = DOC.read_text(encoding="utf-8")
    DOC.write_text(re.sub(r"(?m)^\|.*(?:\n\|.*)*", lambda _: table(), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    renew()
