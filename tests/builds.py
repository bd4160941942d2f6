"""What a build of Paddle must have for a test to mean anything on it."""
from __future__ import annotations

import paddle
import pytest

from transpiler.backends.settings import has_cpu_kernels_alone

# For tests of what rests on Paddle's own CPU kernels: sums of many terms, gradients of a product made one by one, dropouts made again from
# their masks, and what a collective that has no stream of its own leaves as it is.
needs_cpu_build = pytest.mark.skipif(
    not has_cpu_kernels_alone(),
    reason='this build of Paddle has kernels for other devices too: what only its CPU kernels do '
    'is not relied on')

# For dropouts made again from their masks: on 3.0 nothing puts a number where a mask says without a tensor more.
needs_masked_dropout = pytest.mark.skipif(paddle.__version__.startswith('3.') and
                                          not hasattr(paddle._C_ops, 'masked_fill'),
                                          reason='this Paddle has no masked_fill')

# For scripts that Paddle makes float16 programs of where the build has kernels for that on any device.
NO_FLOAT32 = (
    "this build of Paddle puts float16 into programs under static.amp.decorate, for which its CPU part has no kernels: the "
    'untouched program does not run on a CPU')
needs_float32_from_amp = pytest.mark.skipif(not has_cpu_kernels_alone(), reason=NO_FLOAT32)
