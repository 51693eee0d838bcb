"""The error report: statistics of predictions, refits, points that were never fitted, and the page."""
