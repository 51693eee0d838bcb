"""Measure points per second of a tool that computes one point at a time; standard library only.

Seconds are those the process computed: other work on the machine counts neither for nor against a tool.
"""

import json
import time
from importlib import metadata

TP = (4, 8)
SAMPLE = (8, 8, 1024)
"""tp, batch and length of the point whose time is shown, to check that all tools compute the same thing."""
ROUNDS = 3


def points(count, shift):
    """Return pairs of batch and length, `count` in all, spread over 1 to 100 sequences and 512 to 4,095 tokens.

    Every round asks for other lengths, so that no tool returns a cached result.
    """
    pairs = [(batch, length + shift) for batch in range(1, 101) for length in range(512, 4060, 36)]
    return pairs[:: len(pairs) // count][:count]


def measure(make, count):
    """Return the best of some rounds over both degrees and the time of the sample in s; `make(tp)` is not timed."""
    steps = {tp: make(tp) for tp in TP}
    tp, batch, length = SAMPLE
    sample = steps[tp](batch, length)
    times = []
    for shift in range(ROUNDS):
        pairs = points(count, shift)
        start = time.process_time()
        for step in steps.values():
            for batch, length in pairs:
                step(batch, length)
        times.append((time.process_time() - start) / (len(TP) * len(pairs)))
    return {"points_per_second": 1 / min(times), "points": len(TP) * count, "sample_s": sample}


def report(package, ways):
    """Print the results of `ways`, name -> (make, points per degree), as JSON."""
    results = {name: measure(make, count) for name, (make, count) in ways.items()}
    print(json.dumps({"package": package, "version": metadata.version(package), "ways": results}))
