"""Every figure and table by name, in the order of the gallery: name -> module that has ``data`` and ``draw``."""

SEED_1_FIGURES = {
    "regime-map": "regime_map",
}

SEED_2_FIGURES: dict[str, str] = {}

SEED_3_FIGURES: dict[str, str] = {}

BEYOND_FIGURES: dict[str, str] = {}

SEED_1_TABLES: dict[str, str] = {}

SEED_2_TABLES: dict[str, str] = {}

SEED_3_TABLES: dict[str, str] = {}

FIGURES: dict[str, str] = SEED_1_FIGURES | SEED_2_FIGURES | SEED_3_FIGURES | BEYOND_FIGURES

TABLES: dict[str, str] = SEED_1_TABLES | SEED_2_TABLES | SEED_3_TABLES
