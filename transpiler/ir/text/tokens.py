"""Words of the text of a graph."""

from __future__ import annotations

import json
import re
from typing import Iterator, List, NamedTuple

from transpiler.errors import InvalidProgramError
from transpiler.ir.text.forms import PLAIN

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf'''(?P<space>\s+|\#[^\n]*)
    |(?P<string>{_QUOTED})
    |(?P<reference>%(?:{PLAIN.pattern}|{_QUOTED})(?:'\d+)?)
    |(?P<arrow>->)
    |(?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf(?![\w.@])))
    |(?P<name>{PLAIN.pattern})
    |(?P<mark>[][(){{}},=:*^+/?-])''', re.VERBOSE)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def tokens(text: str) -> List[Token]:
    """All words of `text`, and one of the kind 'end'; raises InvalidProgramError for what is none."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidProgramError(f'line {line}: {text[at]!r} begins nothing that is known')
        if match.lastgroup != 'space':
            yield Token(str(match.lastgroup), match.group(), line)
        line += match.group().count('\n')
        at = match.end()
    yield Token('end', '', line)


def unquoted(token: Token) -> str:
    """A name without its quotes, if it has any."""
    if not token.text.startswith('"'):
        return token.text
    try:
        return json.loads(token.text)
    except ValueError as error:
        raise InvalidProgramError(f'line {token.line}: {token.text}: {error}') from error


def name_in(reference: Token) -> str:
    """The name of the value that `reference` names: without the number that tells it from others of that name."""
    text = reference.text[1:]
    end = text.rfind("'") if not text.endswith('"') else -1
    return unquoted(reference._replace(text=text if end < 0 else text[:end]))
