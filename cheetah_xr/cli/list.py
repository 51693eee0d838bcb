"""The command ``cheetah-xr list``: the names in the catalogue, each kind as a table of its main numbers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .console import out


class Kind(StrEnum):
    """What the catalogue holds."""

    models = "models"
    gpus = "gpus"
    precisions = "precisions"
    efficiencies = "efficiencies"
    sweeps = "sweeps"


def list_catalogue(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List the catalogue: models, gpus, precisions, efficiencies or sweeps.

    KV of models is in bf16 on one GPU: the growth per token once windows are full, and the cache of 8,192 tokens,
    states included. Attention: w window, c chunk, top n what an indexer keeps, /n an entry for every n tokens.

    Example: `cheetah-xr list gpus`
    """
    from .catalogue_tables import TABLES

    out.print(TABLES[kind.value](), highlight=False)
