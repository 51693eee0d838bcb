"""Questions for other tools, and their errors side by side on the rows all of them answer.

python benchmarks/peers/compare.py questions questions.csv
python benchmarks/peers/compare.py report aiconfigurator=predictions.csv [another=predictions.csv ...]
"""

import sys

import pandas as pd

from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration.report import other_tools as peers

GROUPS = ((), ("side",), ("apart",), ("engine",), ("gpu",), ("model",))


def lines(asked: pd.DataFrame, found: dict[str, pd.DataFrame], tools: list[str]) -> list[str]:
    """Rows of a Markdown table: every mode, whole and by what it is made of."""
    rows = []
    for mode in peers.MODES:
        for by in GROUPS:
            total = peers.summary(asked[asked["mode"] == mode], [], by)
            parts = {time: peers.summary(table[table["mode"] == mode], tools, by) for time, table in found.items()}
            for name in total.index:
                if name not in parts["tpot_s"].index:
                    rows.append(f"| {mode} | {name} | 0 of {total.loc[name].item()} |" + " |" * 2 * len(tools))
                    continue
                cells = [mode, name, f"{parts['tpot_s'].loc[name, ('', 'rows')]:.0f} of {total.loc[name].item()}"]
                for tool in tools:
                    for time in found:
                        mape, median, bias = (parts[time].loc[name, (tool, k)] for k in ("mape", "median", "bias"))
                        cells.append(f"{mape:.1%} / {median:.1%} ({bias:+.1%})")
                rows.append("| " + " | ".join(cells) + " |")
    return rows


def report(files: dict[str, str]) -> None:
    """Print what the tools answer and how far off they are, rows answered from formulas apart."""
    table = validation.silicon_table()
    apart = table["reported"].where(table["reported"] != "", "not reported apart")
    table = table.assign(side=validation.sides(table), apart=apart)
    predictions = {tool: peers.read_predictions(path) for tool, path in files.items()}
    tools = list(predictions)
    found = {time: peers.errors(table, predictions, time) for time in peers.TIMES[::-1]}
    for tool, answers in predictions.items():
        print(f"{tool}: {(answers['reason'] == '').sum()} of {len(answers)} rows answered; why not:")
        print(answers["reason"][answers["reason"] != ""].str.split(":").str[:2].str.join(":").str[:72].value_counts())
    formulas = pd.Series(False, table["id"])
    for answers in predictions.values():
        if "database" in answers:
            formulas |= (answers["database"] == "HYBRID").reindex(formulas.index, fill_value=False)
    rest = {time: rows[formulas[rows.index]] for time, rows in found.items()}
    found = {time: rows[~formulas[rows.index]] for time, rows in found.items()}
    for time, rows in rest.items():
        print(f"answered from formulas, {time}:\n{peers.summary(rows, tools, ['mode'])}")
    asked = table[(table["rule"] == "") & table["mode"].isin(peers.MODES)]
    titles = [f"{tool} {time[:4].upper()}" for tool in tools for time in found]
    print("\n| mode | rows | answered | " + " | ".join(titles) + " |\n|---|---|---|" + "---|" * len(titles))
    print("\n".join(lines(asked, found, tools)))


def main() -> None:
    """Export questions or print the report."""
    match sys.argv[1:]:
        case ["questions", path]:
            peers.questions(validation.silicon_table()).to_csv(path, index=False)
        case ["report", *files] if files and all("=" in file for file in files):
            report(dict(file.split("=", 1) for file in files))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
