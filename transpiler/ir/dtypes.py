"""Names of element types, as values have them; a back end translates its own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Mapping

TRUTH = 'BOOL'
WHOLE_NUMBERS = ('INT64', 'INT32')
# The type that numbers of rows have here, and bytes of an element.
ROW_NUMBER = ('INT32', 4)
# Bytes of an element, of the types that are computed with here.
SINGLE_AND_DOUBLE: Mapping[str, int] = MappingProxyType({'FP32': 4, 'FP64': 8})
