"""One-token mistakes in the formulas, each of which `make test` must notice: ``make mutants [ARGS=WORD]``.

Each mutant is made in a copy of the project. The tests that are likely to notice it run first, until one fails; a mutant
that passes them is given to everything that `make test` runs before it counts as a survivor.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WORKERS = 2
FAST_LANE = ("-m", "not slow")
LIKELY = (
    "tests/unit/costmodel",
    "tests/unit/engine/test_efficiency_rules.py",
    "tests/unit/engine/test_mixed_batch.py",
    "tests/reference/test_anchors.py",
    "tests/reference/test_source_texts.py",
    "tests/oracle",
)
"""Tests that notice most mutants, the quickest first."""


class Mutant(NamedTuple):
    """One change: the first `old` of a file of the package becomes `new`."""

    file: str
    old: str
    new: str
    meaning: str


CHANGES = [
    ("costmodel/formulas/gemm.py", "return 2 * rows * k * n", "return rows * k * n", "a multiply-add is one FLOP"),
    ("costmodel/formulas/gemm.py", "n * output_bytes", "n * input_bytes", "outputs at the width of inputs"),
    (
        "costmodel/formulas/attention.py",
        "np.maximum(n_kv_heads / tp, 1.0)",
        "np.maximum(n_kv_heads, 1.0)",
        "KV heads not sharded",
    ),
    (
        "costmodel/formulas/attention.py",
        "np.maximum(n_kv_heads / tp, 1.0)",
        "np.minimum(n_kv_heads / tp, 1.0)",
        "min for max",
    ),
    (
        "costmodel/formulas/attention.py",
        "return n * (n + 1) / 2",
        "return n * n / 2",
        "s for s + 1 in the causal triangle",
    ),
    ("costmodel/formulas/attention.py", "window + new - 1", "window", "drafts do not widen the window"),
    ("costmodel/formulas/moe.py", "* tokens, -60.0", "* 1.0, -60.0", "one token reaches the experts"),
    ("costmodel/formulas/moe.py", "(1 - 1 / ep) ** top_k", "(1 - 1 / ep)", "one expert per token among ranks"),
    (
        "costmodel/formulas/collectives.py",
        "return 2 * link, 2 * nic",
        "return link, nic",
        "an all-reduce is one gather",
    ),
    ("costmodel/formulas/collectives.py", "(n - g) / n * volume", "n / n * volume", "all copies leave the node"),
    (
        "costmodel/formulas/collectives.py",
        "(1 - g / n) * volume / g",
        "(1 - g / n) * volume",
        "whole volume on every NIC",
    ),
    ("costmodel/formulas/roofline.py", "return work / (rate * efficiency)", "return work / rate", "no efficiency"),
    (
        "engine/step_time.py",
        '"time": apply(np.maximum, memory',
        '"time": apply(np.add, memory',
        "sum for max in a roofline",
    ),
    (
        "engine/step_time.py",
        "times(exposed, apply(np.minimum, t_x, t_y))",
        "apply(np.minimum, t_x, t_y)",
        "nothing is hidden",
    ),
    ("costmodel/attention.py", "0.0 if group.kv_shared else p.new", "0.0", "new tokens are not written to the cache"),
    (
        "costmodel/mla.py",
        "width = (m.kv_lora_rank + m.qk_rope_head_dim)",
        "width = m.kv_lora_rank",
        "no rotary part in the latent cache",
    ),
    ("costmodel/moe.py", "rows = p.new * m.top_k / p.ep", "rows = p.new / p.ep", "one expert per token"),
    (
        "costmodel/moe.py",
        "resident_weights=local * one",
        "resident_weights=distinct * one",
        "only used experts are held",
    ),
    (
        "costmodel/forward_pass.py",
        "tokens = p.new if p.decode else 1",
        "tokens = p.new",
        "logits of every prompt token",
    ),
    (
        "engine/case.py",
        "np.ceil(batch / (p.dp * m))",
        "np.floor(batch / (p.dp * m))",
        "the emptiest rank sets the pace",
    ),
    (
        "costmodel/forward_pass.py",
        "m.vocab * m.hidden * width / p.tp",
        "m.vocab * m.hidden * width",
        "the embedding is not sharded",
    ),
    ("costmodel/formulas/capacity.py", "np.floor(room", "np.ceil(room", "a sequence that half fits"),
    ("costmodel/attention.py", "m.n_heads % p.tp != 0", "m.n_heads % p.tp == 0", "the head rule upside down"),
    (
        "costmodel/totals.py",
        "layer.times * options.micro_batches",
        "layer.times",
        "weights are read once for all micro-batches",
    ),
    (
        "costmodel/formulas/linear_attention.py",
        "(7 if delta else 5)",
        "(5 if delta else 5)",
        "the delta rule costs nothing",
    ),
    (
        "costmodel/formulas/linear_attention.py",
        "(3 * key_dim + 2 * value_dim)",
        "(3 * key_dim + value_dim)",
        "one product too few in a chunk",
    ),
    ("costmodel/formulas/linear_attention.py", "(taps - 1)", "taps", "the convolution keeps its newest input"),
    (
        "costmodel/formulas/attention.py",
        "free = size * most - 1",
        "free = size * (most + 1)",
        "the cap on entries one entry late",
    ),
    (
        "costmodel/formulas/attention.py",
        "whole * (whole - 1) / 2",
        "whole * whole / 2",
        "half an entry too many for every query",
    ),
    (
        "costmodel/linear_attention.py",
        "return 2.0 if p.decode",
        "return 1.0 if p.decode",
        "the state is read and never written",
    ),
    (
        "costmodel/linear_attention.py",
        'group.attention == "mamba2" else',
        'group.attention == "kda" else',
        "Mamba-2 groups are split",
    ),
    (
        "costmodel/attention.py",
        "window=p.new * m.index_top_k",
        "window=m.index_top_k",
        "drafts share their chosen tokens",
    ),
    (
        "costmodel/attention.py",
        'm.index_top_k if group.indexer != "none"',
        'm.index_top_k if group.indexer == "own"',
        "shared",
    ),
    ("costmodel/sparse_attention.py", "2 * series * width, m,", "series * width, m,", "an entry has no gates"),
    ("costmodel/sparse_attention.py", "return p.new / group.compress", "return p.new", "an entry for every token"),
    ("costmodel/moe.py", "d, f = expert_hidden(m),", "d, f = m.hidden,", "latent experts at full width"),
    (
        "costmodel/moe.py",
        "one_copy = p.new / p.tp * expert_hidden(m)",
        "one_copy = p.new / p.tp * m.hidden",
        "full width travels",
    ),
    ("costmodel/speculative.py", "options.draft_tokens if p.decode else 1", "1", "one draft pass however many drafts"),
    ("costmodel/speculative.py", "replace(p, new=1.0,", "replace(p, new=p.new,", "draft passes verify too"),
    ("costmodel/roofline.py", "total + row.launches * each", "total + each", "every operation is a launch"),
    ("costmodel/roofline.py", "else total * self.times", "else total", "one layer is launched"),
    (
        "costmodel/mla.py",
        "launches=0 if has_query_latent(m) else 1",
        "launches=1",
        "the steps down are not fused",
    ),
    ("costmodel/forward_pass.py", "component, launches=mixed", "component, launches=1", "one stream is mixed"),
    (
        "engine/inputs/efficiency_rules.py",
        '("fp4", "fp8")),',
        '("fp4",)),',
        "four-bit weights in fp8 are launched like wide ones",
    ),
    (
        "engine/inputs/efficiency_rules.py",
        "return weight_bytes < 1",
        "return weight_bytes <= 1",
        "bytes",
    ),
    ("engine/inputs/efficiency_rules.py", "(np.asarray(dp) > 1) & ", "", "grouped kernels without attention ranks"),
    (
        "engine/inputs/efficiency_rules.py",
        '{"fp8": "compute_fp8",',
        '{"fp8": "",',
        "fp8 reaches what bf16 does",
    ),
    (
        "costmodel/attention.py",
        "if group.kv_shared:",
        "if False:",
        "shared kept twice",
    ),
    (
        "costmodel/forward_pass.py",
        "n = streams * m.hidden * mixed,",
        "n = m.hidden * mixed,",
        "one stream",
    ),
    (
        "costmodel/formulas/serving.py",
        "running - NON_INTERFERING_PROMPTS * dp",
        "running - dp",
        "a request sees its successor's prompt",
    ),
    (
        "costmodel/formulas/serving.py",
        "0.5 * np.maximum(running - admitted",
        "np.maximum(running - admitted",
        "all of a synchronized batch",
    ),
    (
        "costmodel/formulas/serving.py",
        "np.minimum(1, prompts / batch)",
        "prompts / batch",
        "more mixed batches than steps",
    ),
    ("costmodel/formulas/serving.py", "& (rate <= capacity)", "", "decode without prefill"),
    (
        "engine/mixed_batch.py",
        "op if op.kernel in CORE else _more(op, factors)",
        "_more(op, factors)",
        "cores of longer prompts",
    ),
    ("engine/mixed_batch.py", "head if layer.part", "every if layer.part", "logits of every prompt token"),
]
MUTANTS = [Mutant(*fields) for fields in CHANGES]


def changed(mutant: Mutant) -> str:
    """Return the text of the mutant's file with the change; raise ValueError where there is nothing to change."""
    text = (ROOT / "cheetah_xr" / mutant.file).read_text(encoding="utf-8")
    if mutant.old not in text:
        raise ValueError(f"{mutant.file} has no {mutant.old!r}: bring the list of mutants up to date")
    return text.replace(mutant.old, mutant.new, 1)


def copied(folder: Path) -> Path:
    """Copy the project, without what is built, into a folder; return the copy."""
    ignored = shutil.ignore_patterns(".*", "outputs", "dist", "build", "site", "__pycache__")
    return Path(shutil.copytree(ROOT, folder / "copy", ignore=ignored))


def run_tests(copy: Path, tests: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run tests of the fast lane in a copy until the first failure; all of them where none are named."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *FAST_LANE, *tests]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, env=environment)


def survives(mutant: Mutant, copy: Path) -> bool:
    """Return whether the fast lane passes with one change."""
    path = copy / "cheetah_xr" / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(changed(mutant), encoding="utf-8")
    try:
        return not any(run_tests(copy, tests).returncode for tests in (LIKELY, ()))
    finally:
        path.write_text(text, encoding="utf-8")


def survivors(mutants: Sequence[Mutant]) -> int:
    """Run mutants in parallel, print what became of each, and return how many survive."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(WORKERS):
            copies.put(copied(Path(folder, str(number))))
        unchanged = run_tests(copies.queue[0], LIKELY)
        if unchanged.returncode:
            sys.exit(f"the tests fail without any change:\n{unchanged.stdout[-2000:]}")

        def run(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return survives(mutant, copy)
            finally:
                copies.put(copy)

        alive = 0
        for number, (mutant, survived) in enumerate(zip(mutants, pool.map(run, mutants), strict=True), 1):
            alive += survived
            outcome = "SURVIVES" if survived else "caught  "
            print(f"{number:2} {outcome} {mutant.file}: {mutant.meaning}", flush=True)
        return alive


def main() -> None:
    """Run every mutant whose file or meaning has one of the words, all without words, and say which survive."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("words", nargs="*")
    words = parser.parse_args().words
    mutants = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.meaning}" for word in words)]
    for mutant in MUTANTS:
        changed(mutant)
    alive = survivors(mutants)
    print(f"{len(mutants) - alive} of {len(mutants)} mutants caught")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
