"""The command ``cheetah-xr serve``: latencies and throughput of requests, aggregated or disaggregated."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SpecError
from .arguments import (
    DpDegree,
    EfficiencyName,
    EpDegree,
    GpuName,
    ModelName,
    OptionPairs,
    PrecisionName,
    TpDegree,
    parse_options,
)
from .console import out

if TYPE_CHECKING:
    import xarray as xr
    from rich.table import Table

LIMIT_MEANINGS = {
    "concurrency": "all concurrent requests decode",
    "kv_cache_capacity": "the KV cache holds no more requests",
    "prefill": "prefill is saturated",
}
SECONDS_FROM = 10.0
"""Times from here on are shown in seconds, shorter ones in milliseconds."""


class Prefill(StrEnum):
    """Whether forward passes mix prefill and decode."""

    mixed = "mixed"
    separate = "separate"


class Lengths(StrEnum):
    """Lengths of requests."""

    random = "random"
    fixed = "fixed"


def serve(
    model: ModelName,
    gpu: GpuName,
    concurrency: Annotated[
        int, typer.Option(help="Concurrent (in-flight) requests; one that finishes is replaced at once.")
    ] = 64,
    isl: Annotated[int, typer.Option(help="Mean prompt tokens.")] = 8192,
    osl: Annotated[int, typer.Option(help="Mean output tokens.")] = 1024,
    precision: PrecisionName = None,
    efficiency: EfficiencyName = "default",
    tp: TpDegree = 1,
    dp: DpDegree = 1,
    ep: EpDegree = 1,
    prefill: Annotated[
        Prefill | None,
        typer.Option(help="Mixed (chunked-prefill) batches (default), or prefill in forward passes of its own."),
    ] = None,
    lengths: Annotated[
        Lengths | None, typer.Option(help="Lengths of requests: random (default), or fixed (synchronized batches).")
    ] = None,
    chunked_prefill_size: Annotated[
        int, typer.Option(help="Most prefill tokens of a request in one forward pass.")
    ] = 8192,
    prefill_workers: Annotated[
        int | None,
        typer.Option(help="Prefill instances (disaggregated); --tp, --dp and --ep are then those of decode instances."),
    ] = None,
    prefill_tp: Annotated[int | None, typer.Option(help="Their tensor-parallel degree; default --tp.")] = None,
    prefill_dp: Annotated[int | None, typer.Option(help="Their data-parallel degree; default --dp.")] = None,
    prefill_ep: Annotated[int | None, typer.Option(help="Their expert-parallel degree; default --ep.")] = None,
    decode_workers: Annotated[int | None, typer.Option(help="Decode instances (disaggregated); default 1.")] = None,
    option: OptionPairs = None,
) -> None:
    """Serve requests, aggregated on one instance or with disaggregated prefill and decode: latencies and throughput.

    Example: `cheetah-xr serve --model llama-3.1-70b --gpu h100-sxm --tp 4 --concurrency 64 --isl 8192 --osl 1024`

    Example: `cheetah-xr serve --model llama-3.1-70b --gpu h100-sxm --tp 4 --prefill-workers 3 --concurrency 64`
    """
    from ..serving import serve as serve_aggregated
    from ..serving import serve_disaggregated
    from ..specs import load_model

    loaded = load_model(model)
    scheme = precision or loaded.default_precision
    load = {"concurrency": concurrency, "isl": isl, "osl": osl, "chunked_prefill_size": chunked_prefill_size}
    common: dict[str, Any] = {**load, "efficiency": efficiency, "options": parse_options(option or [])}
    aggregated = {"prefill": prefill, "lengths": lengths}
    prefill_degrees = {"prefill_tp": prefill_tp, "prefill_dp": prefill_dp, "prefill_ep": prefill_ep}
    if prefill_workers is None:
        _reject_given({**prefill_degrees, "decode_workers": decode_workers}, "needs --prefill-workers")
        common |= {name: choice.value for name, choice in aggregated.items() if choice is not None}
        ds = serve_aggregated(loaded, gpu, scheme, tp=tp, dp=dp, ep=ep, **common)
    else:
        _reject_given(aggregated, "is for aggregated serving; leave out --prefill-workers")
        common |= {"prefill_tp": tp, "prefill_dp": dp, "prefill_ep": ep}
        common |= {name: degree for name, degree in prefill_degrees.items() if degree is not None}
        common |= {"decode_tp": tp, "decode_dp": dp, "decode_ep": ep, "prefill_workers": prefill_workers}
        common |= {"decode_workers": 1 if decode_workers is None else decode_workers}
        ds = serve_disaggregated(loaded, gpu, scheme, **common)
    out.print(result_table(ds), highlight=False)


def _reject_given(values: dict[str, Any], why: str) -> None:
    """Reject options that are given but have no meaning in this mode of serving."""
    for name, value in values.items():
        if value is not None:
            raise SpecError(f"--{name.replace('_', '-')} {value}: {why}")


def result_table(ds: xr.Dataset) -> Table:
    """Tabulate the result of one point.

    Raises
    ------
    SpecError
        When the point cannot be served: the reason.
    """
    from rich.table import Table

    from ..engine.validity import CODES, REASONS
    from ..serving.result import LIMITS, VARIABLES
    from ..serving.workload import MEANINGS

    code = int(ds["status"])
    if code != CODES["ok"]:
        name = next(n for n, value in CODES.items() if value == code)
        raise SpecError(f"{REASONS[name]} ({name})")
    title = "  ".join(str(ds[name].values) for name in ("model", "gpu", "precision", "efficiency"))
    table = Table(title=title, show_header=False, title_justify="left", box=None)
    for name in (*(n for n in MEANINGS if n in ds.coords), "tp", "dp", "ep", "n_gpus"):
        if name in ds.coords:
            table.add_row(name, f"{int(ds[name]):,}", str(ds[name].attrs["long_name"]))
    for name in VARIABLES:
        if name in ds:
            table.add_row(name, _shown(ds[name]), str(ds[name].attrs["long_name"]))
    limit = next(n for n, value in LIMITS.items() if value == int(ds["limit"]))
    table.add_row("limit", limit, LIMIT_MEANINGS[limit])
    return table


def _shown(value: xr.DataArray) -> str:
    """Return a value with its unit."""
    number, units = float(value), str(value.attrs["units"])
    if units == "s":
        return f"{number:,.1f} s" if number >= SECONDS_FROM else f"{number * 1e3:,.2f} ms"
    return f"{number:,.1f} {units}" if units == "1/s" else f"{number:,.1f}"
