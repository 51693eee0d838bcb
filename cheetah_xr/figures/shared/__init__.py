"""What several figures share: style, setups of the texts, measured points."""
