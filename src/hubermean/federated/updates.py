"""Replies of clients as rows of numbers: what is usable, and back to the shape of the model.

The shape is public: it is that of `like`, never read off a reply. A reply that differs from it in any way, or cannot be
read, is no usable reply. Reading never raises, whatever a reply is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.data.arrays import FloatArray
from hubermean.errors import InputError, parameter
from hubermean.federated.plan import MOST_VALUES

_BLOCK_VALUES = (
    2**19
)  # numbers that are clipped at a time: what is computed of them stays in the processor's cache
_SMALL_FLOATS = ("bfloat16", "float8", "float4", "float6")  # of ml_dtypes, which JAX uses


@dataclass(frozen=True)
class _Leaf:
    """One tensor: its shape, its type if it is one of numpy's floats, and an empty tensor like those to return."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    example: Any
    size: int


class UpdateShape:
    """The public shape of an update: an array, or lists and dictionaries of arrays.

    Args:
        like: an update or the model itself; only its shape and types are used.

    >>> import numpy as np
    >>> shape = UpdateShape({"weight": np.zeros((2, 2), np.float32), "bias": np.zeros(2, np.float32)})
    >>> shape.size
    6
    >>> shape.restore(np.arange(6.0))["bias"]
    array([4., 5.], dtype=float32)
    """

    def __init__(self, like: Any) -> None:
        self._leaves: list[_Leaf] = []
        self._tree = self._take(like, "like", 0)
        self.size = sum(leaf.size for leaf in self._leaves)
        if not 1 <= self.size <= MOST_VALUES:
            raise InputError(f"{parameter('like')} must hold between 1 and {MOST_VALUES:,} numbers")

    @property
    def text(self) -> str:
        """The shape as text, which a saved run is recognised by."""
        return repr(_tree_text(self._tree, [leaf.shape for leaf in self._leaves]))

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of an update that is a single array; None otherwise."""
        return self._leaves[0].shape if self._tree == 0 and isinstance(self._tree, int) else None

    def _take(self, like: Any, path: str, depth: int) -> Any:
        """Return the tree of `like` with the number of a leaf in place of each array."""
        if depth > 32:
            raise InputError(f"{parameter('like')} is nested too deeply")
        if isinstance(like, Mapping):
            return {key: self._take(like[key], f"{path}[{key!r}]", depth + 1) for key in like}
        if isinstance(like, list | tuple):
            return [self._take(one, f"{path}[{number}]", depth + 1) for number, one in enumerate(like)]
        try:
            array = _to_array(like)
        except Exception:  # noqa: BLE001 - arrays of any library
            array = np.empty(0, object)
        if not _is_float(array):
            if array.dtype.kind in "iub" and not isinstance(like, float):
                raise InputError(
                    f"{path} holds integers; give floating-point arrays, and leave counters such as "
                    "num_batches_tracked out of updates"
                )
            raise InputError(
                f"{path} must be an array of floating-point numbers, or a list or dictionary of them"
            )
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)
        # Of a tensor only its type and device are kept, never its numbers.
        example = like.new_tensor(np.empty(0)) if hasattr(like, "new_tensor") else None
        self._leaves.append(_Leaf(tuple(array.shape), dtype, example, int(array.size)))
        return len(self._leaves) - 1

    def read(self, update: Any, row: FloatArray) -> bool:
        """Write an update into a row; False, and a row of unknown content, if it is not usable."""
        try:
            found: list[NDArray[Any]] = []
            if not self._collect(self._tree, update, found):
                return False
            start = 0
            for array in found:
                row[start : start + array.size] = array.reshape(-1)
                start += array.size
        except Exception:  # noqa: BLE001 - whatever a reply raises, it is not usable
            return False
        return True

    def _collect(self, tree: Any, update: Any, found: list[NDArray[Any]]) -> bool:
        if isinstance(tree, dict):
            if not isinstance(update, Mapping) or len(update) != len(tree):
                return False
            return all(self._collect(tree[key], update[key], found) for key in tree)
        if isinstance(tree, list):
            if not isinstance(update, Sequence) or len(update) != len(tree):
                return False
            return all(self._collect(one, update[number], found) for number, one in enumerate(tree))
        shape = self._leaves[tree].shape
        if not _may_have(update, shape):
            return False
        array = _to_array(update)
        if array.shape != shape or not (_is_float(array) or array.dtype.kind in "iu"):
            return False
        found.append(array)
        return True

    def restore(self, values: FloatArray) -> Any:
        """Return numbers in the shape and the types of `like`."""
        ends = np.cumsum([leaf.size for leaf in self._leaves])
        parts = [
            _restore_leaf(leaf, values[end - leaf.size : end])
            for leaf, end in zip(self._leaves, ends.tolist(), strict=True)
        ]
        return _fill(self._tree, parts)

    def blocks(self, updates: Iterable[Any]) -> Iterator[FloatArray]:
        """Yield the updates as rows, a few at a time, in a buffer that is used again; unusable ones are NaN."""
        rows = max(1, min(_BLOCK_VALUES // self.size, 1024))
        if isinstance(updates, np.ndarray):
            for start in range(0, len(updates), rows):
                yield updates[start : start + rows].reshape(-1, self.size).astype(np.float64, order="C")
            return
        buffer = np.empty((rows, self.size))
        held = 0
        for update in updates:
            if not self.read(update, buffer[held]):
                buffer[held] = np.nan
            held += 1
            if held == rows:
                yield buffer
                held = 0
        if held:
            yield buffer[:held]


def _may_have(given: Any, shape: tuple[int, ...]) -> bool:
    """Whether numbers may have this shape, before anything is allocated for them.

    A few nested lists that share their parts, or text beside numbers, would take terabytes as an array.
    """
    if issubclass(type(given), list | tuple):
        lengths_fit = bool(shape) and len(given) == shape[0]
        return lengths_fit and all(_may_have(one, shape[1:]) for one in islice(given, shape[0]))
    if issubclass(type(given), float | int):
        return not shape
    if issubclass(type(given), np.ma.MaskedArray | str | range):
        return False
    return hasattr(given, "__array__") or not issubclass(type(given), Sequence) or _is_buffer(given)


def _is_buffer(given: Any) -> bool:
    try:
        memoryview(given).release()
    except TypeError:
        return False
    return True


def _to_array(given: Any) -> NDArray[Any]:
    """Return an array of numpy for one of any library, without importing it."""
    try:
        return np.asarray(given)
    except Exception:
        if not hasattr(given, "detach"):
            raise
        tensor = given.detach().cpu()  # PyTorch: with a gradient, or on another device
        try:
            return np.asarray(tensor)
        except Exception:  # noqa: BLE001 - bfloat16 has no type in numpy
            return np.asarray(tensor.float())


def _is_float(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and array.dtype.name.startswith(_SMALL_FLOATS))


def _restore_leaf(leaf: _Leaf, values: FloatArray) -> Any:
    with np.errstate(over="ignore"):  # float16 may overflow; the release is public
        array = values.reshape(leaf.shape).astype(leaf.dtype)
    if hasattr(leaf.example, "new_tensor"):
        return leaf.example.new_tensor(array)
    return array


def _fill(tree: Any, parts: list[Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _fill(one, parts) for key, one in tree.items()}
    if isinstance(tree, list):
        return [_fill(one, parts) for one in tree]
    return parts[tree]


def _tree_text(tree: Any, shapes: list[tuple[int, ...]]) -> Any:
    if isinstance(tree, dict):
        return {repr(key): _tree_text(one, shapes) for key, one in tree.items()}
    if isinstance(tree, list):
        return [_tree_text(one, shapes) for one in tree]
    return shapes[tree]
