"""Parameter sets fitted to measured times, and how well they are known."""
