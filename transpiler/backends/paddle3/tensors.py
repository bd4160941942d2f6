"""What a value is: its kind, element type, shape and bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Mapping, Optional, Tuple

from paddle.base import core

from transpiler.ir import Size, ValueKind

Shape = Tuple[Size, ...]
_SHORT: Mapping[str, str] = {
    'FLOAT32': 'FP32',
    'FLOAT64': 'FP64',
    'FLOAT16': 'FP16',
    'BFLOAT16': 'BF16'
}


def kind_of(value: Any) -> ValueKind:
    if value.is_dense_tensor_type():
        return ValueKind.DENSE
    if value.is_selected_row_type():
        return ValueKind.SELECTED_ROWS
    if value.is_dense_tensor_array_type():
        return ValueKind.ARRAY
    return ValueKind.OTHER


def dtype_of(value: Any) -> str:
    return short_name(value.dtype.name)


def short_name(dtype: str) -> str:
    """What Paddle 2.6 calls the type."""
    return _SHORT.get(dtype, dtype)


def bytes_of(value: Any, shape: Optional[Shape]) -> Optional[Size]:
    """Of a dense tensor of this shape; None if a dim is unknown."""
    return None if shape is None else Size.product(shape) * value.element_size()


@lru_cache(maxsize=None)
def item_bytes(dtype: str) -> int:
    """Of an element of a type, by the name that `dtype_of` gives; 0 of none."""
    return core.size_of_dtype(getattr(core.VarDesc.VarType, dtype)) if dtype else 0
