"""What the processor of this machine can run."""
from __future__ import annotations

import paddle
import pytest

NO_BFLOAT16 = 'oneDNN has no kernels of bfloat16 for this processor'


def has_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 here: on x86 it needs AVX-512."""
    return bool(paddle.base.core.supports_bfloat16())


needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason=NO_BFLOAT16)
