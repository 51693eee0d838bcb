"""Compare the engine with the oracle at one point."""

import math
import warnings

import cheetah_xr as cx
from cheetah_xr.engine.validity import BOTTLENECKS, CODES
from tests.helpers import oracle, points

STATUS = {code: name for name, code in CODES.items()}
CAUSE = {code: name for name, code in BOTTLENECKS.items()}
EXACT = (
    "flops",
    "bytes_weights",
    "bytes_kv",
    "bytes_activations",
    "bytes_link",
    "bytes_nic",
    "weight_bytes",
    "kv_bytes_per_sequence",
    "memory_shortfall",
    "max_batch",
)
PARTS = tuple(f"time_{part}" for part in oracle.PARTS)
TIMED = ("ok", "clipped")
TIME_TOLERANCE = {"float32": 1e-5, "float64": 1e-9}


def plain_model(model):
    """A model as the oracle takes it."""
    fields = model.model_dump()
    return {**fields, "groups": []} if points.is_parameter_count(model) else {**fields, "n_parameters": None}


def expected(point):
    """The oracle's result."""
    records = (point.gpu, point.precision, point.efficiency, point.options)
    layout = {"tp": point.tp, "dp": point.dp, "ep": point.ep}
    workload = {"phase": point.phase, "batch": point.batch, "seq_len": point.seq_len}
    return oracle.evaluate(plain_model(point.model), *(r.model_dump() for r in records), **workload, **layout)


def evaluated(*args, **more):
    """The engine's result; that it warns of clipped batches is expected."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "some batches do not fit", UserWarning)
        return cx.evaluate(*args, **more)


def from_engine(point, dtype):
    """The engine's result at one point, as plain numbers."""
    names = ("batch", "seq_len", "phase", "tp", "dp", "ep", "efficiency", "options")
    ds = evaluated(
        point.model, point.gpu, point.precision, dtype=dtype, **{name: getattr(point, name) for name in names}
    )
    return {name: ds.variables[name].values[()] for name in ("status", "bottleneck", "step_time", *PARTS, *EXACT)}


def close(a, b, relative, scale=None):
    """Whether two numbers agree to a fraction of `scale`, by default of the larger."""
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= relative * (max(abs(a), abs(b)) if scale is None else abs(scale))


def clear_bottleneck(want):
    """The oracle's bottleneck, None where its two largest parts are too close to tell."""
    memory = [want[f"time_{cause}"] for cause in ("weights", "kv", "activations")]
    resources = [want["time_compute"], sum(memory), want["time_communication"], want["time_overhead"]]
    for parts in (resources, memory):
        first, second = sorted(parts, reverse=True)[:2]
        if first - second <= 1e-5 * want["step_time"]:
            return None
    return want["bottleneck"]


def differences(got, want, dtype="float64"):
    """Return what disagrees, as text."""
    status = STATUS[int(got["status"])]
    if status != want["status"]:
        return [f"status {status}, oracle {want['status']}"]
    wrong = []
    if status in (*TIMED, "infeasible_memory"):
        wrong += [name for name in EXACT if not close(float(got[name]), want[name], 1e-12)]
    if status in TIMED:
        step = want["step_time"]
        names = ("step_time", *PARTS)
        wrong += [name for name in names if not close(float(got[name]), want[name], TIME_TOLERANCE[dtype], step)]
        clear = clear_bottleneck(want)
        if clear is not None and clear != CAUSE[int(got["bottleneck"])]:
            wrong.append("bottleneck")
    else:
        wrong += [name for name in ("step_time", *PARTS) if not math.isnan(got[name])]
        wrong += ["bottleneck"] if got["bottleneck"] != -1 else []
    return [f"{name} {got[name]}, oracle {want[name]}" for name in wrong]


def describe(point):
    """A point on one line, to reproduce it."""
    records = f"{point.model.name} {point.gpu.name} {point.precision.name} {point.efficiency.name}"
    where = f"{point.phase} B={point.batch} s={point.seq_len} tp={point.tp} dp={point.dp} ep={point.ep}"
    options = point.options.model_dump(exclude_defaults=True)
    if "drafter" in options:
        options["drafter"] = getattr(point.options.drafter, "name", point.options.drafter)
    return f"{records} {where} {options}"
