"""What a value is: its kind, element type, shape and bytes."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

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
    name = value.dtype.name
    return _SHORT.get(name, name)


def bytes_of(value: Any, shape: Optional[Shape]) -> Optional[Size]:
    """Of a dense tensor of this shape; None if a dim is unknown."""
    return None if shape is None else Size.product(shape) * value.element_size()
