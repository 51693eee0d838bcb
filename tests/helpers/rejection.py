"""What a rejection must look like: a SpecError whose message names what is wrong and what is allowed."""

import pytest

import cheetah_xr as cx


def rejected(action, *words):
    """Run `action`, which must raise a SpecError with all of `words` in its message; returns the message."""
    with pytest.raises(cx.SpecError) as caught:
        action()
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in {message!r}"
    return message
