"""Row tables: the engine's cost rows of many forward passes, flat, and their seconds for many parameter sets at once.

:func:`cheetah_xr.engine.cost_rows.cost_rows` lists what takes time. The engine lets axes of efficiencies broadcast
against a grid; a fit needs a few thousand unrelated forward passes for thousands of parameter sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..costmodel.formulas import Num
from ..costmodel.operations import OUTSIDE
from ..costmodel.roofline import MESSAGE_FIELD, CollectiveRow, KernelRow, LayerRows
from ..engine.case import Case
from ..engine.cost_rows import OverheadRow, cost_rows, runs_eagerly
from ..engine.inputs.efficiency_rules import fields_used, filled, relative_field
from ..engine.mixed_batch import CORE, scheduled_by
from ..specs import Efficiency

Array = NDArray[Any]
FieldValues = Mapping[str, Array]
"""Field of the efficiency record -> its value in every parameter set."""

NEUTRAL = "1"
"""Name of a field that is always 1."""

FIELDS = (*Efficiency.numeric_fields(), NEUTRAL)
"""What tables number the fields by."""

IS_RATE = np.array([not name.startswith(("latency", "launch", "tau")) for name in FIELDS])
"""Whether times are divided by a field; the others are times."""

PER_REQUEST = ("tau_batch", "tau_sequence")
"""Fields that are paid for every request of a forward pass."""

ENTRIES = {
    "kernel_row": ("memory", "memory_field", "compute", "compute_field", "relative_field"),
    "collective_row": ("link", "link_field", "nic", "nic_field"),
}
"""Rows of a kind of entries -> the columns of its entries."""


@dataclass(frozen=True)
class Larger:
    """Entries of which each takes the longer of two times, and the sums of every row's entries.

    Entries whose rates have the same fields stand together, so that no rate is looked up for an entry.
    """

    times: tuple[Array, Array]
    groups: tuple[tuple[slice, tuple[int, int], tuple[int, int]], ...]
    rows: sparse.csr_array

    @classmethod
    def of(cls, times: tuple[Array, Array], fields: Any, rows: Array, n_rows: int) -> Larger:
        """Group two times of every entry by the two fields each is divided by, given the row of every entry."""
        keys = np.stack([*fields[1][::-1], *fields[0][::-1]], axis=1)
        kinds, kind = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        ends = np.searchsorted(kind[order], np.arange(len(kinds) + 1))
        groups = tuple(
            (slice(int(start), int(end)), (int(a), int(b)), (int(c), int(d)))
            for start, end, (d, c, b, a) in zip(ends[:-1], ends[1:], kinds, strict=True)
        )
        sums = sparse.csr_array((np.ones(len(order)), (rows[order], np.arange(len(order)))), (n_rows, len(order)))
        return cls((times[0][order][:, None], times[1][order][:, None]), groups, sums)

    def summed(self, inverse: Array) -> Array:
        """Sum the longer times, (rows, sets), from one over every rate, (fields, sets)."""
        longer = np.empty((len(self.times[0]), inverse.shape[1]))
        for part, (a, b), (c, d) in self.groups:
            np.multiply(self.times[0][part], inverse[a] * inverse[b], out=longer[part])
            np.maximum(longer[part], self.times[1][part] * (inverse[c] * inverse[d]), out=longer[part])
        return np.asarray(self.rows @ longer)


@dataclass(frozen=True)
class RowTable:
    """Kernels and collectives of forward passes, each with the number of its row, and what every row pays.

    Times are seconds at peak rates, fields are positions in :data:`FIELDS`. `paid` is how often a row pays each field
    that is a time, (rows, fields).
    """

    n_rows: int
    kernel_row: Array
    memory: Array
    memory_field: Array
    compute: Array
    compute_field: Array
    relative_field: Array
    collective_row: Array
    link: Array
    link_field: Array
    nic: Array
    nic_field: Array
    paid: Array

    def seconds(self, values: FieldValues) -> Array:
        """Return the seconds of every forward pass.

        Parameters
        ----------
        values
            Value of every numeric field of the efficiency record, each of shape (sets,).

        Returns
        -------
        numpy.ndarray
            Shape (rows, sets).
        """
        sets = len(next(iter(values.values())))
        stacked = np.stack([np.ones(sets) if name == NEUTRAL else values[name] for name in FIELDS])
        inverse = np.divide(1.0, stacked, out=np.ones_like(stacked), where=IS_RATE[:, None])
        return np.asarray(self._kernels.summed(inverse) + self._collectives.summed(inverse) + self.paid @ stacked)

    @cached_property
    def _kernels(self) -> Larger:
        """Of every kernel the longer of memory and compute."""
        fields = ((self.memory_field, _neutral(self.memory_field)), (self.compute_field, self.relative_field))
        return Larger.of((self.memory, self.compute), fields, self.kernel_row, self.n_rows)

    @cached_property
    def _collectives(self) -> Larger:
        """Of every collective the longer of link and NIC."""
        fields = ((self.link_field, _neutral(self.link_field)), (self.nic_field, _neutral(self.nic_field)))
        return Larger.of((self.link, self.nic), fields, self.collective_row, self.n_rows)

    def take(self, rows: Array) -> RowTable:
        """Return the table of some rows, in the order given."""
        position = np.full(self.n_rows, -1)
        position[rows] = np.arange(len(rows))
        columns: dict[str, Any] = {}
        for key, names in ENTRIES.items():
            new = position[getattr(self, key)]
            order = np.argsort(new, kind="stable")
            order = order[new[order] >= 0]
            columns |= {key: new[order]} | {name: getattr(self, name)[order] for name in names}
        return RowTable(n_rows=len(rows), paid=self.paid[rows], **columns)

    def without_requests(self) -> RowTable:
        """Return the table without what the CPU does for every request: it prepares a prompt only once."""
        paid = self.paid.copy()
        paid[:, [FIELDS.index(name) for name in PER_REQUEST]] = 0.0
        return replace(self, paid=paid)


def _neutral(fields: Array) -> Array:
    return np.full_like(fields, FIELDS.index(NEUTRAL))


def concatenate(tables: Iterable[RowTable]) -> RowTable:
    """Return tables one below the other."""
    tables = list(tables)
    starts = np.cumsum([0, *(table.n_rows for table in tables)])
    columns: dict[str, Any] = {"paid": np.concatenate([table.paid for table in tables])}
    for key, names in ENTRIES.items():
        rows = [getattr(table, key) + start for table, start in zip(tables, starts[:-1], strict=True)]
        columns |= {key: np.concatenate(rows)}
        columns |= {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    return RowTable(n_rows=int(starts[-1]), **columns)


def field_values(efficiency: Efficiency) -> dict[str, Array]:
    """Return the numeric fields of a record as one parameter set, fields that are not given filled in."""
    given = {name: getattr(efficiency, name) for name in Efficiency.numeric_fields()}
    return {name: np.array([float(value)]) for name, value in filled(given).items()}


def forward_pass_table(case: Case, n_rows: int) -> RowTable:
    """Flatten the rows of a case on one axis of `n_rows` forward passes: no overlap, one maximum per kernel."""
    builder, rows = _Builder(n_rows), cost_rows(case)
    for layer in rows.layers:
        builder.add(case, layer)
    builder.add_overheads(case, rows.overheads)
    return builder.table()


def mixed_batch_table(prefill: Case, decode: Case, token_ratio: Num, n_rows: int) -> RowTable:
    """Flatten the rows of mixed batches: prompts, and decoding requests in the same forward pass (chunked prefill).

    Layers work on the tokens of both, but each kind keeps its attention core; embedding and LM head are those of the
    decoding requests. :func:`cheetah_xr.engine.mixed_batch.mixed_case`, which serving uses, also counts embedding and
    LM head of the prompts, experts that only decoding requests choose, and leaves eager mode to the prompts alone; the
    shipped profiles are fitted with the rule here.

    Parameters
    ----------
    prefill, decode
        The forward passes of the prompts and of the decoding requests, on one axis of `n_rows` rows.
    token_ratio
        Tokens of the mixed batch over those of the prompts.
    """
    builder, rows = _Builder(n_rows), cost_rows(scheduled_by(prefill, decode))
    for layer in rows.layers:
        if layer.part not in OUTSIDE:
            builder.add(prefill, layer, token_ratio)
    for layer in cost_rows(decode).layers:
        if layer.part in OUTSIDE:
            builder.add(decode, layer)
        else:
            builder.add_kernels(decode, [row for row in layer.kernels if row.kernel in CORE])
    builder.add_overheads(prefill, rows.overheads, token_ratio)
    return builder.table()


class _Builder:
    """Collects entries layer by layer."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.kernels: list[tuple[Array, ...]] = []
        self.collectives: list[tuple[Array, ...]] = []
        self.paid = np.zeros((n_rows, len(FIELDS)))

    def add(self, case: Case, layer: LayerRows, token_ratio: Num = 1.0) -> None:
        """Add all rows of a layer; `token_ratio` multiplies what grows with tokens, except in attention cores."""
        self.add_kernels(case, layer.kernels, token_ratio)
        for launch in layer.launches:
            self._pay(self._field(case, launch.field), launch.launches * layer.times)
        for row in (*layer.expert_all_to_all, *layer.other_collectives):
            self._add_collective(case, row, token_ratio)

    def add_kernels(self, case: Case, rows: Iterable[KernelRow], token_ratio: Num = 1.0) -> None:
        """Add kernels."""
        for row in rows:
            work, sequences = row.work, case.sequence_counts[row.per] * row.times
            n = sequences * (1.0 if row.kernel in CORE else token_ratio)
            memory = work.weights * row.times + (work.rows + work.activations) * n + work.kv * sequences
            compute = work.flops * n / row.peak if row.compute_field else 0.0
            self.kernels.append(
                (
                    self._spread(memory / row.bandwidth),
                    self._field(case, row.memory_field),
                    self._spread(compute),
                    self._field(case, row.compute_field or NEUTRAL),
                    self._field(case, relative_field(row.kernel, case.precision) or NEUTRAL),
                )
            )

    def add_overheads(self, case: Case, rows: Iterable[OverheadRow], token_ratio: Num = 1.0) -> None:
        """Add CPU overheads of a forward pass with `token_ratio` times the tokens of a case."""
        for row in rows:
            count = row.count if row.paid_by is None else row.paid_by
            times = count * runs_eagerly(case, token_ratio) if row.eager_only else count
            self._pay(self._field(case, row.field), times)

    def table(self) -> RowTable:
        """Return the table of what was added."""
        columns: dict[str, Any] = {}
        for (key, names), entries in zip(ENTRIES.items(), (self.kernels, self.collectives), strict=True):
            columns[key] = np.repeat(np.arange(self.n_rows), len(entries))
            for position, name in enumerate(names):
                column = [entry[position] for entry in entries]
                dtype = int if name.endswith("_field") else float
                columns[name] = np.stack(column, axis=1).reshape(-1) if column else np.zeros(0, dtype)
        return RowTable(n_rows=self.n_rows, paid=self.paid, **columns)

    def _add_collective(self, case: Case, row: CollectiveRow, token_ratio: Num) -> None:
        c, sequences = row.collective, case.sequence_counts[row.collective.per] * row.times
        self.collectives.append(
            (
                self._spread(c.link * token_ratio * sequences / row.link_rate),
                self._field(case, row.link_field),
                self._spread(c.nic * token_ratio * sequences / row.nic_rate),
                self._field(case, row.nic_field),
            )
        )
        occurrences = c.used * row.communicates * row.times
        self._pay(self._field(case, row.latency_field), occurrences)
        self._pay(self._field(case, MESSAGE_FIELD), c.messages * occurrences)

    def _pay(self, fields: Array, times: Any) -> None:
        """Add how often every row pays its field."""
        self.paid[np.arange(self.n_rows), fields] += self._spread(times)

    def _field(self, case: Case, name: str) -> Array:
        """Return the position of the field every row uses: the one named, or another in its place."""
        positions = np.full(self.n_rows, FIELDS.index(name))
        for special, where in fields_used(name, case.precision, case.p.dp, case.p.ep):
            positions = np.where(where, FIELDS.index(special), positions)
        return positions

    def _spread(self, value: Any) -> Array:
        return np.array(np.broadcast_to(np.asarray(value, float).reshape(-1), (self.n_rows,)))
