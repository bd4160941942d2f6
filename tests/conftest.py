"""Settings that must hold before Paddle is imported by any test."""
from __future__ import annotations

import os

# Kernels that split a sum over threads round differently from run to run; equal bytes need one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_minloglevel", "2")
