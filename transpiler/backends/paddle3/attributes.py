"""Attributes of ops, which Paddle does not give for each as it is."""

from __future__ import annotations

from typing import Any, Dict, List

# They have an element for each result.
_OF_RESULTS = ('stop_gradient', 'persistable')


def given_attributes(op: Any) -> Dict[str, Any]:
    """By name. Paddle raises, or ends the process, where one that has an element for each result has none for some, as it is when somebody
    has said so of one result of several: what it takes for said of the others is said of them first, which changes nothing."""
    if op.num_results() > 1:
        for name in filter(op.has_attr, _OF_RESULTS):
            for result in (each for each in op.results() if each.initialized()):
                setattr(result, name, getattr(result, name))
    return op.attrs()


def plain_attributes(op: Any) -> List[Any]:
    """The attributes of `op` in the order of its signature."""
    given = given_attributes(op)
    return [given[name] for name in op.get_attr_names()]
