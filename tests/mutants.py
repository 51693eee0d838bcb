"""One-token mistakes in the formulas, each of which the tests must notice: ``make mutants``.

Each mutant is made in a copy of the project, and the tests are run there until the first failure.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = [
    "tests/test_layer_kinds.py",
    "tests/test_drafting_by_hand.py",
    "tests/test_launches.py",
    "tests/test_by_layout.py",
    "tests/test_anchors.py",
    "tests/test_seeds.py",
    "tests/test_serving_terms.py",
    "tests/test_mixed.py",
    "tests/test_oracle.py",
]

MUTANTS = [
    ("terms/linear.py", "return 2 * rows * k * n", "return rows * k * n", "a multiply-add is one FLOP"),
    ("terms/linear.py", "n * output_bytes", "n * input_bytes", "outputs at the width of inputs"),
    ("terms/attention.py", "np.maximum(n_kv_heads / tp, 1.0)", "np.maximum(n_kv_heads, 1.0)", "KV heads not sharded"),
    ("terms/attention.py", "np.maximum(n_kv_heads / tp, 1.0)", "np.minimum(n_kv_heads / tp, 1.0)", "min for max"),
    ("terms/attention.py", "return n * (n + 1) / 2", "return n * n / 2", "s for s + 1 in the causal triangle"),
    ("terms/attention.py", "window + new - 1", "window", "drafts do not widen the window"),
    ("terms/experts.py", "* tokens, -60.0", "* 1.0, -60.0", "one token reaches the experts"),
    ("terms/experts.py", "(1 - 1 / ep) ** top_k", "(1 - 1 / ep)", "one expert per token among ranks"),
    ("terms/collectives.py", "return 2 * link, 2 * nic", "return link, nic", "an all-reduce is one gather"),
    ("terms/collectives.py", "(n - g) / n * volume", "n / n * volume", "all copies leave the node"),
    ("terms/collectives.py", "(1 - g / n) * volume / g", "(1 - g / n) * volume", "whole volume on every NIC"),
    ("terms/roofline.py", "return work / (rate * efficiency)", "return work / rate", "no efficiency"),
    ("combine.py", '"time": apply(np.maximum, memory', '"time": apply(np.add, memory', "sum for max in a roofline"),
    ("combine.py", "times(exposed, apply(np.minimum, t_x, t_y))", "apply(np.minimum, t_x, t_y)", "nothing is hidden"),
    ("attention.py", "0.0 if group.kv_shared else p.new", "0.0", "new tokens are not written to the cache"),
    ("cache.py", "(m.kv_lora_rank + m.qk_rope_head_dim)", "m.kv_lora_rank", "no rotary part in the latent cache"),
    ("mlp.py", "rows = p.new * m.top_k / p.ep", "rows = p.new / p.ep", "one expert per token"),
    ("mlp.py", "resident=local * one", "resident=distinct * one", "only used experts are held"),
    ("model.py", "tokens = p.new if p.decode else 1", "tokens = p.new", "logits of every prompt token"),
    ("tile.py", "np.ceil(batch / (p.dp * m))", "np.floor(batch / (p.dp * m))", "the emptiest rank sets the pace"),
    ("model.py", "m.vocab * m.hidden * width / p.tp", "m.vocab * m.hidden * width", "the embedding is not sharded"),
    ("terms/capacity.py", "np.floor(room", "np.ceil(room", "a sequence that half fits"),
    ("status.py", "m.n_heads % p.tp != 0", "m.n_heads % p.tp == 0", "the head rule upside down"),
    (
        "accounting.py",
        "layer.times * options.micro_batches",
        "layer.times",
        "weights are read once for all micro-batches",
    ),
    ("terms/recurrent.py", "(7 if delta else 5)", "(5 if delta else 5)", "the delta rule costs nothing"),
    (
        "terms/recurrent.py",
        "(3 * key_dim + 2 * value_dim)",
        "(3 * key_dim + value_dim)",
        "one product too few in a chunk",
    ),
    ("terms/recurrent.py", "(taps - 1)", "taps", "the convolution keeps its newest input"),
    ("terms/attention.py", "free = size * most - 1", "free = size * (most + 1)", "the cap on entries one entry late"),
    ("terms/attention.py", "whole * (whole - 1) / 2", "whole * whole / 2", "half an entry too many for every query"),
    ("recurrent.py", "return 2.0 if p.decode", "return 1.0 if p.decode", "the state is read and never written"),
    ("recurrent.py", 'group.attention == "mamba2" else', 'group.attention == "kda" else', "Mamba-2 groups are split"),
    ("attention.py", "window=p.new * m.index_top_k", "window=m.index_top_k", "drafts share their chosen tokens"),
    ("attention.py", 'm.index_top_k if group.indexer != "none"', 'm.index_top_k if group.indexer == "own"', "shared"),
    ("sparse.py", "2 * series * width, m,", "series * width, m,", "an entry has no gates"),
    ("sparse.py", "return p.new / group.compress", "return p.new", "an entry for every token"),
    ("mlp.py", "d, f = expert_hidden(m),", "d, f = m.hidden,", "latent experts at full width"),
    (
        "mlp.py",
        "one_copy = p.new / p.tp * expert_hidden(m)",
        "one_copy = p.new / p.tp * m.hidden",
        "full width travels",
    ),
    ("drafting.py", "options.draft_tokens if p.decode else 1", "1", "one draft pass however many drafts"),
    ("drafting.py", "replace(p, new=1.0,", "replace(p, new=p.new,", "draft passes verify too"),
    ("rates.py", "found + op.launches * each", "found + each", "every operation is a launch"),
    ("rates.py", "else found * times", "else found", "one layer is launched"),
    ("attention.py", "launches=0 if has_query_latent(m) else 1", "launches=1", "the steps down are not fused"),
    ("model.py", "component, launches=mixed", "component, launches=1", "one stream is mixed"),
    ("by_precision.py", '("fp4", "fp8")),', '("fp4",)),', "four-bit weights in fp8 are launched like wide ones"),
    ("by_precision.py", '["precision.experts_weight_bytes"] < 1', '["precision.experts_weight_bytes"] <= 1', "bytes"),
    ("by_layout.py", "(np.asarray(dp) > 1) & ", "", "grouped kernels without attention ranks"),
    ("by_precision.py", '{"fp8": inputs["efficiency.compute_fp8"],', '{"fp8": 1.0,', "fp8 reaches what bf16 does"),
    (
        "cache.py",
        'if group.attention == "none" or group.kv_shared:',
        'if group.attention == "none":',
        "shared kept twice",
    ),
    (
        "model.py",
        "n = streams * m.hidden * mixed,",
        "n = m.hidden * mixed,",
        "one stream",
    ),
    ("terms/serving.py", "running - OWN_PROMPTS * dp", "running - dp", "a request sees its successor's prompt"),
    ("terms/serving.py", "0.5 * np.maximum(running - together", "np.maximum(running - together", "all of a wave"),
    ("terms/serving.py", "np.minimum(1, prompts / per_pass)", "prompts / per_pass", "more mixed passes than steps"),
    ("terms/serving.py", "& (rate <= capacity)", "", "decode without prefill"),
    ("mixed.py", "op if op.kernel in CORE else _more(op, factors)", "_more(op, factors)", "cores of longer prompts"),
    ("mixed.py", "head if layer.part", "every if layer.part", "logits of every prompt token"),
]


def survives(file: str, old: str, new: str) -> bool:
    """Whether the tests pass with one change."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".*", "outputs", "dist", "build", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
        path = copy / "cheetah_xr" / file
        text = path.read_text(encoding="utf-8")
        if old not in text:
            sys.exit(f"{file} has no {old!r}: bring the list of mutants up to date")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
        run = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            sys.exit(f"{file}: the tests could not run:\n{run.stdout[-2000:]}")
        return run.returncode == 0


def main() -> None:
    """Run every mutant and say which survive."""
    survivors = 0
    for number, (file, old, new, meaning) in enumerate(MUTANTS, 1):
        alive = survives(file, old, new)
        survivors += alive
        print(f"{number:2} {'SURVIVES' if alive else 'caught  '} {file}: {meaning}", flush=True)
    print(f"{len(MUTANTS) - survivors} of {len(MUTANTS)} mutants caught")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
