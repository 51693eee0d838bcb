"""Expressions: what is left for later is what NumPy gives at once, on the whole and on every tile."""

import itertools
import threading

import numpy as np
import pytest

from cheetah_xr.engine import lazy
from cheetah_xr.engine.lazy import Later, Program, apply, cast, equal, larger, nan_where, plus, times

A = np.linspace(-2, 3, 7).reshape(7, 1)
B = np.linspace(0, 4, 5).reshape(1, 5)


@pytest.fixture(autouse=True)
def all_later(monkeypatch):
    monkeypatch.setattr(lazy, "FEW", 0)


def test_formulas_see_an_array():
    later = apply(np.multiply, A, B)
    assert isinstance(later, Later)
    assert (later.shape, later.ndim, later.dtype) == ((7, 5), 2, np.float64)
    value = 2 - np.exp(np.maximum(later / 3, -1.0)) * A
    assert isinstance(value, Later)
    np.testing.assert_array_equal(value, 2 - np.exp(np.maximum(A * B / 3, -1.0)) * A)
    with pytest.raises(TypeError):
        np.add.reduce(value)


def test_number_types_are_those_of_numpy():
    a, b = A.astype(np.float32), B.astype(np.float32)
    assert apply(np.add, a, b).dtype == (a + b).dtype == np.float32
    assert (apply(np.add, a, b) * 2.0).dtype == np.float32
    assert (apply(np.add, a, b) * np.float64(2)).dtype == np.float64
    assert cast(apply(np.add, A, B), np.float32).dtype == np.float32
    np.testing.assert_array_equal(cast(apply(np.add, A, B), np.float32), (A + B).astype(np.float32))


def test_flags_and_marks():
    assert larger(A, B).dtype == equal(A, B).dtype == np.int8
    np.testing.assert_array_equal(larger(A, B), A > B)
    np.testing.assert_array_equal(equal(A, B), A == B)
    for kind in (np.float32, np.float64):
        marked = np.asarray(nan_where(larger(A, B), np.dtype(kind)))
        assert marked.dtype == kind
        np.testing.assert_array_equal(marked, np.where(A > B, np.nan, 0))


def test_nothing_is_added_and_multiplied_at_no_cost():
    zero = np.zeros((7, 1))
    assert plus(zero, B) is B
    assert plus(A, zero) is A
    assert times(A, zero) is zero
    later = apply(np.add, A, B)
    assert plus(later, zero) is later
    np.testing.assert_array_equal(plus(later, B), A + B + B)


def outputs():
    """Expressions that share parts, are parts of one another, are low-dimensional, constant, or of several types."""
    product = apply(np.multiply, A, B)
    total = product + A
    flag = larger(total, product)
    return {
        "total": total,
        "twice": total + total,
        "again": total,
        "single": cast(product, np.float32),
        "flag": apply(np.multiply, flag, np.int8(3)),
        "low": A * 2,
        "one": np.float64(7),
    }


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (7, 5), (3, 5)])
def test_tiles_make_the_whole(rows, columns):
    values = outputs()
    expected = {name: np.array(np.broadcast_to(np.asarray(v), (7, 5))) for name, v in values.items()}
    made = {name: np.full_like(v, 99) for name, v in expected.items()}
    memory = {}
    program = Program(values, memory)
    for i, j in itertools.product(range(0, 7, rows), range(0, 5, columns)):
        piece = (slice(i, min(i + rows, 7)), slice(j, min(j + columns, 5)))
        program.run(piece, {name: v[piece] for name, v in made.items()})
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value, err_msg=name)
    assert sum(kind == np.float64 for kind, _ in memory) <= 4, "buffers are used again"


def test_the_size_of_buffers_is_that_of_the_context():
    """Neither another thread nor what comes after sees the small buffers of long loops."""
    before, elsewhere = np.getbufsize(), []
    with lazy.quick_loops(lazy.LONG_LOOP):
        assert np.getbufsize() == lazy.SMALL_BUFFER
        thread = threading.Thread(target=lambda: elsewhere.append(np.getbufsize()))
        thread.start()
        thread.join()
    assert elsewhere == [before]
    assert np.getbufsize() == before
