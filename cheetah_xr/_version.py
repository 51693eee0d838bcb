"""Version of the package; MODEL_VERSION changes whenever a result changes."""

__version__ = "0.1.0"
MODEL_VERSION = "4"
