"""Hypothesis profiles: `fast` for `make test`, `thorough` for `make test-all`; both repeat the same examples."""

from hypothesis import HealthCheck, settings

THOROUGH = 200
FAST = 30
FEWEST = 6
DEFAULT = "fast"
"""Profile where `--hypothesis-profile` names no other."""

COMMON = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("fast", max_examples=FAST, **COMMON)
settings.register_profile("thorough", max_examples=THOROUGH, **COMMON)


def examples(thorough: int) -> settings:
    """Return settings with this many examples in the thorough profile and the same fraction of the others."""
    return settings(max_examples=max(FEWEST, thorough * settings().max_examples // THOROUGH))
