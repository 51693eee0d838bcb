"""The catalogue precision a checkpoint is published in, from what its config says of its quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import SpecError
from .modules import CLASSES, layout, left_out

PLAIN = {None: "bf16", "bfloat16": "bf16", "float16": "fp16"}
"""dtype of a checkpoint -> precision, where nothing is quantised."""

QUANTIZATION_FILE = "hf_quant_config.json"
"""File of NVIDIA ModelOpt in the folder of a config.json, and the field that holds its content."""

Formats = dict[str, str]


def _only(format_name: str, *classes: str, rest: str = "bf16") -> Formats:
    return {kind: format_name if kind in classes else rest for kind in CLASSES}


PRECISIONS: dict[str, Formats] = {
    # the same format in every class
    "fp8": _only("fp8", *CLASSES),
    "fp8-kv8": _only("fp8", *CLASSES),
    "nvfp4": _only("nvfp4", *CLASSES),
    "nvfp4-kv8": _only("nvfp4", *CLASSES),
    "mxfp4": _only("mxfp4", *CLASSES),
    "w8a8": _only("int8", *CLASSES),
    "w8a16": _only("int8a16", *CLASSES),
    "w4a16": _only("int4a16 group 128", *CLASSES),
    # routed experts apart
    "mxfp4-experts": _only("mxfp4a16", "experts"),
    "int4-experts": _only("int4a16 group 32", "experts"),
    "fp8-fp4-experts": _only("mxfp4a8", "experts", rest="fp8"),
    "nvfp4-experts-kv8": _only("nvfp4", "experts"),
    # attention apart
    "nvfp4-mlp-kv8": _only("nvfp4", "dense_mlp", "experts", "shared_experts"),
}
"""Catalogue precision -> format of every class. "a16" and "a8": inputs are not quantised, or to FP8. A name that ends
in "-kv8" has an 8-bit cache."""


def default_precision(fields: Mapping[str, Any], where: str) -> str:
    """Catalogue name of the precision a checkpoint is published in.

    Parameters
    ----------
    fields
        The top-level config; of a model with several parts the `text_config` inside it counts too. The content of a
        `hf_quant_config.json`, under its name or as `quantization_config`, says the same in other words.
    where
        What to call the config in an error.

    Raises
    ------
    SpecError
        For a scheme that is not understood, or that no precision of the catalogue is, and for two that differ.
    """
    text = fields.get("text_config") or fields
    if not isinstance(text, Mapping):
        raise SpecError(f"{where}: text_config has value {text!r}: expected a mapping")
    keys = ("quantization_config", "compression_config")
    own = next((part[k] for part in (fields, text) for k in keys if part.get(k) is not None), None)
    given = {"quantization_config": own, QUANTIZATION_FILE: fields.get(QUANTIZATION_FILE)}
    precisions: dict[str, str] = {}
    for name, scheme in given.items():
        if scheme is not None and not isinstance(scheme, Mapping):
            raise SpecError(f"{where}: {name} has value {scheme!r}: expected a mapping")
        if scheme is not None:
            precisions[name] = _quantised(_flat(scheme), text, f"{where}: {name}")
    if len(set(precisions.values())) > 1:
        raise SpecError(f"{where}: {' and '.join(f'{n} ({p})' for n, p in precisions.items())} contradict each other")
    expert_dtype = text.get("expert_dtype")
    if not precisions and expert_dtype is not None:
        raise SpecError(f"{where}: expert_dtype {expert_dtype!r} without quantization_config is not understood")
    return next(iter(precisions.values()), None) or _plain(fields, text, where)


def _plain(fields: Mapping[str, Any], text: Mapping[str, Any], where: str) -> str:
    given = (part.get(name) for part in (text, fields) for name in ("dtype", "torch_dtype"))
    dtype = next((value for value in given if value is not None), None)
    if not (dtype is None or isinstance(dtype, str)) or dtype not in PLAIN:
        known = ", ".join(name for name in PLAIN if name)
        raise SpecError(f"{where}: dtype {dtype!r} is no precision of the catalogue; known: {known}")
    return PLAIN[dtype]


def _flat(scheme: Mapping[str, Any]) -> dict[str, Any]:
    """A scheme in one level; ModelOpt's own file keeps it under "quantization" and names itself as producer."""
    inner = scheme.get("quantization")
    flat = {**scheme, **(inner if isinstance(inner, Mapping) else {})}
    producer = flat.get("producer")
    if flat.get("quant_method") is None and isinstance(producer, Mapping):
        flat["quant_method"] = producer.get("name")
    return flat


def _quantised(scheme: Mapping[str, Any], text: Mapping[str, Any], where: str) -> str:
    """The precision whose formats are those of every class the model has."""
    method = scheme.get("quant_method")
    here = f"{where} (quant_method {method!r})"
    if not isinstance(method, str) or method not in METHODS:
        raise SpecError(f"{here} is not understood; understood: {', '.join(METHODS)}")
    for name in NOT_UNDERSTOOD:
        if scheme.get(name):
            raise SpecError(f"{here} has {name}, which is not understood")
    quantised = METHODS[method](scheme, here)
    model = layout(text, where)
    excluded = left_out(_excluded(scheme, here), model, here)
    if method in EVERY_LINEAR and "lm_head" not in excluded:
        raise SpecError(f"{here} does not leave out lm_head, and no precision of the catalogue has it quantised")
    formats = {kind: "bf16" if kind in excluded else quantised for kind in model.present}
    formats |= _experts(formats, text, here)
    cache = _small_cache(scheme, here)
    for name, ours in PRECISIONS.items():
        if name.endswith("-kv8") == cache and all(ours[kind] == form for kind, form in formats.items()):
            return name
    described = ", ".join(f"{kind} {form}" for kind, form in formats.items()) + (", 8-bit cache" if cache else "")
    raise SpecError(f"{here} is no precision of the catalogue: {described}; remove it and give a precision of your own")


def _excluded(scheme: Mapping[str, Any], here: str) -> list[str]:
    """Modules that are not quantised, under whichever names they are listed."""
    entries: list[str] = []
    for name in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        given = scheme.get(name) or []
        if not isinstance(given, list) or not all(isinstance(entry, str) for entry in given):
            raise SpecError(f"{here}: {name} has value {given!r}: expected a list of names")
        entries += given
    return entries


def _experts(formats: Formats, text: Mapping[str, Any], here: str) -> Formats:
    """Format of the routed experts where `expert_dtype` sets it apart (DeepSeek-V4).

    Engines disagree on what its absence means there, so it is not guessed.
    """
    given = text.get("expert_dtype")
    if given is None and text.get("model_type") != "deepseek_v4":
        return {}
    if given not in ("fp4", "fp8") or formats.get("experts") != "fp8":
        raise SpecError(f"{here}: expert_dtype has value {given!r}; understood: fp4 or fp8 with quant_method 'fp8'")
    return {"experts": "mxfp4a8" if given == "fp4" else "fp8"}


def _small_cache(scheme: Mapping[str, Any], here: str) -> bool:
    """Whether the checkpoint brings scales for an FP8 cache."""
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        given = scheme.get(name)
        kind = _number_format(given) if isinstance(given, Mapping) else given
        if kind in ("FP8", "float8"):
            return True
        if kind is not None:
            raise SpecError(f"{here}: {name} has value {given!r}; understood: FP8")
    return False


def _fp8(scheme: Mapping[str, Any], here: str) -> str:
    """Per tensor or in blocks of 128 x 128; inputs are quantised too, with scales that are given or computed."""
    _check(scheme, here, "fmt", None, "e4m3", "float8_e4m3fn")
    _check(scheme, here, "weight_block_size", None, [128, 128])
    _check(scheme, here, "activation_scheme", "dynamic", "static")
    _check(scheme, here, "quant_algo", None)
    return "fp8"


def _mxfp4(scheme: Mapping[str, Any], here: str) -> str:
    return "mxfp4a16"


def _int4(scheme: Mapping[str, Any], here: str) -> str:
    """AWQ and GPTQ; the zero points of AWQ (half a byte per group) are left out."""
    _check(scheme, here, "bits", 4)
    _check(scheme, here, "group_size", 128)
    _check(scheme, here, "lm_head", None, False)
    return "int4a16 group 128"


def _modelopt(scheme: Mapping[str, Any], here: str) -> str:
    _check(scheme, here, "quant_algo", "FP8", "NVFP4")
    _check(scheme, here, "group_size", None, 16)
    return "fp8" if scheme["quant_algo"] == "FP8" else "nvfp4"


def _compressed(scheme: Mapping[str, Any], here: str) -> str:
    """One group of every linear layer: dtypes of weights and inputs, and the size of a group of weights."""
    groups = scheme.get("config_groups")
    group = next(iter(groups.values())) if isinstance(groups, Mapping) and len(groups) == 1 else None
    if not isinstance(group, Mapping):
        raise SpecError(f"{here}: config_groups has value {groups!r}: expected one group")
    _check(group, here, "targets", ["Linear"])
    weights, inputs = (_number_format(group.get(name)) for name in ("weights", "input_activations"))
    if (weights, inputs) not in COMPRESSED:
        raise SpecError(f"{here}: weights {weights} with input_activations {inputs} are not understood")
    return COMPRESSED[weights, inputs]


def _number_format(given: Any) -> str | None:
    """Such as "int4 group 32"; None where nothing is quantised."""
    if not isinstance(given, Mapping):
        return None if given is None else repr(given)
    size = given.get("group_size")
    return f"{given.get('type')}{given.get('num_bits')}" + (f" group {size}" if size is not None else "")


def _check(scheme: Mapping[str, Any], here: str, name: str, *known: Any) -> None:
    value = scheme.get(name)
    if value not in known:
        shown = " or ".join(repr(one) for one in known if one is not None)
        raise SpecError(f"{here}: {name} has value {value!r}; understood: {shown or 'none'}")


COMPRESSED: dict[tuple[str | None, str | None], str] = {
    ("float8", "float8"): "fp8",
    ("float8", "float8 group 128"): "fp8",
    ("int8", "int8"): "int8",
    ("int8", None): "int8a16",
    ("int4 group 128", None): "int4a16 group 128",
    ("int4 group 32", None): "int4a16 group 32",
    ("float4 group 32", None): "mxfp4a16",
    ("float4 group 32", "float4 group 32"): "mxfp4",
    ("float4 group 16", "float4 group 16"): "nvfp4",
}
"""Weights and inputs -> format."""

METHODS: dict[str, Callable[[Mapping[str, Any], str], str]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "awq": _int4,
    "gptq": _int4,
}
"""quant_method -> format of what it quantises."""

EVERY_LINEAR = ("compressed-tensors", "modelopt")
"""Methods that quantise every linear layer that is not listed, the LM head too."""

NOT_UNDERSTOOD = ("quantized_layers", "moe_quant_algo", "dynamic", "sparsity_config")
"""Fields that change the format of single modules."""
