"""From arguments to labelled inputs: records, axes, posteriors, efficiencies by precision and layout."""
