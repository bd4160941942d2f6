"""What the command line says of programs besides figures: why, what differs, how it is told."""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import List

import pytest
from click.testing import CliRunner, Result

from tests.serving.programs import save_tiny, training_program
from transpiler.analysis.timeline import Timeline
from transpiler.cli import main

TRAINED = ('train.bin', '--fetch', 'loss', '--batch-size', '64')


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp('programs')
    save_tiny(made)
    (made / 'train.bin').write_bytes(training_program().desc.serialize_to_string())
    return made


def called(folder: Path, *arguments: str, code: int = 0) -> Result:
    known = {path.name for path in folder.iterdir()} | {'tiny', 'small.bin'}
    result = CliRunner().invoke(main, [str(folder / a) if a in known else a for a in arguments])
    assert result.exit_code == code, result.output
    return result


def weighed(folder: Path, *more: str) -> List[dict]:
    return json.loads(called(folder, 'report', *TRAINED, '--why', '--json', *more).stdout)['why']


def test_why_lists_what_would_lower_the_peak_the_largest_first(folder):
    rows = weighed(folder)
    sizes = [row['bytes'] for row in rows]
    assert 0 < len(rows) <= 10 and sizes == sorted(sizes, reverse=True) and min(sizes) > 0
    text = called(folder, 'report', *TRAINED, '--why').stdout
    assert all(f'{i:2}. ' in text for i in range(1, len(rows) + 1))


def test_what_half_a_batch_brings_is_what_the_model_says(folder):
    from transpiler.backends.paddle2.importer import import_program
    from transpiler.runtime import COLLECTING
    half = [row['bytes'] for row in weighed(folder, '--recompute', 'off') if 'half' in row['what']]
    kept = called(folder, 'report', *TRAINED, '--recompute', 'off', '--json')
    called(folder, 'optimize', *TRAINED, '--recompute', 'off', '-o', 'small.bin')
    graph = import_program((folder / 'small.bin').read_bytes(), ['loss']).graph
    peaks = [Timeline(graph, COLLECTING, {'N': rows}).peak_bytes for rows in (64, 32)]
    assert peaks[0] == json.loads(kept.stdout)['peak_bytes_after']
    assert half == [peaks[0] - peaks[1]]


def test_a_variable_that_is_skipped_is_named_with_what_that_costs(folder):
    rows = [r for r in weighed(folder, '--recompute', 'max', '--skip', 'fc_0.tmp_0') if r['exact']]
    freed = {row['bytes'] for row in rows if 'skip_opt_set (fc_0.tmp_0)' in row['what']}
    with_it, without = (json.loads(
        called(folder, 'report', *TRAINED, '--recompute', 'max', '--json', *skip).stdout)
                        for skip in (('--skip', 'fc_0.tmp_0'), ()))
    saved = with_it['peak_bytes_after'] - without['peak_bytes_after']
    assert saved > 0 and freed == {saved}


def whole_lines(text: str) -> str:
    """With lines that were broken at the width of the terminal put together."""
    return text.replace('\n    ', ' ')


def test_explain_says_who_made_it_and_why_it_is_there(folder):
    peak = json.loads(called(folder, 'report', *TRAINED, '--json').stdout)
    largest = peak['peak_variables_before'][0]
    said = whole_lines(called(folder, 'explain', 'train.bin', largest['name'], *TRAINED[1:]).stdout)
    assert 'there at the peak' in said.splitlines()[1]
    assert largest['made_by'].split(',')[0] in said and 'programs.py:' in said
    assert 'Why it has the memory that it has: ' in said


def test_explain_names_the_rule_that_gives_it_a_memory_of_its_own(folder):
    assert 'fetched' in called(folder, 'explain', 'train.bin', 'loss', *TRAINED[1:]).stdout
    skipped = called(folder, 'explain', *TRAINED[:1], 'fc_0.tmp_0', *TRAINED[1:], '--skip',
                     'fc_0.tmp_0')
    assert 'in skip_opt_set' in skipped.stdout
    assert 'resting' in called(folder, 'explain', 'train.bin', 'fc_0.w_0', *TRAINED[1:]).stdout


def test_an_unknown_variable_is_answered_with_names_that_there_are(folder):
    said = called(folder, 'explain', 'train.bin', 'fc_0.tmp', *TRAINED[1:], code=1).stderr
    assert "Did you mean 'fc_0.tmp_" in said and said.count('\n') == 1
    said = called(folder, 'report', 'train.bin', '--fetch', 'zzz', code=1).stderr
    assert 'It has ' in said


def test_an_error_names_the_option_that_was_typed(folder):
    said = called(folder, 'report', 'train.bin', '--fetch', 'losss', code=1).stderr
    assert said.startswith(
        "error: --fetch: the program has no variable 'losss'. Did you mean 'loss'")
    said = called(folder, 'report', *TRAINED, '--skip', 'fc_9.tmp_0', code=1).stderr
    assert said.startswith("error: --skip: the program has no variable 'fc_9.tmp_0'.")


def test_a_training_program_without_a_fetch_is_answered_with_its_loss(folder):
    said = called(folder, 'report', 'train.bin', code=1).stderr
    assert said.endswith('name with --fetch what will be fetched, as --fetch loss\n')


def test_why_names_the_operator_at_the_peak_as_the_report_does(folder):
    called(folder, 'optimize', 'tiny', '-o', str(folder / 'in_blocks'), '--batch-size', '4')
    found = json.loads(
        called(folder, 'report', str(folder / 'in_blocks'), '--batch-size', '4', '--why',
               '--json').stdout)
    kind = found['peak_op'].split(' ')[0]
    rows = [row['what'] for row in found['why'] if 'the op at the peak' in row['what']]
    assert rows and all(
        row.startswith(f'the op at the peak, {kind}, works on them') for row in rows)


def test_blocks_that_hold_nothing_of_their_own_are_counted_and_not_listed(folder):
    called(folder, 'optimize', 'tiny', '-o', str(folder / 'blocks'), '--batch-size', '4')
    arguments = ('report', str(folder / 'blocks'), '--batch-size', '4')
    blocks = json.loads(called(folder, *arguments, '--json').stdout)['blocks']
    empty = [b for b in blocks if not b['own_bytes_before'] and not b['own_bytes_after']]
    said = called(folder, *arguments).stdout
    listed = re.findall('│ (main|block [0-9]+),? ', said)
    assert len(empty) > 1 and len(listed) == len(blocks) - len(empty) > 0
    assert f'and {len(empty)} blocks without variables of their own' in said


def test_every_variable_can_be_explained(folder):
    from transpiler.backends.paddle2.importer import import_program
    from transpiler.backends.paddle2.programs import Serialized, SerializedPrograms
    from transpiler.flow import rewrite
    from transpiler.planning import PlanOptions
    from transpiler.request import Request
    program = Serialized((folder / 'train.bin').read_bytes())
    names = {v.name for v in import_program(program.contents).graph.values}
    report = rewrite(SerializedPrograms(), program, Request(['loss'], batch_size=64),
                     PlanOptions()).report
    assert len(names) > 20
    for name in names:
        assert report.explain(name).startswith(f'{name}: ')


def test_diff_shows_what_only_one_has(folder):
    said = called(folder, 'diff', *TRAINED[:1], 'train.bin', *TRAINED[1:]).stdout
    assert 'The same operators and variables' in said and 'none' in said


def test_two_programs_differ_by_their_operators(folder):
    other = folder / 'other.bin'
    program = training_program()
    updates = [op.type for op in program.global_block().ops].count('sgd')
    other.write_bytes(program.clone(for_test=True).desc.serialize_to_string())
    said = called(folder, 'diff', 'train.bin', 'other.bin', *TRAINED[1:]).stdout
    rows = [[cell.strip() for cell in line.split('│')[1:-1]] for line in said.splitlines()]
    assert updates > 0 and ['sgd', str(updates), '0', f'-{updates}'] in rows
    assert [row[2] for row in rows if row[:1] == ['fc_0.w_0@GRAD']] == ['-']
    other.unlink()


def test_a_budget_is_reported_and_refused(folder):
    text = json.loads(called(folder, 'report', *TRAINED, '--json').stdout)
    fits = text['resting_bytes'] + text['sure_bytes'] + (1 << 30)
    called(folder, 'report', *TRAINED, '--budget', str(fits))
    assert 'no plan fits' in called(folder, 'report', *TRAINED, '--budget', '1KiB', code=1).stderr
    assert 'no plan fits' in called(folder,
                                    'view',
                                    *TRAINED,
                                    '-o',
                                    str(folder / 'x.html'),
                                    '--budget',
                                    '1KiB',
                                    code=1).stderr
    assert not (folder / 'x.html').exists()


def test_quiet_says_nothing_but_the_answer_and_verbose_says_each_step(folder):
    loud = called(folder, 'optimize', *TRAINED, '-o', str(folder / 'a.bin'), '-v').stderr
    assert 'planning: schedule' in loud and 'wrote' in loud
    for what in ('report', 'view'):
        more = ('-o', str(folder / 'page.html')) if what == 'view' else ()
        loud = called(folder, what, 'tiny', '-v', *more).stderr
        assert re.search(r'^ *\d+\.\d s  reading', loud, re.M)
        assert re.search(r"^ *\d+\.\d s  running Paddle's inference passes", loud, re.M)
        assert re.search(r'^ *\d+\.\d s  planning: ', loud, re.M)
    assert re.search(r'^ *\d+\.\d s  drawing', loud, re.M)
    assert called(folder, 'optimize', *TRAINED, '-o', str(folder / 'b.bin'), '-q').stderr == ''
    assert called(folder, 'optimize', *TRAINED, '-o',
                  str(folder / 'c.bin')).stderr == f'wrote {folder / "c.bin"}\n'


@pytest.mark.parametrize('command', [('report', 'tiny'), ('optimize', 'tiny', '-o', 'written'),
                                     ('view', 'tiny', '-o', 'written.html')])
def test_no_warning_of_paddles_reaches_the_reader(folder, command, recwarn):
    import warnings
    warnings.simplefilter('always')
    arguments = [str(folder / a) if a.startswith('written') else a for a in command]
    said = called(folder, *arguments, '--batch-size', '4').stderr
    assert 'Warning' not in said and not recwarn.list


def test_tables_in_a_pipe_are_eighty_columns_wide(folder):
    broken = [
        called(folder, *words, *TRAINED[1:]).stdout.splitlines()
        for words in (('explain', 'train.bin', 'fc_0.tmp_0'), ('report', '--why', 'train.bin'))
    ]
    for lines in broken:
        assert max(map(len, lines)) <= 80 and sum(line.startswith('    ') for line in lines)
    for arguments in (('report', *TRAINED), ('report', 'tiny', '--batch-size', '4')):
        lines = called(folder, *arguments).stdout.splitlines()
        tables = [line for line in lines if line[:1] in '┏┃┡│└']
        assert len(tables) > 5 and max(map(len, tables)) <= 80
