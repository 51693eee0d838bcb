"""The one table of result variables: which inputs each depends on, its unit, its type and its label.

Dims of a variable are those of the sweep's axes its inputs occupy; they are never read off values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .dims import BATCH, EFFICIENCY, GPU, MODEL, OPTIONS, PARALLEL, PHASE, PRECISION, SEQ_LEN, TP

LAYOUT_INPUTS = (*PARALLEL, OPTIONS)
WORK = (MODEL, PRECISION, PHASE, *LAYOUT_INPUTS, BATCH, SEQ_LEN)
WIRE = (MODEL, GPU, PRECISION, PHASE, *LAYOUT_INPUTS, BATCH, SEQ_LEN)
EVERYTHING = (MODEL, GPU, PRECISION, EFFICIENCY, PHASE, *LAYOUT_INPUTS, BATCH, SEQ_LEN)

Kind = Literal["time", "work", "flag"]


@dataclass(frozen=True)
class Variable:
    """One stored variable."""

    units: str
    long_name: str
    inputs: tuple[str, ...]
    kind: Kind


VARIABLES: dict[str, Variable] = {
    "step_time": Variable("s", "time of one forward pass of the whole batch", EVERYTHING, "time"),
    "time_compute": Variable("s", "part of step_time bound by compute", EVERYTHING, "time"),
    "time_weights": Variable("s", "part of step_time bound by reading weights", EVERYTHING, "time"),
    "time_kv": Variable("s", "part of step_time bound by KV-cache traffic", EVERYTHING, "time"),
    "time_activations": Variable("s", "part of step_time bound by activation traffic", EVERYTHING, "time"),
    "time_communication": Variable("s", "part of step_time spent in collectives and exposed", EVERYTHING, "time"),
    "time_overhead": Variable("s", "part of step_time spent in launches and CPU overheads", EVERYTHING, "time"),
    "flops": Variable(
        "FLOP", "work of one GPU in one forward pass", (MODEL, PHASE, *LAYOUT_INPUTS, BATCH, SEQ_LEN), "work"
    ),
    "bytes_weights": Variable("B", "weight bytes one GPU reads in one forward pass", WORK, "work"),
    "bytes_kv": Variable("B", "KV-cache bytes one GPU reads and writes in one forward pass", WORK, "work"),
    "bytes_activations": Variable("B", "activation bytes one GPU reads and writes in one forward pass", WORK, "work"),
    "bytes_link": Variable("B", "bytes one GPU sends over its link in one forward pass", WIRE, "work"),
    "bytes_nic": Variable("B", "bytes one GPU sends over its NIC in one forward pass", WIRE, "work"),
    "peak_compute_time": Variable("s", "time of the FLOPs at the peak of each compute type", WIRE, "work"),
    "status": Variable("1", "why a point has no times", WIRE, "flag"),
    "bottleneck": Variable("1", "largest attributed resource; for memory its largest cause", EVERYTHING, "flag"),
    "weight_bytes": Variable("B", "bytes of resident weights of one GPU", (MODEL, PRECISION, *LAYOUT_INPUTS), "work"),
    "kv_bytes_per_sequence": Variable(
        "B", "cache bytes of one sequence on one GPU", (MODEL, PRECISION, PHASE, TP, OPTIONS, SEQ_LEN), "work"
    ),
    "memory_shortfall": Variable("B", "bytes missing on one GPU, 0 where everything fits", WIRE, "work"),
    "max_batch": Variable(
        "1",
        "largest batch that fits in memory",
        (MODEL, GPU, PRECISION, PHASE, *LAYOUT_INPUTS, SEQ_LEN),
        "work",
    ),
}

TIME_PARTS = tuple(name for name in VARIABLES if name.startswith("time_"))
CAPACITY = ("weight_bytes", "kv_bytes_per_sequence", "memory_shortfall", "max_batch")
