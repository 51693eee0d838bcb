"""Pure formulas on floats, NumPy arrays or DataArrays: no branch on a value, no I/O, no import from above.

Symbols are those of docs/explanation/cost-model.md. ``Num`` marks anything arithmetic works on.
"""

from typing import Any, TypeAlias

Num: TypeAlias = Any

__all__ = ["Num"]
