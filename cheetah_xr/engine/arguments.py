"""Arguments of the public functions, gathered into one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..specs import Options, SpecError, to_record
from .axes import Axes
from .posterior_axis import with_draws


def axes_of(
    model: Any,
    gpu: Any,
    precision: Any = "bf16",
    batch: Any = 1,
    seq_len: Any = 1,
    phase: Any = "decode",
    tp: Any = 1,
    dp: Any = 1,
    ep: Any = 1,
    efficiency: Any = "default",
    options: Options | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    scales: Mapping[str, Any] | None = None,
) -> Axes:
    """Gather the arguments of :func:`evaluate` into one record, refusing what is not of their kind."""
    chosen = to_record(Options, options, "options") if isinstance(options, Mapping) else options or Options()
    if not isinstance(chosen, Options):
        raise SpecError(f"options: expected Options or a mapping, got {options!r}")
    for name, given in (("overrides", overrides), ("scales", scales)):
        if given is not None and not isinstance(given, Mapping):
            raise SpecError(f"{name}: expected a mapping from record.field to numbers, got {given!r}")
    return with_draws(Axes(
        model, gpu, precision, efficiency, phase, batch, seq_len, tp, dp, ep, chosen, overrides or {},
        scales or {},
    ))  # fmt: skip
