"""A golden dataset: results change only with MODEL_VERSION.

``python -m tests.reference.test_golden`` writes it anew.
"""

import json
from pathlib import Path

import numpy as np

import cheetah_xr as cx

FILE = Path(__file__).parent / "golden" / "results.json"
NAMES = ["step_time", "status", "bottleneck", "flops", "bytes_weights", "bytes_kv", "bytes_link", "max_batch"]


def compute():
    """A few hundred points of every kind of model, phase and layout."""
    options = cx.Options(small_ops="memory", on_infeasible="ignore")
    actual = {}
    for model, layout in (
        ("llama-3.1-70b", {"tp": [1, 4, 8]}),
        ("mixtral-8x7b", {"tp": 2, "dp": 4, "ep": [1, 4, 8]}),
        ("deepseek-v3", {"dp": 32, "ep": [16, 32]}),
        ("8b", {"tp": [1, 2]}),
        ("qwen3-next-80b-a3b", {"tp": [1, 2]}),
        ("deepseek-v4-flash", {"dp": 32, "ep": [16, 32]}),
        ("nemotron-h-56b", {"tp": [1, 8]}),
    ):
        ds = cx.evaluate(
            model, ["h100-sxm", "mi300x"], ["bf16", "fp8"], phase=["prefill", "decode"], batch=[1, 48],
            seq_len=[512, 8192], outputs=NAMES, options=options, dtype="float64", **layout,
        )  # fmt: skip
        actual[model] = {
            name: [None if np.isnan(v) else float(v) for v in ds[name].values.reshape(-1)] for name in NAMES
        }
    return actual


def test_results_change_only_with_the_model_version():
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    assert golden["model_version"] == cx.MODEL_VERSION, "MODEL_VERSION changed: write the golden dataset anew"
    for model, variables in compute().items():
        for name, values in variables.items():
            expected = np.array(golden["results"][model][name], dtype=float)
            message = (
                f"{model} {name} changed: raise MODEL_VERSION, say why in CHANGELOG, and run {Path(__file__).name}"
            )
            np.testing.assert_allclose(np.array(values, dtype=float), expected, rtol=1e-9, err_msg=message)


if __name__ == "__main__":
    FILE.write_text(json.dumps({"model_version": cx.MODEL_VERSION, "results": compute()}) + "\n", encoding="utf-8")
