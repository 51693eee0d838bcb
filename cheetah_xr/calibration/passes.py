"""Many passes as flat tables of kernels and collectives, timed for many sets of factors at once.

The same ledger the engine prices: where the engine lets axes of factors broadcast against the grid, a fit needs a few
thousand unrelated points for thousands of factor sets. A test holds both to the same seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costmodel.formulas import collectives
from ..costmodel.operations import OUTSIDE, WEIGHT_CLASS, Collective
from ..costmodel.roofline import by_kernel, compute_class, is_zero
from ..costmodel.totals import priced
from ..engine.case import MAX_CUDA_GRAPH_TOKENS, Case
from ..engine.efficiency_by_layout import GROUPED, exchanged
from ..engine.efficiency_by_precision import FOUR_BIT, RELATIVE
from ..specs import COLLECTIVES, LAUNCHED, Efficiency, Precision

Array = NDArray[Any]
Factors = Mapping[str, Array]
"""Field of the efficiency record -> its value in every set."""

COUNTED = {
    "layers": "tau_layer",
    "prompt_layers": "tau_layer_prefill",
    "passes": "tau_global",
    "sequences": "tau_sequence",
    "requests": "tau_batch",
}
"""What is counted once for a pass: layers, layers of prompts whose kernels the host launches, passes, sequences of the
fullest attention rank, sequences of the instance; and the time that is paid for each."""

NEUTRAL = "1"
"""Name of a factor that is always 1."""

FIELDS = (*Efficiency.numeric_fields(), NEUTRAL)
"""What tables number the names of factors by."""

IS_RATE = np.array([not name.startswith(("latency", "launch", "tau")) for name in FIELDS])
"""Whether times are divided by a field; the others are times."""

KINDS = tuple(COLLECTIVES)


def names_of(kernel: str, precision: Precision) -> tuple[str, str, str, str]:
    """Fields that say what a kernel achieves: of memory, of compute, that of its number type, of one launch."""
    weights = WEIGHT_CLASS.get(kernel, "")
    kind = getattr(precision, f"{weights}_compute", "") if kernel in RELATIVE else ""
    relative = f"compute_{kind}" if kind in ("fp8", "fp4") else NEUTRAL
    names = {"memory": f"memory_{kernel}", "launch": LAUNCHED.get(kernel, "")}
    if kernel == "routed_experts" and precision.experts_weight_bytes < 1:
        stands = {field: special for field, special, multiplied in FOUR_BIT if kind in multiplied}
        names = {what: stands.get(name, name) for what, name in names.items()}
    return names["memory"], NEUTRAL if kernel == "embedding" else f"compute_{kernel}", relative, names["launch"]


@dataclass(frozen=True)
class Larger:
    """Entries of which each takes the longer of two times, and the sums of every row's entries.

    Entries whose rates have the same names stand together, so that no rate is looked up for an entry.
    """

    times: tuple[Array, Array]
    groups: tuple[tuple[slice, tuple[int, int], tuple[int, int]], ...]
    rows: sparse.csr_array

    @classmethod
    def of(cls, times: tuple[Array, Array], names: Any, rows: Array, n_rows: int) -> Larger:
        """From two times of every entry, the names of the two rates each is divided by, and the row of every entry."""
        keys = np.stack([*names[1][::-1], *names[0][::-1]], axis=1)
        kinds, kind = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        ends = np.searchsorted(kind[order], np.arange(len(kinds) + 1))
        groups = tuple(
            (slice(int(start), int(end)), (int(a), int(b)), (int(c), int(d)))
            for start, end, (d, c, b, a) in zip(ends[:-1], ends[1:], kinds, strict=True)
        )
        summed = sparse.csr_array((np.ones(len(order)), (rows[order], np.arange(len(order)))), (n_rows, len(order)))
        return cls((times[0][order][:, None], times[1][order][:, None]), groups, summed)

    def summed(self, inverse: Array) -> Array:
        """Sums of the longer times, (rows, sets), from one over every rate, (fields, sets)."""
        longer = np.empty((len(self.times[0]), inverse.shape[1]))
        for part, (a, b), (c, d) in self.groups:
            np.multiply(self.times[0][part], inverse[a] * inverse[b], out=longer[part])
            np.maximum(longer[part], self.times[1][part] * (inverse[c] * inverse[d]), out=longer[part])
        return np.asarray(self.rows @ longer)


@dataclass(frozen=True)
class PassTable:
    """Kernels, collectives and launches of passes, each with the number of its row (ascending).

    Seconds are those at peak rates; names are places in :data:`FIELDS`, kinds in :data:`KINDS`.
    """

    n_rows: int
    kernel_row: Array
    memory: Array
    memory_name: Array
    compute: Array
    compute_name: Array
    relative_name: Array
    launch_row: Array
    launches: Array
    launch_name: Array
    sent_row: Array
    link: Array
    nic: Array
    used: Array
    messages: Array
    kind: Array
    layers: Array
    prompt_layers: Array
    passes: Array
    sequences: Array
    requests: Array

    def seconds(self, factors: Factors) -> Array:
        """Seconds of every pass.

        Parameters
        ----------
        factors
            Value of every numeric field of the efficiency record, each of shape (sets,).

        Returns
        -------
        numpy.ndarray
            Shape (rows, sets).
        """
        sets = len(next(iter(factors.values())))
        values = np.stack([np.ones(sets) if name == NEUTRAL else factors[name] for name in FIELDS])
        inverse = np.divide(1.0, values, out=np.ones_like(values), where=IS_RATE[:, None])
        return np.asarray(self._kernels.summed(inverse) + self._sent.summed(inverse) + self._counts @ values)

    @cached_property
    def _kernels(self) -> Larger:
        """Of every kernel the longer of memory and compute."""
        names = (self.memory_name, np.full_like(self.memory_name, FIELDS.index(NEUTRAL)))
        rates = (names, (self.compute_name, self.relative_name))
        return Larger.of((self.memory, self.compute), rates, self.kernel_row, self.n_rows)

    @cached_property
    def _sent(self) -> Larger:
        """Of every collective the longer of link and NIC."""
        neutral = np.full_like(self.kind, FIELDS.index(NEUTRAL))
        rates = ((_of_kind("link", self.kind), neutral), (_of_kind("nic", self.kind), neutral))
        return Larger.of((self.link, self.nic), rates, self.sent_row, self.n_rows)

    @cached_property
    def _counts(self) -> Array:
        """How often every row pays each field that is a time, (rows, fields)."""
        counts = np.zeros((self.n_rows, len(FIELDS)))
        np.add.at(counts, (self.launch_row, self.launch_name), self.launches)
        np.add.at(counts, (self.sent_row, _of_kind("latency", self.kind)), self.used)
        np.add.at(counts[:, FIELDS.index("latency_message")], self.sent_row, self.messages)
        for count, name in COUNTED.items():
            counts[:, FIELDS.index(name)] += getattr(self, count)
        return counts

    def only(self, rows: Array) -> PassTable:
        """The passes of some rows, in the order given."""
        place = np.full(self.n_rows, -1)
        place[rows] = np.arange(len(rows))
        found: dict[str, Any] = {"n_rows": len(rows)}
        for key, columns in ENTRIES.items():
            new = place[getattr(self, key)]
            order = np.argsort(new, kind="stable")
            order = order[new[order] >= 0]
            found[key] = new[order]
            found |= {name: getattr(self, name)[order] for name in columns}
        return PassTable(**found, **{name: getattr(self, name)[rows] for name in COUNTED})


ENTRIES = {
    "kernel_row": ("memory", "memory_name", "compute", "compute_name", "relative_name"),
    "launch_row": ("launches", "launch_name"),
    "sent_row": ("link", "nic", "used", "messages", "kind"),
}
"""Rows of a kind of entries -> the columns of its entries."""


def without_requests(table: PassTable) -> PassTable:
    """The same passes without what the CPU does for every request: it prepares prompts once, not in every pass."""
    none = np.zeros(table.n_rows)
    return replace(table, sequences=none, requests=none)


def _of_kind(start: str, kind: Array) -> Array:
    """Places of the fields of collectives of some kinds."""
    return np.array([FIELDS.index(f"{start}_{name}") for name in KINDS], int)[kind]


def values_of(efficiency: Efficiency) -> dict[str, Array]:
    """The numeric fields of a record as one set of factors, the fields that follow another filled in."""
    found = {name: getattr(efficiency, name) for name in Efficiency.numeric_fields()}
    return {name: np.array([float(value)]) for name, value in filled(found).items()}


def filled(found: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that stand in for another one and are not given, filled with the other's value."""
    pairs = [GROUPED, *((field, special) for field, special, _ in FOUR_BIT)]
    stood_for = {special: found[field] for field, special in pairs if found.get(special) is None}
    return dict(found) | stood_for


class _Builder:
    """Collects entries pass by pass."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.kernels: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.sent: list[tuple[Any, ...]] = []

    def spread(self, value: Any) -> Array:
        return np.array(np.broadcast_to(np.asarray(value, float).reshape(-1), (self.n_rows,)))

    def kernel(self, case: Case, key: str, memory: Any, compute: Any) -> None:
        fast = 1.0 if is_zero(compute) else case.rates.peak[compute_class(key)]
        names = [self.named(name) for name in names_of(key, case.precision)[:3]]
        if key == "routed_experts":
            names[1] = np.where(exchanged(case.p.dp, case.p.ep), self.named(GROUPED[1]), names[1])
        self.kernels.append((self.spread(memory / case.rates.hbm_bandwidth), self.spread(compute / fast), *names))

    def named(self, name: str) -> Array:
        """The place of a field, the same in every row."""
        return np.full(self.n_rows, FIELDS.index(name))

    def launches(self, case: Case, key: str, times: Any) -> None:
        name = names_of(key, case.precision)[3]
        if name:
            self.launched.append((self.spread(times), self.named(name)))

    def collective(self, case: Case, c: Collective, times: Any) -> None:
        rates = case.rates
        rate = collectives.link_rate(rates.link_bandwidth, rates.link_pairwise, c.members)
        used = c.used * (c.ranks > 1) * times
        work = case.sequence_counts[c.per] * times
        link, nic = c.link * work / rate, c.nic * work / rates.nic_bandwidth
        self.sent.append(
            (
                self.spread(link),
                self.spread(nic),
                self.spread(used),
                self.spread(c.messages * used),
                np.full(self.n_rows, KINDS.index(c.kind)),
            )
        )

    def table(self, case: Case, decoding: Case, growth: Any = 1.0) -> PassTable:
        """The table of what was added for `case`, with so many times its tokens; requests are those of `decoding`."""
        n, work = self.n_rows, case.work
        by_host = case.p.instance_tokens / case.p.dp * growth > MAX_CUDA_GRAPH_TOKENS

        def rows(entries: list[tuple[Any, ...]]) -> Array:
            return np.repeat(np.arange(n), len(entries))

        def column(entries: list[tuple[Any, ...]], at: int) -> Array:
            if not entries:
                return np.zeros(0, int)
            return np.stack([entry[at] for entry in entries], axis=1).reshape(-1)

        kernels, launched, sent = self.kernels, self.launched, self.sent
        return PassTable(
            n_rows=n,
            kernel_row=rows(kernels),
            memory=column(kernels, 0),
            memory_name=column(kernels, 2),
            compute=column(kernels, 1),
            compute_name=column(kernels, 3),
            relative_name=column(kernels, 4),
            launch_row=rows(launched),
            launches=column(launched, 0),
            launch_name=column(launched, 1),
            sent_row=rows(sent),
            link=column(sent, 0),
            nic=column(sent, 1),
            used=column(sent, 2),
            messages=column(sent, 3),
            kind=column(sent, 4),
            layers=self.spread(work.n_layers),
            prompt_layers=self.spread(work.n_eager_prefill_layers * by_host),
            passes=self.spread(work.n_forward_passes),
            sequences=self.spread(decoding.sequence_counts["rank_batch"]),
            requests=self.spread(decoding.batch),
        )


def compile_pass(case: Case, n_rows: int) -> PassTable:
    """The pass of a case on one axis of `n_rows` rows, in series: no overlap, one maximum per kernel."""
    made = _Builder(n_rows)
    _add(made, case, scale=1.0, kernels=None)
    return made.table(case, case)


APART = ("attn_core", "indexer")
"""Kernels whose work belongs to one sequence: decoding requests add their own to a mixed pass."""


def compile_mixed(prefill: Case, decode: Case, growth: Any, n_rows: int) -> PassTable:
    """A pass over prompts that carries the decoding requests along (chunked prefill).

    Parameters
    ----------
    prefill, decode
        The passes of the prompts and of the decoding requests, on one axis of `n_rows` rows.
    growth
        Tokens of the mixed pass over those of the prompts: what linear kernels and collectives grow by.
    """
    made = _Builder(n_rows)
    _add(made, prefill, scale=growth, kernels=None, without=("lm_head", "embedding"))
    _add(made, decode, scale=1.0, kernels=(*APART, "lm_head", "embedding"))
    return made.table(prefill, decode, growth)


def _add(
    made: _Builder,
    case: Case,
    scale: Any,
    kernels: Iterable[str] | None,
    without: Iterable[str] = (),
) -> None:
    """Add the parts of a pass; `scale` multiplies what grows with tokens, except in the kernels of :data:`APART`."""
    for layer, times in priced(case.work, case.options):
        if layer.part in without:
            continue
        for (key, _, of), work in by_kernel(layer.operations).items():
            if kernels is not None and key not in kernels:
                continue
            n = case.sequence_counts[of] * times * (1.0 if key in APART else scale)
            memory = (
                work.weights * times + (work.rows + work.activations) * n + work.kv * case.sequence_counts[of] * times
            )
            made.kernel(case, key, memory, 0.0 if is_zero(work.flops) else work.flops * n)
        if kernels is not None and layer.part not in OUTSIDE:
            continue
        for op in layer.operations:
            if not is_zero(op.launches):
                made.launches(case, op.kernel, op.launches * times)
        for c in (*layer.expert_all_to_all, *layer.other_collectives):
            made.collective(case, replace(c, link=c.link * scale, nic=c.nic * scale), times)


def joined(tables: Iterable[PassTable]) -> PassTable:
    """Tables one below the other."""
    tables = list(tables)
    starts = np.cumsum([0, *(table.n_rows for table in tables)])
    found: dict[str, Any] = {"n_rows": int(starts[-1])}
    for f in fields(PassTable):
        if f.name != "n_rows":
            parts = [getattr(table, f.name) for table in tables]
            if f.name.endswith("_row"):
                parts = [part + start for part, start in zip(parts, starts[:-1], strict=True)]
            found[f.name] = np.concatenate([part for part in parts if len(part)] or parts)
    return PassTable(**found)
