"""The examples of docs/architecture.md: they run one after the other, without Paddle, and what they assert holds."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List

import pytest

PAGE = Path(__file__).parent.parent / 'docs' / 'architecture.md'


def examples() -> List[str]:
    return re.findall(r'^```python\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_every_example_of_the_page_runs() -> None:
    assert len(examples()) == 5 and all('assert' in code for code in examples()[1:])
    names: Dict[str, Any] = {'__name__': 'examples'}
    for code in examples():
        exec(compile(code, str(PAGE), 'exec'), names)  # pylint: disable=exec-used


@pytest.mark.parametrize('was, instead', [
    ("main.insert(reads[-1] + 1, main.pop())", "main.insert(reads[0], main.pop())"),
    ("for op in graph.region_ops(0)], [op.origin",
     "for op in graph.region_ops(0)][::-1], [op.origin"),
])
def test_a_wrong_pass_or_back_end_is_found_out(was: str, instead: str) -> None:
    """So the examples hold because they are right."""
    code = '\n'.join(examples())
    assert was in code
    with pytest.raises(Exception) as caught:
        exec(compile(code.replace(was, instead), str(PAGE), 'exec'), {'__name__': 'examples'})
    assert type(caught.value).__name__ in ('AssertionError', 'VerificationError')
