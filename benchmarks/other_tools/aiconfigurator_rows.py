"""Predict measured rows with aiconfigurator 0.12.0: ``make compare-aiconfigurator``, in an environment that has it.

    python aiconfigurator_rows.py settings.csv inputs.csv predictions.csv

Settings are checkpoints and quantisations by model, weights, engine and mode: aiconfigurator_settings.csv, the best
known, or aiconfigurator_labels.csv, what the package's own table and adapter give the runs.
Inputs are what ``cheetah_xr.calibration.report.other_tools.tool_inputs`` writes, predictions what its
``read_predictions`` reads. Every row is predicted through ``cli_estimate``, the package's entry point, with the row's
layout, mean lengths and concurrency. Where there is a choice, it is made in the package's favour;
docs/evidence/other-tools.md describes it.
"""

import csv
import functools
import itertools
import logging
import math
import sys
import warnings
from importlib import metadata

VERSION = "0.12.0"
SYSTEMS = {
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
}
CACHES = {"1.0": "fp8", "2.0": "bfloat16"}
DATABASES = ("SILICON", "HYBRID")
"""Measured tables only, which is the package's default, then formulas where a table is missing."""
COLUMNS = ("id", "ttft_s", "tpot_s", "reason", "database", "setting", "queues")


def remember_lookups(perf_database):
    """Read the package's lists of versions once: it parses hundreds of YAML files again for every estimate."""
    supported, slots = perf_database.get_supported_databases, perf_database.get_version_slots
    remembered = functools.cache(lambda system, backend, paths: slots(system, backend, list(paths)))

    def version_slots(system, backend, systems_paths=None):
        paths = perf_database.get_systems_paths() if systems_paths is None else systems_paths
        return remembered(system, backend, tuple([paths] if isinstance(paths, str) else paths))

    perf_database.get_supported_databases = functools.cache(supported)
    perf_database.get_version_slots = version_slots


def settings(row, known):
    """Return checkpoints and quantisations for a row, best first; a blank in the list agrees with everything."""
    weights = {"model": row["model"], "weights": row["precision"].removesuffix("-kv8")}
    given = weights | {"engine": row["engine"], "mode": row["mode"]}
    return [choice for choice in known if all(choice[name] in ("", value) for name, value in given.items())]


def layout(row, pool=""):
    """Return the degrees of an instance, or of one prefill or decode worker."""
    degrees = {
        f"{pool}tp_size": int(row[f"{pool}tp"]),
        f"{pool}attention_dp_size": int(row[f"{pool}dp"]),
        f"{pool}moe_tp_size": int(row[f"{pool}moe_tp"]),
        f"{pool}moe_ep_size": int(row[f"{pool}ep"]),
    }
    if pool:
        degrees[f"{pool}num_workers"] = int(row[f"{pool}workers"])
    return degrees


def load(row):
    """Return mode, layout and requests per attention rank; a prefill worker takes one request at a time."""
    requests = int(row["concurrency"])
    if row["mode"] == "aggregated":
        return layout(row) | {"mode": "agg", "batch_size": math.ceil(requests / int(row["dp"]))}
    ranks = int(row["decode_dp"]) * int(row["decode_workers"])
    batches = {"prefill_batch_size": 1, "decode_batch_size": math.ceil(requests / ranks)}
    return layout(row, "prefill_") | layout(row, "decode_") | batches | {"mode": "disagg"}


def ways(row, known):
    """Yield arguments to try in turn: the row's KV-cache dtype first, then the package's default."""
    fraction = float(row["length_fraction"])
    arguments = load(row) | {
        "system_name": SYSTEMS[row["gpu"]],
        "backend_name": row["engine"],
        "isl": round(int(row["isl"]) * fraction),
        "osl": round(int(row["osl"]) * fraction),
    }
    caches = (CACHES[row["kv_bytes"]], None)
    for database, cache, choice in itertools.product(DATABASES, caches, settings(row, known)):
        given = {"gemm": choice["gemm"] or None, "moe": choice["moe"] or None, "kvcache": cache}
        quant = {f"{name}_quant_mode": value for name, value in given.items()}
        label = " ".join([choice["checkpoint"], *(f"{name}={value}" for name, value in given.items() if value)])
        yield database, label, arguments | quant | {"model_path": choice["checkpoint"], "database_mode": database}


def one_line(error):
    """Return the message of an error without line breaks and addresses of files."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text.split(' at /')[0]}"[:300]


def predict(row, known, estimate):
    """Return the prediction of the first way that has one, else the reason (or error) of the first."""
    reasons = []
    for database, label, arguments in ways(row, known):
        try:
            estimated = estimate(**arguments)
        except Exception as error:
            reasons.append(one_line(error))
            continue
        times = (float(estimated.ttft) / 1e3, float(estimated.tpot) / 1e3)
        if all(math.isfinite(time) and time > 0 for time in times):
            queues = "yes" if estimated.kv_cache_warning else ""
            return dict(zip(COLUMNS, (row["id"], *times, "", database, label, queues), strict=True))
        reasons.append(f"ttft {times[0]} s, tpot {times[1]} s")
    reason = reasons[0] if reasons else f"no setting for {row['model']} {row['precision']}"
    return dict.fromkeys(COLUMNS, "") | {"id": row["id"], "reason": reason}


def read(path):
    """Read the rows of a CSV file."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main():
    """Predict the rows of a file."""
    if metadata.version("aiconfigurator") != VERSION:
        sys.exit(f"aiconfigurator {metadata.version('aiconfigurator')} is installed; this script is for {VERSION}")
    from aiconfigurator.cli.api import cli_estimate
    from aiconfigurator.sdk import perf_database

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    remember_lookups(perf_database)
    known, rows = read(sys.argv[1]), read(sys.argv[2])
    ordered = sorted(rows, key=lambda row: (row["gpu"], row["engine"], row["model"]))
    predictions = {row["id"]: predict(row, known, cli_estimate) for row in ordered}
    with open(sys.argv[3], "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(predictions[row["id"]] for row in rows)


if __name__ == "__main__":
    main()
