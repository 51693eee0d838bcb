"""Expressions: elementwise arithmetic that is done at once on few points, and on many points later, tile by tile.

Formulas see arrays. What an operation gives does not depend on when it is done, so results have the same bits either
way. A program does what is left for later on tiles that stay in a core's cache, in buffers that are used again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Value: TypeAlias = "np.generic | NDArray[Any] | Later"
"""An array, or an expression that stands for one."""

Operand: TypeAlias = "float | Value"
"""What functions of values take."""

FEW = 16_384
"""Arithmetic on more points than this is left for later."""


ALIGNMENT = 64
"""Bytes of a vector register and of a cache line: loops over arrays that start at multiples are twice as fast."""

LONG_LOOP, SMALL_BUFFER = 256, 128
"""NumPy copies what is broadcast into its buffers to make loops longer, unless the buffers are smaller than the loops.
Above `LONG_LOOP` points that costs two to four times the loop itself."""

_serials = itertools.count()


@contextmanager
def quick_loops(length: int) -> Iterator[None]:
    """Compute on arrays whose last axis has a length without warnings, in loops that are not buffered.

    Since NumPy 2.0 the size of ufunc buffers is part of the context variable of ``errstate``: other threads and tasks
    never see it, and leaving the context restores it.
    """
    with np.errstate(all="ignore"):
        if length >= LONG_LOOP:
            np.setbufsize(SMALL_BUFFER)
        yield


def aligned(size: int, dtype: Any) -> Array:
    """Return an array of a size, to be filled, that starts at a multiple of a vector register."""
    dtype = np.dtype(dtype)
    room = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size * dtype.itemsize].view(dtype)


class Later(np.lib.mixins.NDArrayOperatorsMixin):
    """An operation on arrays and other expressions that has not been done."""

    def __init__(self, function: Callable[..., Any], operands: tuple[Operand, ...], dtype: np.dtype[Any]) -> None:
        self.function, self.operands, self.dtype = function, operands, dtype
        self.shape = _joint(operands)
        self.serial = next(_serials)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Operand, **options: Any) -> Value:
        """Leave a function of this and others for later."""
        return NotImplemented if method != "__call__" or options else apply(function, *operands)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the whole array."""
        target = np.empty(self.shape, self.dtype)
        Program({"": self}, {}).run(None, {"": target})
        return np.asarray(target, dtype=dtype)


def apply(function: Callable[..., Any], *operands: Operand, dtype: Any = None) -> Value:
    """Apply a function that takes ``out``, at once or later; the dtype of a ufunc's result follows from theirs."""
    if dtype is None and all(not isinstance(x, Later) and getattr(x, "ndim", 0) == 0 for x in operands):
        return np.asarray(function(*operands))  # one point: what follows would take four times as long
    if dtype is None:
        assert isinstance(function, np.ufunc)
        kinds = [type(x) if type(x) in (int, float) else np.asarray(x).dtype for x in map(_typed, operands)]
        dtype = function.resolve_dtypes((*kinds, None))[-1]
    shape = _joint(operands)
    if math.prod(shape) > FEW or any(isinstance(x, Later) for x in operands):
        return Later(function, operands, np.dtype(dtype))
    out = np.empty(shape, dtype)
    function(*operands, out=out)
    return out


def _typed(value: Operand) -> Any:
    return np.empty(0, value.dtype) if isinstance(value, Later) else value


def _joint(values: Iterable[Operand]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(value) for value in values))


def later(array: Array, dtype: Any) -> Later:
    """Return an array in a dtype as the start of an expression, however few points it has."""
    return Later(_convert, (array,), np.dtype(dtype))


def cast(value: Operand, dtype: Any) -> Value:
    """Return a value in another dtype."""
    few = not isinstance(value, Later) and np.size(value) <= FEW
    return np.asarray(value, dtype=dtype) if few else apply(_convert, value, dtype=dtype)


def _convert(value: Array, out: Array) -> None:
    np.copyto(out, value, casting="same_kind")


def larger(a: Operand, b: Operand) -> Value:
    """Return 1 where a > b, else 0, as int8: arithmetic on it is several times faster than np.where."""
    return apply(_greater, a, b, dtype=np.int8)


def _greater(a: Array, b: Array, out: Array) -> None:
    np.greater(a, b, out.view(np.bool_))


def equal(a: Operand, b: Operand) -> Value:
    """Return 1 where a = b, else 0, as int8."""
    return apply(_equal, a, b, dtype=np.int8)


def _equal(a: Array, b: Array, out: Array) -> None:
    np.equal(a, b, out.view(np.bool_))


def nan_where(flag: Value, dtype: np.dtype[Any]) -> Value:
    """Return NaN where a flag is 1, else 0: added, it is several times faster than writing where a mask says so."""
    return apply(_nan_where, flag, dtype=dtype)


def _nan_where(flag: Array, out: Array) -> None:
    bits = out.view(np.dtype(f"i{out.itemsize}"))
    np.copyto(bits, flag)
    np.multiply(bits, np.array(np.nan, out.dtype).view(bits.dtype), out=bits)


def is_nothing(value: Operand) -> bool:
    """Return whether adding a value changes no bit: it is 0 everywhere, and known to be."""
    if isinstance(value, Later):
        return False
    return not (np.any(value) if getattr(value, "ndim", 0) else value)


def plus(a: Value, b: Value) -> Value:
    """Return the sum of two values."""
    return b if is_nothing(a) else a if is_nothing(b) else apply(np.add, a, b)


def times(a: Value, b: Value) -> Value:
    """Return the product of two finite values."""
    return a if is_nothing(a) else b if is_nothing(b) else apply(np.multiply, a, b)


class Program:
    """Expressions by name, made ready for any tile of the arrays they are of.

    `memory` holds buffers by dtype and number; programs that do not run at once may share it.
    """

    def __init__(self, outputs: Mapping[str, Value], memory: dict[Any, Array]) -> None:
        self._memory = memory
        self._registers: list[Any] = _all_of(outputs.values())
        known = {id(value): number for number, value in enumerate(self._registers)}
        self._nodes = {n: value for n, value in enumerate(self._registers) if isinstance(value, Later)}
        self._outputs = {name: known[id(value)] for name, value in outputs.items()}
        self._steps = [
            (node.function, tuple(known[id(x)] for x in node.operands), n) for n, node in self._nodes.items()
        ]
        self._cuts = [
            (n, value, tuple(size > 1 for size in value.shape))
            for n, value in enumerate(self._registers)
            if isinstance(value, np.ndarray) and value.size > 1
        ]
        self._buffers = self._assigned()
        self._views: dict[tuple[int, ...], list[Any]] = {}

    def _assigned(self) -> dict[int, tuple[np.dtype[Any], int]]:
        """Return buffers of registers, used again when no longer read, by the same step if shapes are equal."""
        last = {operand: step for step, (_, operands, _) in enumerate(self._steps) for operand in operands}
        last |= dict.fromkeys(self._outputs.values(), len(self._steps))
        free: dict[np.dtype[Any], list[int]] = {}
        made: dict[np.dtype[Any], int] = {}
        buffers: dict[int, tuple[np.dtype[Any], int]] = {}
        for step, (_, operands, number) in enumerate(self._steps):
            node = self._nodes[number]
            done = [x for x in dict.fromkeys(operands) if x in self._nodes and last[x] == step]
            same = [x for x in done if (self._nodes[x].shape, self._nodes[x].dtype) == (node.shape, node.dtype)]
            if same:
                buffers[number] = buffers[same[0]]
                done.remove(same[0])
            elif free.get(node.dtype):
                buffers[number] = node.dtype, free[node.dtype].pop()
            else:
                buffers[number] = node.dtype, made.setdefault(node.dtype, 0)
                made[node.dtype] += 1
            for x in done:
                free.setdefault(buffers[x][0], []).append(buffers[x][1])
        return buffers

    def run(self, piece: tuple[slice, ...] | None, targets: Mapping[str, Array]) -> None:
        """Write what every expression is on a tile into an array; without a piece, on the whole."""
        registers = list(self._prepared(piece))
        index: dict[tuple[bool, ...], tuple[slice, ...]] = {}
        for number, array, long in self._cuts if piece is not None else ():
            if long not in index:
                index[long] = tuple(s if n else slice(None) for s, n in zip(piece or (), long, strict=True))
            registers[number] = array[index[long]]
        direct: dict[int, str] = {}  # an expression is computed in the array it is requested in
        for name, number in self._outputs.items():
            if number not in direct and self._fits(number, registers[number], targets[name]):
                registers[number], direct[number] = targets[name], name
        for function, operands, number in self._steps:
            function(*[registers[x] for x in operands], out=registers[number])
        for name, number in self._outputs.items():
            if direct.get(number) != name:
                np.copyto(targets[name], registers[number])

    def _fits(self, number: int, buffer: Any, target: Array) -> bool:
        return number in self._nodes and buffer.shape == target.shape and buffer.dtype == target.dtype

    def _prepared(self, piece: tuple[slice, ...] | None) -> list[Any]:
        """Return registers with buffers of a tile's shape in them."""
        lengths = () if piece is None else tuple(s.stop - s.start for s in piece)
        if lengths not in self._views:
            self._views[lengths] = registers = list(self._registers)
            for number, node in self._nodes.items():
                shape = node.shape
                if piece is not None:
                    shape = tuple(m if n > 1 else 1 for m, n in zip(lengths, shape, strict=True))
                registers[number] = self._buffer(self._buffers[number], math.prod(shape)).reshape(shape)
        return self._views[lengths]

    def _buffer(self, key: tuple[np.dtype[Any], int], size: int) -> Array:
        if key not in self._memory or self._memory[key].size < size:
            self._memory[key] = aligned(size, key[0])
        return self._memory[key][:size]


def _all_of(values: Iterable[Operand]) -> list[Operand]:
    """Return values and all they are made of, expressions last and in the order they were written down in."""
    values_by_id: dict[int, Operand] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) not in values_by_id:
            values_by_id[id(value)] = value
            waiting += value.operands if isinstance(value, Later) else ()
    return sorted(values_by_id.values(), key=lambda value: value.serial if isinstance(value, Later) else -1)
