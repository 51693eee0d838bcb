"""Read the tables that commands print."""

import re


def shown(out, name):
    """First number in the row `name` of a table."""
    row = re.search(rf"^\s*{name}\s+(-?[\d,.]+)", out, re.MULTILINE)
    assert row, f"no row {name} in\n{out}"
    return float(row[1].replace(",", ""))
