"""Sweeps: a YAML file, a plan of blocks, a run, a store."""
