"""Write the inputs of other tools, and report their errors on the rows all of them predict.

python benchmarks/other_tools/compare.py inputs inputs.csv
python benchmarks/other_tools/compare.py report aiconfigurator=predictions.csv [another=predictions.csv ...]
"""

import sys

import pandas as pd

from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration.report import other_tools

GROUPS = ((), ("side",), ("separately",), ("engine",), ("gpu",), ("model",))


def lines(eligible: pd.DataFrame, errors: dict[str, pd.DataFrame], tools: list[str]) -> list[str]:
    """Return the rows of a Markdown table: every mode, as a whole and by group."""
    rows = []
    for mode in other_tools.MODES:
        for by in GROUPS:
            total = other_tools.summary(eligible[eligible["mode"] == mode], [], by)
            parts = {
                time: other_tools.summary(table[table["mode"] == mode], tools, by) for time, table in errors.items()
            }
            for name in total.index:
                if name not in parts["tpot_s"].index:
                    rows.append(f"| {mode} | {name} | 0 of {total.loc[name].item()} |" + " |" * 2 * len(tools))
                    continue
                cells = [mode, name, f"{parts['tpot_s'].loc[name, ('', 'rows')]:.0f} of {total.loc[name].item()}"]
                for tool in tools:
                    for time in errors:
                        mape, median, bias = (parts[time].loc[name, (tool, k)] for k in ("mape", "median", "bias"))
                        cells.append(f"{mape:.1%} / {median:.1%} ({bias:+.1%})")
                rows.append("| " + " | ".join(cells) + " |")
    return rows


def report(files: dict[str, str]) -> None:
    """Print how many rows the tools predict and their errors, rows predicted from formulas separately."""
    table = validation.silicon_table()
    reported = table["reported"].where(table["reported"] != "", "not reported separately")
    table = table.assign(side=validation.sides(table), separately=reported)
    predictions = {tool: other_tools.read_predictions(path) for tool, path in files.items()}
    tools = list(predictions)
    errors = {time: other_tools.errors(table, predictions, time) for time in other_tools.TIMES[::-1]}
    for tool, rows in predictions.items():
        print(f"{tool}: {(rows['reason'] == '').sum()} of {len(rows)} rows predicted; reasons for the others:")
        print(rows["reason"][rows["reason"] != ""].str.split(":").str[:2].str.join(":").str[:72].value_counts())
    formulas = pd.Series(False, table["id"])
    for rows in predictions.values():
        if "database" in rows:
            formulas |= (rows["database"] == "HYBRID").reindex(formulas.index, fill_value=False)
    rest = {time: rows[formulas[rows.index]] for time, rows in errors.items()}
    errors = {time: rows[~formulas[rows.index]] for time, rows in errors.items()}
    for time, rows in rest.items():
        print(f"predicted from formulas, {time}:\n{other_tools.summary(rows, tools, ['mode'])}")
    eligible = table[(table["rule"] == "") & table["mode"].isin(other_tools.MODES)]
    titles = [f"{tool} {time[:4].upper()}" for tool in tools for time in errors]
    print("\n| mode | rows | predicted | " + " | ".join(titles) + " |\n|---|---|---|" + "---|" * len(titles))
    print("\n".join(lines(eligible, errors, tools)))


def main() -> None:
    """Write the inputs or print the report."""
    match sys.argv[1:]:
        case ["inputs", path]:
            other_tools.tool_inputs(validation.silicon_table()).to_csv(path, index=False)
        case ["report", *files] if files and all("=" in file for file in files):
            report(dict(file.split("=", 1) for file in files))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
