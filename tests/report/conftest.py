"""The page is opened in a real browser where the machine has one; CI installs it, see .ci/run."""

from __future__ import annotations

import shutil

collect_ignore = [] if shutil.which('chromium') else ['test_browser.py']
