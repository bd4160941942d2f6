"""The machine translation demo: its text, its training program and its greedy translation."""
from __future__ import annotations

import io
import itertools
import tarfile
from typing import List

import numpy as np
import paddle
import pytest
import rich.console

from demos.machine_translation import __main__ as command
from demos.machine_translation import data, measure, model, report, train
from demos.machine_translation.config import DemoConfig, ModelConfig
from transpiler import memory_optimize

TINY = ModelConfig(source_vocabulary=20,
                   target_vocabulary=20,
                   source_length=5,
                   target_length=6,
                   embedding=16,
                   hidden=16,
                   attention=16,
                   learning_rate=2e-2)
PHRASES = [
    data.Pair((3, 4, 5), (13, 12)),
    data.Pair((6, 4), (14, 15, 16, 12)),
    data.Pair((7, 8, 9, 10, 3), (17,)),
    data.Pair((5, 6, 7), (18, 19, 13, 17, 11)),
]


@pytest.fixture(autouse=True)
def static_mode():
    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    yield
    if was_dynamic:
        paddle.disable_static()


@pytest.fixture(scope="module")
def corpus() -> data.Corpus:
    return data.load_corpus(DemoConfig())


def trained(config: ModelConfig, pairs: List[data.Pair], steps: int):
    program = model.build_training_program(config)
    session = train.Session(program.startup)
    feeds = data.feeds(pairs, config)
    losses = [
        loss for loss, _ in zip(train.losses(session, program, lambda _: feeds), range(steps))
    ]
    return program, session, losses


def test_catalogues_give_thousands_of_real_sentence_pairs():
    sentences = dict(data.gettext_sentences(DemoConfig.packages, "fr"))
    assert len(sentences) > 3000
    assert sentences["Monday"] == "lundi"
    assert all(source and target and source != target for source, target in sentences.items())


def test_the_language_is_a_choice():
    assert dict(data.gettext_sentences(["Django"], "de"))["Monday"] == "Montag"


def test_a_language_that_no_package_has_is_an_error():
    with pytest.raises(ValueError, match="no 'xx' catalogue"):
        data.gettext_sentences(["Django"], "xx")


def test_the_corpus_is_the_same_every_time(corpus):
    again = data.load_corpus(DemoConfig())
    assert (again.train, again.held_out) == (corpus.train, corpus.held_out)


def test_held_out_sentences_are_not_trained_on(corpus):
    assert len(corpus.held_out) == data.HELD_OUT
    trained_on = {pair.source for pair in corpus.train}
    assert not [pair for pair in corpus.held_out if pair.source in trained_on]


def test_tokens_turn_back_into_the_catalogue_text(corpus):
    sentences = dict(data.gettext_sentences(DemoConfig.packages, "fr"))
    texts = [(corpus.decode_source(p.source), corpus.decode_target(p.target)) for p in corpus.train]
    # The subword model normalises a few characters (an ellipsis to three dots).
    same = sum(sentences.get(source) == target for source, target in texts)
    assert same > 0.8 * len(texts)


def test_tokens_fit_the_model(corpus):
    config = ModelConfig()
    for pair in corpus.train:
        assert 0 < len(pair.source) <= config.source_length
        assert 0 < len(pair.target) < config.target_length
        assert max(pair.source) < config.source_vocabulary
        assert max(pair.target) < config.target_vocabulary


def test_an_epoch_trains_on_no_pair_twice(corpus):
    steps = corpus.steps_per_epoch(64)
    seen = [pair for step in range(steps) for pair in corpus.batch(step, 64)]
    assert len(seen) == 64 * steps
    assert max(seen.count(pair) for pair in seen[::50]) == 1


def test_a_batch_larger_than_the_corpus_is_an_error(corpus):
    with pytest.raises(ValueError, match="no batch of"):
        corpus.batch(0, len(corpus.train) + 1)


def test_feeds_shift_targets_by_one_token():
    feeds = data.feeds([data.Pair((3, 4), (5, 6, 7))], TINY)
    assert feeds["source"].tolist() == [[3, 4] + [data.END] * 3]
    assert feeds["target_in"].tolist() == [[data.START, 5, 6, 7, data.END, data.END]]
    assert feeds["target_out"].tolist() == [[5, 6, 7, data.END, data.END, data.END]]
    assert feeds["source_length"].tolist() == [2] and feeds["target_length"].tolist() == [4]


def test_synthetic_sentences_reach_the_padded_length():
    feeds = data.synthetic_feeds(TINY, batch_size=3)
    assert feeds["source_length"].max() == TINY.source_length
    assert feeds["target_length"].max() == TINY.target_length


def test_a_wmt14_archive_is_read_through_paddle(tmp_path):
    archive = tmp_path / "wmt14.tgz"
    words = ["<s>", "<e>", "<unk>", "a", "b", "c", "d", "e"]
    sources = [" ".join(letters) for letters in itertools.product(words[3:], repeat=3)]
    lines = [f"{source}\tc b" for source in sources[:data.HELD_OUT + 6]]
    members = {"src.dict": words, "trg.dict": words, "train/train": lines}
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in members.items():
            blob = "\n".join(content).encode()
            member = tarfile.TarInfo(f"wmt14/{name}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    corpus = data.wmt14_corpus(TINY, str(archive))
    assert len(corpus.train) == 6
    assert {corpus.decode_source(pair.source) for pair in corpus.train} <= set(sources)
    assert {corpus.decode_target(pair.target) for pair in corpus.train} == {"c b"}


def test_the_command_says_what_is_wrong_with_its_data(tmp_path, capsys):
    assert command.main(["--data", str(tmp_path / "missing.tgz")]) == 2
    assert "cannot read the sentences" in capsys.readouterr().out


def test_the_decoder_is_a_loop_with_a_gradient_loop():
    kinds = [op.type for op in model.build_training_program(TINY).main.global_block().ops]
    assert "while" in kinds and "while_grad" in kinds
    translation = model.build_translation_program(TINY).main.global_block().ops
    assert [op.attr("is_test") for op in translation if op.type == "while"] == [True]


def test_the_best_plan_is_proved_and_nothing_is_dropped():
    """The decoder reads words, integers, that its loop no longer copies: one release frees them and floats, each by its type."""
    program = model.build_training_program(TINY)
    report = memory_optimize(program.main, fetch_list=[program.loss], batch_size=64, trip_count=32)
    assert report.changed and report.note == ""


def test_loss_falls():
    _, _, losses = trained(TINY, PHRASES, 20)
    assert np.all(np.isfinite(losses)) and losses[-1] < 0.5 * losses[0]


def test_a_training_step_moves_every_parameter():
    program = model.build_training_program(TINY)
    session = train.Session(program.startup)
    names = [parameter.name for parameter in program.main.all_parameters()]
    before = {name: session.tensor(name) for name in names}
    session.run(program.main, data.feeds(PHRASES, TINY), program.loss)
    assert [name for name in names if np.array_equal(before[name], session.tensor(name))] == []


def test_padding_does_not_change_the_loss():
    program = model.build_training_program(TINY, optimize=False)
    session = train.Session(program.startup)
    feeds = data.feeds(PHRASES, TINY)
    loss = session.run(program.main, feeds, program.loss)
    padded_source = np.arange(TINY.source_length) >= feeds["source_length"][:, None]
    padded_target = np.arange(TINY.target_length) >= feeds["target_length"][:, None]
    feeds["source"][padded_source] = 9
    feeds["target_in"][padded_target] = 9
    feeds["target_out"][padded_target] = 9
    assert session.run(program.main, feeds, program.loss).tobytes() == loss.tobytes()


def test_greedy_decoding_gives_tokens_of_the_vocabulary():
    program, session, _ = trained(TINY, PHRASES, 1)
    translation = model.build_translation_program(TINY)
    feeds = data.feeds(PHRASES, TINY)
    tokens = session.run(translation.main, {name: feeds[name] for name in translation.feed_names},
                         translation.tokens)
    assert tokens.shape == (len(PHRASES), TINY.target_length) and tokens.dtype == np.int64
    assert tokens.min() >= 0 and tokens.max() < TINY.target_vocabulary
    for row in tokens.tolist():
        ended = row.index(data.END) if data.END in row else len(row)
        assert set(row[ended:]) <= {data.END}


def test_greedy_decoding_repeats_what_the_model_has_learnt_by_heart():
    _, session, losses = trained(TINY, PHRASES, 80)
    translations = train.translate(session, model.build_translation_program(TINY), TINY, PHRASES)
    assert losses[-1] < 0.1
    assert translations == [list(pair.target) for pair in PHRASES]


def printed(table) -> str:
    console = rich.console.Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


def run_with(peaks: List[int], losses: List[str], **more) -> measure.Run:
    return measure.Run(
        **{
            **dict(resting=8_000_000,
                   peaks=peaks,
                   seconds=[0.25, 0.5],
                   processor_seconds=[0.375, 0.4],
                   operators=100,
                   growth=80 << 20,
                   losses=losses,
                   parameters="digest",
                   predicted=[0.0, 0.0]),
            **more
        })


def test_the_table_sets_first_and_later_peaks_side_by_side():
    mib = 1 << 20
    before = measure.Measurement(run_with([40 * mib, 41 * mib], ["0x1p0"]),
                                 run_with([50 * mib, 60 * mib], ["0x1p0"]))
    after = measure.Measurement(run_with([10 * mib, 11 * mib], ["0x1p0"]),
                                run_with([10 * mib, 12 * mib], ["0x1p0"]))
    text = printed(report.before_and_after({"before": before, "after": after}))
    assert "40.0" in text and "4.00x" in text and "60.0" in text and "5.00x" in text
    assert "equal to the last bit" in " ".join(
        text.split()) and "80.0" in text and "0.25 to 0.50" in text
    assert text.index("process") < text.index("tensors") and "(MB)" not in text


def test_the_table_fits_eighty_columns():
    one = measure.Measurement(run_with([1 << 38], ["0x1p0"]), run_with([1 << 38], ["0x1p0"]))
    console = rich.console.Console(file=io.StringIO(), width=80)
    console.print(report.before_and_after({"before": one, "after": one}))
    lines = console.file.getvalue().splitlines()
    rows = [line for line in lines if line.startswith("│")]
    assert len(rows) == 8 and all(row.split("│")[1].strip() for row in rows)


def test_the_time_is_told_as_promised_predicted_and_measured_each_with_its_measure():
    run = run_with([1], ["0x1p0"])
    slower = run_with([1], ["0x1p0"],
                      seconds=[0.3, 0.6],
                      processor_seconds=[0.42, 0.5],
                      predicted=[0.181, 0.081])
    said = report.time_line(measure.Measurement(run, run), measure.Measurement(slower, slower))
    assert "10 % of the processors' time (max_overhead)" in said
    assert "+18.1% for operators that run again, -8.1% for those copies: +10.0%" in said
    assert "+12% of the processors' time, +20% by the clock" in said
    text = " ".join(
        printed(
            report.before_and_after({
                "before": measure.Measurement(run, run),
                "after": measure.Measurement(slower, slower)
            })).split())
    assert "0.375 │ 0.420 │ +12%" in text and "0.250 │ 0.300 │ +20%" in text


@pytest.mark.parametrize("before, after, change", [(8.0, 2.0, "4.00x less"), (100, 110, "+10%"),
                                                   (100, 90, "-10%"), (1000, 1001, "same"),
                                                   (0, 0, "same"), (0, 1, "")])
def test_a_change_is_told_by_how_large_it_is(before, after, change):
    assert report._change(before, after) == change


def test_in_a_log_progress_is_a_line_every_few_seconds(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(command.time, "perf_counter", lambda: now[0])
    console = rich.console.Console(file=io.StringIO(), width=80)
    with command._Progress(console) as progress:
        for second in range(20):
            now[0] = 100.0 + second
            progress(f"step [{second}]")
    assert console.file.getvalue().splitlines() == [
        "    6 s  step [6]", "   12 s  step [12]", "   18 s  step [18]"
    ]


def test_a_loss_that_differs_by_one_bit_is_shown():
    before = measure.Measurement(run_with([1], ["0x1.000000p0"]), run_with([1], ["0x1.000000p0"]))
    after = measure.Measurement(run_with([1], ["0x1.000002p0"]), run_with([1], ["0x1.000000p0"]))
    assert not before.same_results(after)
    assert "DIFFERENT" in printed(report.before_and_after({"before": before, "after": after}))


def test_sentences_with_brackets_are_printed_as_they_are():
    assert "[/b] of [count]" in printed(report.translations([("[/b] of [count]", "x", "y")]))


def test_two_processes_train_to_the_same_bits():
    config = DemoConfig(model=ModelConfig(source_vocabulary=400,
                                          target_vocabulary=400,
                                          embedding=16,
                                          hidden=16,
                                          attention=16,
                                          dropout=0.2),
                        batch_size=4)
    told: List[str] = []
    first, second = (
        measure.in_fresh_process(config, False, False, 3, told.append) for _ in range(2))
    assert told == ["step 1 of 3", "step 2 of 3", "step 3 of 3"] * 2
    assert len(first.processor_seconds) == 2 and min(first.processor_seconds) > 0
    assert len(first.losses) == 3
    assert first.losses == second.losses and first.parameters == second.parameters
    assert 0 < first.peaks[0] <= first.peaks[
        -1] < 2**30 and first.operators == second.operators > 100
