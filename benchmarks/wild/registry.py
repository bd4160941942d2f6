"""All scripts by name."""
from __future__ import annotations

from typing import Dict

from benchmarks.wild import flow, language, layers, networks, updates, vision
from benchmarks.wild.script import Builder

GROUPS = ('updates', 'layers', 'flow', 'language', 'networks', 'vision')


def builders() -> Dict[str, Dict[str, Builder]]:
    """By group, by name."""
    modules = (updates, layers, flow, language, networks, vision)
    return {group: module.builders() for group, module in zip(GROUPS, modules)}


def builder(name: str) -> Builder:
    """The script of that name."""
    return {name: make for group in builders().values() for name, make in group.items()}[name]
