"""Options that several commands take: records by name or file, degrees of parallelism, accounting options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SpecError

if TYPE_CHECKING:
    from ..specs import Options

ModelName = Annotated[str, typer.Option(help="Catalogue name, YAML file or Hugging Face config.json.")]
GpuName = Annotated[str, typer.Option(help="Catalogue name or YAML file.")]
PrecisionName = Annotated[
    str | None, typer.Option(help="Catalogue name or YAML file; default that of the published checkpoint.")
]
EfficiencyName = Annotated[str, typer.Option(help="Catalogue name or YAML file; ideal has every kernel at its peak.")]
TpDegree = Annotated[int, typer.Option(help="Tensor-parallel degree.")]
DpDegree = Annotated[int, typer.Option(help="Data-parallel degree of attention.")]
EpDegree = Annotated[int, typer.Option(help="Expert-parallel degree.")]
OptionPairs = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="Accounting option NAME=VALUE; repeat for more.")
]


def parse_options(pairs: list[str]) -> Options:
    """Parse NAME=VALUE pairs; the value is YAML, so numbers, true and lists can be written.

    Raises
    ------
    SpecError
        For a pair without a name or a value, a value that is no YAML, or one the option does not take.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from ..specs import Options, to_record

    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise SpecError(f"--option {pair!r}: expected NAME=VALUE, such as small_ops=memory")
        try:
            values[name] = YAML(typ="safe", pure=True).load(text)
        except YAMLError:
            raise SpecError(f"--option {pair!r}: the value cannot be read") from None
    return to_record(Options, values, "--option")
