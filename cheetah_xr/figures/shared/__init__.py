"""Hold code used by several figures: style, accounting of the source texts, measured points."""
