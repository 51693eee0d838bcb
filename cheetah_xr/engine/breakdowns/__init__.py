"""Breakdowns of one or many forward passes: by kernel, by operation, by item in memory."""
