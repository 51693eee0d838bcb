"""Readers of config.json, one module per family."""
