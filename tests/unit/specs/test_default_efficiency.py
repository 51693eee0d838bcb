"""The `default` set: the fitted numbers of `vllm`, under another name."""

import cheetah_xr as cx


def test_default_is_the_set_of_vllm() -> None:
    default, vllm = (cx.load_efficiency(name) for name in ("default", "vllm"))
    for name in cx.Efficiency.numeric_fields():
        assert getattr(default, name) == getattr(vllm, name), name


def test_it_is_inside_its_priors_and_slower_than_kernels() -> None:
    """A served decode step is slower than kernels alone say: 0.7 of their speed or less at small batches."""
    where = {"batch": [1, 16], "seq_len": 4096, "tp": 4, "outputs": ["step_time"]}
    served, kernels = (
        cx.evaluate("llama-3.1-70b", "h100-sxm", "bf16", **where, efficiency=name).step_time
        for name in ("default", "kernels")
    )
    assert (served > kernels).all()
    assert cx.load_efficiency("default").memory_dense_mlp < 0.85
