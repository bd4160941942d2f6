"""The map of the code: who may import whom, and where Paddle's words may stand."""
from __future__ import annotations

import ast
import builtins
import re
import symtable
from pathlib import Path
from typing import Dict, FrozenSet, Iterator, List, Set, Tuple

import pytest

import transpiler

ROOT = Path(transpiler.__file__).parent
# What each part may import besides itself, and errors and texts, which know nothing.
FLOW: Dict[str, FrozenSet[str]] = {
    'ir':
        frozenset(),
    'analysis':
        frozenset({'ir'}),
    'assignment':
        frozenset(),
    'passes':
        frozenset({'ir', 'analysis', 'assignment'}),
    'planning':
        frozenset({'ir', 'analysis', 'passes'}),
    'verify':
        frozenset({'ir', 'analysis'}),
    'report':
        frozenset({'ir', 'analysis', 'passes', 'planning'}),
    'backends/base':
        frozenset({'ir', 'analysis'}),
    'backends/paddle2':
        frozenset({'ir', 'analysis', 'passes', 'backends'}),
    'backends/paddle3':
        frozenset({'ir', 'analysis', 'backends'}),
    'backends/settings':
        frozenset(),
    'backends/installed':
        frozenset({'backends'}),
    'backends/calibration':
        frozenset({'analysis', 'backends'}),
    'backends/scopes':
        frozenset(),
    'backends/static_functions':
        frozenset(),
    'backends/optimizers':
        frozenset({'backends'}),
    'backends/watching':
        frozenset({'backends'}),
    'backends/workers':
        frozenset({'backends'}),
    'heap':
        frozenset(),
    'request':
        frozenset({'ir', 'analysis', 'arguments', 'backends'}),
    'agreement':
        frozenset({'analysis', 'planning', 'arguments', 'request'}),
    'flow':
        frozenset({
            'ir', 'analysis', 'planning', 'verify', 'report', 'arguments', 'request', 'backends',
            'heap'
        }),
}
KNOW_NOTHING = frozenset({'errors', 'plain', 'runtime'})
CORE = ('ir', 'runtime', 'analysis', 'passes', 'planning', 'verify')


def files_of(part: str) -> List[Path]:
    found = sorted((ROOT / part).rglob('*.py')) or [ROOT / f'{part}.py']
    assert all(path.is_file() for path in found)
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f'{path}: a relative import'
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def texts(path: Path) -> Iterator[Tuple[int, str]]:
    """Constants, but for docstrings and annotations."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value,
                                                         str) and id(node) not in documentation:
            yield node.lineno, node.value


@pytest.mark.parametrize('part', FLOW)
def test_nobody_imports_against_the_flow(part: str) -> None:
    allowed = FLOW[part] | KNOW_NOTHING | {part}
    named = {
        name.split('.')[1]
        for path in files_of(part)
        for name in imports(path)
        if name.startswith('transpiler.')
    }
    assert named <= allowed


def modules() -> Dict[str, Path]:
    """Every module by its name, but for the package itself, whose names are loaded when they are asked for."""
    names = {path.relative_to(ROOT.parent).with_suffix(''): path for path in ROOT.rglob('*.py')}
    return {
        '.'.join(name.parent.parts if name.name == '__init__' else name.parts): path
        for name, path in names.items()
        if path != ROOT / '__init__.py'
    }


def imported_modules(path: Path, known: Dict[str, Path]) -> Iterator[str]:
    """Modules of ours that `path` imports, in functions, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f'{node.module}.{alias.name}'
                yield inner if inner in known else str(node.module)


def test_modules_import_in_no_circle() -> None:
    known = modules()
    graph = {name: set(imported_modules(path, known)) & known.keys() for name, path in known.items()}
    assert len(graph) > 100 and any(graph.values())
    done: Set[str] = set()

    def follow(name: str, above: Tuple[str, ...]) -> None:
        assert name not in above, ' -> '.join((*above, name))
        if name not in done:
            for other in sorted(graph[name]):
                follow(other, (*above, name))
            done.add(name)

    for name in sorted(graph):
        follow(name, ())


@pytest.mark.parametrize('part', CORE)
def test_no_operator_of_paddle_is_named_in_the_core(part: str) -> None:
    """By its back end's words it would fail silently with another back end's."""
    pytest.importorskip('paddle')
    from paddle.base.core import get_all_op_protos
    from paddle.base.proto.framework_pb2 import OpProto, VarType
    operators = {OpProto.FromString(bytes(proto)).type for proto in get_all_op_protos()}
    assert {'while', 'read_from_array', 'matmul_v2'} <= operators
    types = set(VarType.Type.keys())
    found = [(path.name, line, text)
             for path in files_of(part)
             for line, text in texts(path)
             if text in operators or '@GRAD' in text or text.endswith('_grad') or
             (text in types and path.name != 'dtypes.py')]
    assert not found


def test_paddle_is_imported_by_its_back_ends_and_by_who_serves_it() -> None:
    who = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob('*.py') if any(
            name.split('.')[0] == 'paddle' for name in imports(path))
    }
    homes = ('backends/paddle2/', 'backends/paddle3/', 'backends/calibration.py',
             'backends/failed_traces.py', 'backends/optimizers.py', 'backends/rereading.py',
             'backends/scopes.py', 'backends/settings.py', 'backends/static_functions.py',
             'backends/watching.py', 'backends/workers.py', 'callbacks.py', 'distributed.py',
             'serving/', 'trials/')
    assert who and all(name.startswith(homes) for name in who)


def test_scopes_are_made_in_one_place() -> None:
    """Paddle keeps every other one, with all that is in it, until the process ends."""
    makers = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob('*.py') if 'Scope()' in path.read_text()
    }
    assert makers == {'backends/scopes.py'}


def test_the_flow_knows_no_back_end() -> None:
    """But for those that take programs from users: by their arguments, by files, and as layers."""
    who = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob('*.py') if any(
            name.startswith('transpiler.backends.') and name != 'transpiler.backends.base'
            for name in imports(path))
    }
    outside = {name for name in who if not name.startswith(('backends/', 'serving/', 'trials/'))}
    assert outside == {'api.py', 'cli.py', 'layers.py', '__init__.py'}


def test_one_place_knows_which_paddle_is_installed() -> None:
    """Who takes programs asks it; and neither back end of Paddle imports the other's."""
    for name in ('api.py', 'cli.py'):
        named = {n for n in imports(ROOT / name) if n.startswith('transpiler.backends')}
        assert named == {'transpiler.backends.installed'}
    for own, other in (('paddle2', 'paddle3'), ('paddle3', 'paddle2')):
        named = {n for path in files_of(f'backends/{own}') for n in imports(path)}
        assert named and not any(n.startswith(f'transpiler.backends.{other}') for n in named)


def test_each_part_of_the_map_is_on_the_page() -> None:
    page = (ROOT.parent / 'docs' / 'architecture.md').read_text()
    rows = {
        line.split('|')[1].strip(): line.split('|')[3]
        for line in page.splitlines()
        if line.startswith('| `')
    }
    for part, allowed in FLOW.items():
        named = {name.split('/')[0] for name in re.findall(r'`([a-z0-9/]+)`', rows[f'`{part}`'])}
        if 'the parts above' not in rows[f'`{part}`']:
            assert named == allowed


def test_no_two_modules_of_passes_analysis_and_solvers_have_one_name() -> None:
    """Outside of the folders for orders and recomputation, whose models have parts alike."""
    names = [
        path.stem
        for part in ('analysis', 'passes', 'assignment')
        for path in (ROOT / part).glob('*.py')
        if path.stem != '__init__'
    ]
    twice = {name for name in names if names.count(name) > 1}
    assert len(names) > 40 and not twice


def undefined(path: Path) -> List[str]:
    """Names that functions of a module look for outside of themselves, and that nobody there defines or imports."""
    module = symtable.symtable(path.read_text(encoding='utf-8'), str(path), 'exec')
    known = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}
    known |= {*dir(builtins), '__file__', '__name__'}
    pending, found = [module], []
    while pending:
        table = pending.pop()
        pending += table.get_children()
        found += [
            s.get_name()
            for s in table.get_symbols()
            if s.is_referenced() and (s.is_global() or table is module)
        ]
    return sorted(set(found) - known)


def test_each_name_is_defined_or_imported_also_where_no_test_of_this_paddle_comes(
        tmp_path: Path) -> None:
    assert not {path: names for path in ROOT.rglob('*.py') if (names := undefined(path))}
    wrong = tmp_path / 'wrong.py'
    wrong.write_text('from os import sep\ndef use():\n    return [lost + sep for _ in len(sep)]\n')
    assert undefined(wrong) == ['lost']
