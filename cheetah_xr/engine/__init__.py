"""A grid of forward passes: axes, cases, times, labelled results."""
