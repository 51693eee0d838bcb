"""Tables of the documentation that are made from the code, so that they cannot go stale.

``python docs/generate.py`` writes every block between ``<!-- generated: NAME -->`` and ``<!-- end -->`` anew; ``make
docs`` runs it first, and a test compares the pages in the repository with it.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import cheetah_xr as cx
from cheetah_xr.analysis import DERIVED
from cheetah_xr.cli import app
from cheetah_xr.engine.inputs.arguments import DEFAULTS
from cheetah_xr.engine.validity import BOTTLENECKS, CODES, REASONS, RUNS
from cheetah_xr.engine.variables import VARIABLES
from cheetah_xr.serving.result import LIMITS
from cheetah_xr.serving.result import VARIABLES as SERVING_VARIABLES
from cheetah_xr.specs import Model
from cheetah_xr.sweep.config import schema

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def code(text: object) -> str:
    """Return a text as inline code, nothing for an empty one."""
    return f"`{text}`" if text not in ("", None) else ""


def number(value: float | None, scale: float = 1.0) -> str:
    """Return a number of at most four digits, nothing where it is not known."""
    return "" if value is None else f"{value / scale:,.4g}" if value / scale < 1e4 else f"{value / scale:,.0f}"


def parameters(docstring: str | None) -> dict[str, str]:
    """Return the descriptions in the section Parameters of a numpydoc docstring, by name."""
    described: dict[str, str] = {}
    section = (inspect.cleandoc(docstring or "") + "\n\n").split("Parameters\n----------\n", 1)[-1]
    for names, text in re.findall(r"^(\w[\w, ]*?)(?: :.*)?\n((?:(?: {4}.*)?\n)+)", section, re.MULTILINE):
        for name in names.split(", "):
            plain = re.sub(r":\w+:(?=`)", "", " ".join(text.split()))
            described[name] = re.sub(r"``?([^`]+)``?", r"`\1`", plain)
    return described


def allowed(field: dict[str, Any]) -> str:
    """Return what a field of a JSON schema accepts."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(filter(None, (allowed(choice) for choice in field["anyOf"])))
    if field.get("type") == "array":
        return f"list of {allowed(field.get('items', {})) or 'values'}"
    if field.get("type") == "null":
        return "none"
    signs = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{word} {field[key]:g}" for key, word in signs.items() if key in field]
    names = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "mapping"}
    kind = field.get("type", "")
    return " ".join(filter(None, [names.get(kind, kind) if isinstance(kind, str) else "", " and ".join(bounds)]))


def instance_arguments() -> str:
    """List the keyword arguments that the functions over a grid have in common."""
    described = parameters(cx.evaluate.__doc__)
    return table(
        ["argument", "default", "meaning"],
        [(code(name), code(default), described.get(name, "")) for name, default in DEFAULTS.items()],
    )


def options() -> str:
    """List the fields of `cx.Options`."""
    described = parameters(cx.Options.__doc__)
    fields = cx.Options.model_json_schema()["properties"]
    rows = []
    for name, field in cx.Options.model_fields.items():
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        rows.append((code(name), code(default) or "none", allowed(fields[name]), described.get(name, "")))
    return table(["option", "default", "values", "meaning"], rows)


def variables() -> str:
    """List the stored variables."""
    rows = [
        (code(name), v.units, v.long_name, v.kind, ", ".join(v.inputs).replace("_", "\\_"))
        for name, v in VARIABLES.items()
    ]
    return table(["variable", "unit", "meaning", "kind", "depends on"], rows)


def metrics() -> str:
    """List the derived metrics."""
    rows = [
        (code(name), d.units, d.comment, d.phase or "both", ", ".join(f"`{need}`" for need in d.needs))
        for name, d in DERIVED.items()
    ]
    return table(["metric", "unit", "meaning", "phase", "needs"], rows)


def serving_variables() -> str:
    """List the variables of serving results."""
    return table(
        ["variable", "unit", "meaning"], [(code(n), u, meaning) for n, (u, meaning) in SERVING_VARIABLES.items()]
    )


def serving_limits() -> str:
    """List the flags of `limit`."""
    return table(["code", "label"], [(number, code(name)) for name, number in LIMITS.items()])


def status_codes() -> str:
    """List why a point has no times."""
    rows = [(number, code(name), REASONS[name], "yes" if number in RUNS else "NaN") for name, number in CODES.items()]
    return table(["code", "label", "reason", "times"], rows)


def bottlenecks() -> str:
    """List the flags of `bottleneck`."""
    return table(["code", "label"], [(number, code(name)) for name, number in BOTTLENECKS.items()])


def sweep_keys() -> str:
    """List the keys of a sweep file."""
    known = schema()
    rows = []
    for name, field in known["properties"].items():
        must = "required" if name in known["required"] else code(field.get("default"))
        rows.append((code(name), must, field.get("description", "")))
    return table(["key", "default", "value"], rows)


def commands() -> str:
    """Describe every command with its arguments and options."""
    text = ""
    for command in app.registered_commands:
        function = command.callback
        assert function is not None
        name = command.name or function.__name__.replace("_", "-")
        text += f"## `cheetah-xr {name}` {{#{name}}}\n\n{inspect.getdoc(function)}\n\n{_command_table(function)}\n"
    return text


def _command_table(function: Callable[..., Any]) -> str:
    hints = typing.get_type_hints(function, include_extras=True)
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = typing.get_args(hints[name])[:2]
        if type(info).__name__ == "ArgumentInfo":
            spelt = info.metavar or name.upper()
        else:
            spellings = [s for s in (info.default, *(info.param_decls or ())) if isinstance(s, str) and s[:1] == "-"]
            spelt = ", ".join(spellings) or "--" + name.replace("_", "-")
        empty = parameter.default is inspect.Parameter.empty
        default = "required" if empty else code(getattr(parameter.default, "value", parameter.default))
        choices = [item.value for item in _enum(kind)]
        values = f" One of {', '.join(f'`{c}`' for c in choices)}." if choices else ""
        rows.append((code(spelt), default, (info.help or "") + values))
    return table(["argument", "default", "meaning"], rows)


def _enum(kind: Any) -> list[Any]:
    """Return the members of an enumeration, also of an optional one; nothing for another type."""
    kinds = [kind, *typing.get_args(kind)]
    return [item for k in kinds if isinstance(k, type) and issubclass(k, Enum) for item in k]


def profiles() -> str:
    """List the factors of every efficiency profile."""
    names = cx.list_efficiencies()
    records = [cx.load_efficiency(name) for name in names]
    fields = [f for f in type(records[0]).model_fields if isinstance(getattr(records[0], f), (int, float, type(None)))]
    rows = [(code(field), *(_factor(getattr(record, field)) for record in records)) for field in fields]
    return table(["field", *names], rows)


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def gpus() -> str:
    """List the accelerators of the catalogue."""
    rows = []
    for name in cx.list_gpus():
        g = cx.load_gpu(name)
        peaks = [number(peak, 1e12) for peak in (g.peak_bf16, g.peak_fp8, g.peak_fp4)]
        links = [number(g.link_bandwidth, 1e9), number(g.link_domain), number(g.nic_bandwidth, 1e9)]
        memory = [number(g.memory_bytes, 1e9), number(g.hbm_bandwidth, 1e9)]
        rows.append((code(name), *memory, *peaks, *links, number(g.price_per_hour)))
    heads = ["memory GB", "HBM GB/s", "bf16 TFLOP/s", "fp8", "fp4", "scale-up GB/s", "domain", "NIC GB/s", "USD/h"]
    return table(["name", *heads], rows)


def models() -> str:
    """List the models of the catalogue."""
    rows = []
    for name in cx.list_models():
        m = cx.load_model(name)
        full = isinstance(m, Model)
        kinds = " + ".join(dict.fromkeys(g.attention for g in m.groups)) if isinstance(m, Model) else "parameter count"
        active = number(m.n_parameters_active, 1e9) if full else number(m.n_parameters, 1e9)
        rows.append((code(name), number(m.n_parameters, 1e9), active, kinds, number(m.max_seq_len)))
    return table(["name", "parameters (1e9)", "active (1e9)", "attention", "maximum context"], rows)


def precisions() -> str:
    """List the precisions of the catalogue."""
    rows = []
    for name in cx.list_precisions():
        p = cx.load_precision(name)
        weights = f"{p.attention_weight_bytes:g} / {p.dense_mlp_weight_bytes:g} / {p.experts_weight_bytes:g}"
        compute = f"{p.attention_compute} / {p.dense_mlp_compute} / {p.experts_compute}"
        rows.append((code(name), weights, compute, f"{p.kv_bytes:g}"))
    return table(["name", "weight bytes: attention / MLP / experts", "compute dtypes", "KV-cache bytes"], rows)


def sweeps() -> str:
    """List the shipped sweeps."""
    loaded = [(name, cx.load_sweep(name)) for name in cx.list_sweeps()]
    return table(["sweep", "question"], [(code(name), sweep.question) for name, sweep in loaded])


GENERATED: dict[str, Callable[[], str]] = {
    "instance-arguments": instance_arguments,
    "options": options,
    "variables": variables,
    "metrics": metrics,
    "serving-variables": serving_variables,
    "serving-limits": serving_limits,
    "status-codes": status_codes,
    "bottlenecks": bottlenecks,
    "sweep-keys": sweep_keys,
    "commands": commands,
    "profiles": profiles,
    "gpus": gpus,
    "models": models,
    "precisions": precisions,
    "sweeps": sweeps,
}


def renewed(text: str) -> str:
    """Return a page with its generated blocks made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{GENERATED[m[2]]()}\n{m[4]}", text)


def pages() -> dict[Path, str]:
    """Return the pages that have generated blocks, by path, as they are in the repository."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return {path: text for path, text in texts.items() if BLOCK.search(text)}


def main() -> None:
    """Write the pages whose generated blocks have changed."""
    for path, text in pages().items():
        new = renewed(text)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(DOCS.parent)}: generated anew")


if __name__ == "__main__":
    main()
