"""What is raised for bad input."""


class SpecError(ValueError):
    """A spec, sweep file or argument that cannot be used; the message names file, key, value and what is allowed."""
