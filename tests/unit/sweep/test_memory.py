"""Memory of a sweep is that of its blocks, not of its points."""

import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

SCRIPT = ROOT / "benchmarks" / "memory.py"


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_sweep():
    """8 and 40 million points, both of more blocks than threads; one float64 array of the difference has 256 MB."""
    run = subprocess.run([sys.executable, SCRIPT, "8e6", "4e7"], capture_output=True, text=True, check=True)
    small, large = (float(gigabytes) for gigabytes in re.findall(r"([\d.]+) GB peak", run.stdout))
    assert large - small < 0.15
    assert large < 1
