"""Report errors: statistics of predictions, refits, points that were never fitted, and the validation page."""
