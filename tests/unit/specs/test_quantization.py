"""The precision a checkpoint is published in: read from its config, or rejected."""

import pytest

import cheetah_xr as cx
from cheetah_xr.specs.huggingface.modules import CLASSES, layout
from cheetah_xr.specs.huggingface.quantization import PRECISIONS, default_precision
from tests.helpers.rejection import rejected

BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
STATIC = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None, "dequantize": False}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"]}
MXFP4["modules_to_not_convert"] += ["model.embed_tokens", "lm_head"]
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
KV8 = {"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}
INT4 = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


def compressed(weights, inputs=None, ignore=("lm_head",), **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": list(ignore), **more}


def bits(kind, count, group=None):
    return {"type": kind, "num_bits": count, "group_size": group, "symmetric": True}


EXPERTS_ONLY = ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
DENSE = {"num_hidden_layers": 64}
MOE = {"num_hidden_layers": 62, "num_local_experts": 256}
KIMI = {"num_hidden_layers": 61, "n_routed_experts": 384, "n_shared_experts": 1, "first_k_dense_replace": 1}
DEEPSEEK4 = {"num_hidden_layers": 43, "n_routed_experts": 256, "n_shared_experts": 1, "model_type": "deepseek_v4"}
GEMMA = {"num_hidden_layers": 30, "num_experts": 128, "enable_moe_block": True, "model_type": "gemma4_text"}
QWEN35 = {"num_hidden_layers": 60, "num_experts": 512, "shared_expert_intermediate_size": 1024, "mlp_only_layers": []}
GLM = {"num_hidden_layers": 78, "n_routed_experts": 256, "n_shared_experts": 1}
GLM["mlp_layer_types"] = ["dense"] * 3 + ["sparse"] * 75


def layers(prefix, numbers, *ends):
    return [f"{prefix}.{number}.{end}" for number in numbers for end in ends]


MLA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "indexer*")
GLM52_LIST = ["lm_head", "model.embed_tokens", "model.layers.0*", "model.layers.1.*", "model.layers.2.*"]
GLM52_LIST += ["model.layers.78*", *layers("model.layers", range(3, 78), "self_attn*", "mlp.shared_experts*")]
GLM5_LIST = ["lm_head", "model.layers.78*", *layers("model.layers", range(78), *(f"self_attn.{m}" for m in MLA))]
K26_LIST = ["language_model.lm_head", "language_model.model.layers.0*", "mm_projector*", "vision_tower*"]
K26_LIST += layers("language_model.model.layers", range(1, 61), "self_attn*", "mlp.shared_experts*")
K25_LIST = ["language_model.lm_head", *layers("language_model.model.layers", range(61), "self_attn*"), "vision_tower*"]
M25_LIST = ["lm_head", *layers("model.layers", range(62), "self_attn*", "block_sparse_moe.gate")]
GEMMA_LIST = ["lm_head", "model.embed_vision*", "model.vision_tower*"]
GEMMA_LIST += layers("model.language_model.layers", range(30), "mlp*", "router*", "self_attn*")
QWEN35_LIST = ["lm_head", "model.visual*", "mtp.layers.0*", "mtp*", "*.mlp.shared_expert.*"]
QWEN35_LIST += layers("model.language_model.layers", range(0, 60, 4), "self_attn*")
QWEN35_LIST += layers("model.language_model.layers", [n for n in range(60) if n % 4], "linear_attn*")
QWEN35_LIST += layers("model.language_model.layers", range(60), "mlp.shared_expert_gate")
GLM5_FP8_LIST = ["lm_head", "model.embed_tokens", "model.norm", "model.layers.78.eh_proj", "model.layers.78.enorm"]
GLM5_FP8_LIST += layers("model.layers", range(79), "input_layernorm", "self_attn.indexer.k_norm.bias", "mlp.gate")
GLM5_FP8_LIST += layers("model.layers", range(79), "self_attn.indexers_proj", "mlp.gate.e_score_correction_bias")

PUBLISHED = {
    # nothing quantised
    "Llama-3.1-8B": ({**DENSE, "torch_dtype": "bfloat16"}, "bf16"),
    "Llama-2-7b": ({**DENSE, "torch_dtype": "float16"}, "fp16"),
    "no dtype": (DENSE, "bf16"),
    "dtype of the text model": ({"text_config": {**DENSE, "dtype": "float16"}}, "fp16"),
    # FP8
    "DeepSeek-V3": ({**KIMI, "quantization_config": BLOCKS}, "fp8"),
    "Devstral-2": (
        {**DENSE, "quantization_config": STATIC | {"modules_to_not_convert": ["model.vision_tower", "lm_head"]}},
        "fp8",
    ),
    "MiniMax-M2.5": (
        {**MOE, "quantization_config": BLOCKS | {"modules_to_not_convert": ["gate", "e_score_correction_bias"]}},
        "fp8",
    ),
    "GLM-5-FP8": ({**GLM, "quantization_config": BLOCKS | {"modules_to_not_convert": GLM5_FP8_LIST}}, "fp8"),
    "FP8 by llm-compressor": ({**DENSE, "quantization_config": compressed(bits("float", 8), bits("float", 8))}, "fp8"),
    "Qwen3-32B-FP8-Static-PerTensor": (
        {
            **DENSE,
            "quantization_config": {
                "producer": {"name": "modelopt"},
                "quant_algo": "FP8",
                "kv_cache_scheme": "FP8",
                "ignore": ["lm_head"],
            },
        },
        "fp8-kv8",
    ),
    "hf_quant_config.json of Llama-3.1-70B-Instruct-FP8": (
        {
            **DENSE,
            "quantization_config": {
                "producer": {"name": "modelopt", "version": "0.23.0"},
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
            },
        },
        "fp8-kv8",
    ),
    # four bits in the routed experts
    "gpt-oss-120b": (
        {"num_hidden_layers": 36, "num_local_experts": 128, "quantization_config": MXFP4},
        "mxfp4-experts",
    ),
    "Kimi-K2.5": (
        {
            "text_config": {
                **KIMI,
                "quantization_config": compressed(bits("int", 4, 32), None, ["lm_head", *EXPERTS_ONLY]),
            }
        },
        "int4-experts",
    ),
    "Kimi-K3": (
        {
            "text_config": {
                **KIMI,
                "quantization_config": compressed(bits("float", 4, 32), None, ["re:.*lm_head.*", *EXPERTS_ONLY]),
            }
        },
        "mxfp4-experts",
    ),
    "DeepSeek-V4": ({**DEEPSEEK4, "expert_dtype": "fp4", "quantization_config": BLOCKS}, "fp8-fp4-experts"),
    "DeepSeek-V4-Base": ({**DEEPSEEK4, "expert_dtype": "fp8", "quantization_config": BLOCKS}, "fp8"),
    "GLM-5.2-NVFP4": ({**GLM, "quantization_config": NVFP4 | KV8 | {"ignore": GLM52_LIST}}, "nvfp4-experts-kv8"),
    "Kimi-K2.6-NVFP4": (
        {"text_config": KIMI, "quantization_config": NVFP4 | KV8 | {"ignore": K26_LIST}},
        "nvfp4-experts-kv8",
    ),
    "MiniMax-M2.5-NVFP4": ({**MOE, "quantization_config": NVFP4 | KV8 | {"ignore": M25_LIST}}, "nvfp4-experts-kv8"),
    "Gemma-4-26B-A4B-NVFP4": (
        {"text_config": GEMMA, "quantization_config": NVFP4 | KV8 | {"ignore": GEMMA_LIST}},
        "nvfp4-experts-kv8",
    ),
    "Qwen3.5-397B-A17B-NVFP4": (
        {"text_config": QWEN35, "quantization_config": NVFP4 | KV8 | {"ignore": QWEN35_LIST}},
        "nvfp4-experts-kv8",
    ),
    # four bits in every MLP, or everywhere
    "Kimi-K2.5-NVFP4": (
        {"text_config": KIMI, "quantization_config": NVFP4 | KV8 | {"ignore": K25_LIST}},
        "nvfp4-mlp-kv8",
    ),
    "GLM-5-NVFP4": ({**GLM, "quantization_config": NVFP4 | KV8 | {"exclude_modules": GLM5_LIST}}, "nvfp4-mlp-kv8"),
    "Qwen3-235B-A22B-NVFP4": (
        {
            "num_hidden_layers": 94,
            "num_experts": 128,
            "quantization_config": NVFP4
            | {"kv_cache_quant_algo": "FP8", "ignore": ["lm_head", *layers("model.layers", range(94), "mlp.gate")]},
        },
        "nvfp4-kv8",
    ),
    "NVFP4 by llm-compressor": (
        {**DENSE, "quantization_config": compressed(bits("float", 4, 16), bits("float", 4, 16))},
        "nvfp4",
    ),
    "AWQ": ({**DENSE, "torch_dtype": "float16", "quantization_config": INT4}, "w4a16"),
    "GPTQ": ({**DENSE, "quantization_config": INT4 | {"quant_method": "gptq", "desc_act": False}}, "w4a16"),
    "W4A16 by llm-compressor": ({**DENSE, "quantization_config": compressed(bits("int", 4, 128))}, "w4a16"),
    "W8A8 by llm-compressor": ({**DENSE, "quantization_config": compressed(bits("int", 8), bits("int", 8))}, "w8a8"),
    "W8A16 by llm-compressor": ({**DENSE, "compression_config": compressed(bits("int", 8))}, "w8a16"),
}


@pytest.mark.parametrize(("config", "name"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_checkpoints(config, name):
    assert default_precision(config, "here") == name
    assert name in cx.list_precisions()


def with_scheme(model, **scheme):
    return {**model, "quantization_config": scheme}


REJECTED = {
    "method": (with_scheme(DENSE, quant_method="bitsandbytes", load_in_4bit=True), "'bitsandbytes'", "modelopt"),
    "no method": (with_scheme(DENSE, bits=4), "quant_method None"),
    "method not text": (with_scheme(DENSE, quant_method=["fp8"]), "['fp8']"),
    "file beside not a mapping": ({**DENSE, "hf_quant_config.json": [1]}, "hf_quant_config.json", "[1]"),
    "two that differ": (
        {**with_scheme(DENSE, **BLOCKS), "hf_quant_config.json": NVFP4 | {"exclude_modules": ["lm_head"]}},
        "quantization_config (fp8)",
        "hf_quant_config.json (nvfp4)",
    ),
    "not a mapping": ({**DENSE, "quantization_config": "fp8"}, "'fp8'", "mapping"),
    "text_config not a mapping": ({"text_config": [1]}, "[1]"),
    "float32": ({**DENSE, "torch_dtype": "float32"}, "dtype", "'float32'", "bfloat16"),
    "dtype not text": ({**DENSE, "dtype": ["bfloat16"]}, "dtype"),
    "layers": (with_scheme({"num_hidden_layers": 10**12}, **BLOCKS), "num_hidden_layers", "1000000000000"),
    # details of a known method
    "block of 64": (with_scheme(DENSE, **BLOCKS | {"weight_block_size": [64, 64]}), "weight_block_size", "[64, 64]"),
    "e5m2": (with_scheme(DENSE, **BLOCKS | {"fmt": "e5m2"}), "fmt", "e5m2"),
    "three bits": (with_scheme(DENSE, **INT4 | {"bits": 3}), "bits", "3"),
    "group of 64": (with_scheme(DENSE, **INT4 | {"group_size": 64}), "group_size", "64"),
    "GPTQ by module": (with_scheme(DENSE, **INT4 | {"dynamic": {"-:.*attn.*": {}}}), "dynamic"),
    "ModelOpt algorithm": (with_scheme(DENSE, **NVFP4 | {"quant_algo": "W4A8_AWQ"}), "quant_algo", "W4A8_AWQ"),
    "mixed precision": (
        with_scheme(DEEPSEEK4, **BLOCKS | {"quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}}}),
        "quantized_layers",
    ),
    "inputs in FP8": (
        with_scheme(DENSE, **compressed(bits("int", 4, 128), bits("float", 8))),
        "int4 group 128",
        "float8",
    ),
    "two groups": (
        with_scheme(DENSE, quant_method="compressed-tensors", config_groups={"a": {}, "b": {}}),
        "one group",
    ),
    "group of nothing": (with_scheme(DENSE, quant_method="compressed-tensors", config_groups={"a": None}), "one group"),
    "some modules": (
        with_scheme(
            DENSE,
            quant_method="compressed-tensors",
            config_groups={"a": {"targets": ["re:.*mlp.*"]}},
            ignore=["lm_head"],
        ),
        "targets",
    ),
    "cache in INT8": (with_scheme(DENSE, **NVFP4, ignore=["lm_head"], kv_cache_quant_algo="INT8"), "INT8", "FP8"),
    "list not a list": (with_scheme(DENSE, **NVFP4, ignore="lm_head"), "ignore", "'lm_head'"),
    # what is left out
    "LM head quantised": (with_scheme(DENSE, **NVFP4, ignore=[]), "lm_head"),
    "unknown module": (with_scheme(DENSE, **BLOCKS, modules_to_not_convert=["model.layers.3.mixer.in_proj"]), "mixer"),
    "one matrix": (
        with_scheme(DENSE, **BLOCKS, modules_to_not_convert=layers("model.layers", range(64), "self_attn.o_proj")),
        "only o_proj",
        "layer 0",
    ),
    "some layers": (
        with_scheme(DENSE, **BLOCKS, modules_to_not_convert=layers("model.layers", range(4), "self_attn")),
        "attention",
        "4 of 64 layers",
    ),
    "a layer": (with_scheme(DENSE, **BLOCKS, modules_to_not_convert=["model.layers.1*"]), "attention", "11 of 64"),
    "whole MLPs with experts": (with_scheme(MOE, **NVFP4, ignore=["lm_head", "model.layers.*.mlp*"]), "mlp*"),
    "no such precision": (with_scheme(DENSE, **BLOCKS, modules_to_not_convert=["self_attn"]), "attention bf16", "fp8"),
    "experts left out": (with_scheme(KIMI, **BLOCKS, ignored_layers=["re:.*mlp.experts.*"]), "experts bf16"),
    "MXFP4 everywhere": (with_scheme(MOE, quant_method="mxfp4"), "attention mxfp4a16"),
    "NVFP4 without 8-bit cache": (with_scheme(MOE, **NVFP4, ignore=M25_LIST), "attention bf16, experts nvfp4"),
    "8-bit cache beside AWQ": (with_scheme(DENSE, **INT4 | KV8), "8-bit cache"),
    # expert_dtype
    "expert_dtype alone": ({**DEEPSEEK4, "expert_dtype": "fp4"}, "expert_dtype", "'fp4'"),
    "expert_dtype missing": (with_scheme(DEEPSEEK4, **BLOCKS), "expert_dtype", "None"),
    "expert_dtype unknown": (with_scheme({**DEEPSEEK4, "expert_dtype": "int4"}, **BLOCKS), "expert_dtype", "'int4'"),
    "expert_dtype beside AWQ": (with_scheme({**DEEPSEEK4, "expert_dtype": "fp4"}, **INT4), "expert_dtype"),
}


@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
def test_what_is_not_understood_is_rejected(case):
    config, *words = case
    rejected(lambda: default_precision(config, "here"), "here", *words)


LAYOUTS = {
    "Llama-4-Maverick": (
        {"interleave_moe_layer_step": 2, "num_local_experts": 128, "model_type": "llama4_text"},
        24,
        24,
    ),
    "MiniMax-M3": ({"moe_layer_freq": [0] * 3 + [1] * 45, "num_local_experts": 128}, 3, 0),
    "some layers dense": ({"mlp_only_layers": [0, 47], "num_experts": 128}, 2, 0),
}


@pytest.mark.parametrize(("model", "dense", "shared"), LAYOUTS.values(), ids=LAYOUTS)
def test_layers_of_every_class(model, dense, shared):
    actual = layout({"num_hidden_layers": 48, **model}, "here").layers
    assert [len(actual[kind]) for kind in CLASSES] == [48, dense, 48 - dense, shared]


BYTES = {
    # weights, inputs, compute
    "bf16": (2.0, 2.0, "bf16"),
    "fp8": (1.0, 1.0, "fp8"),
    "int8": (1.0, 1.0, "int8"),
    "int8a16": (1.0, 2.0, "bf16"),
    "int4a16 group 128": (0.5 + 2 / 128, 2.0, "bf16"),
    "int4a16 group 32": (0.5 + 2 / 32, 2.0, "bf16"),
    "mxfp4": (0.5 + 1 / 32, 0.5 + 1 / 32, "fp4"),
    "mxfp4a16": (0.5 + 1 / 32, 2.0, "bf16"),
    "mxfp4a8": (0.5 + 1 / 32, 1.0, "fp8"),
    "nvfp4": (0.5 + 1 / 16, 0.5 + 1 / 16, "fp4"),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_catalogue_has_the_formats_of_the_table(name):
    precision = cx.load_precision(name)
    for kind, form in PRECISIONS[name].items():
        actual = tuple(getattr(precision, f"{kind}_{what}") for what in ("weight_bytes", "input_bytes", "compute"))
        assert actual == BYTES[form], kind
    assert precision.kv_bytes == (1.0 if name.endswith("-kv8") else 2.0)
    assert (precision.lm_head_weight_bytes, precision.embedding_weight_bytes) == (2.0, 2.0)
