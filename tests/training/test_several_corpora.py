"""Runs that learn several corpora, told apart by tags."""

import contextlib
import csv
import io
import signal

import keras
import numpy as np
import pytest
import toy
from model_weights import arrays_of

from kformer.config import DecodingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus
from kformer.data.joined import join_corpora
from kformer.runs.folder import RunFolder
from kformer.tasks.translator import Translator
from kformer.tokenizers import load_tokenizers
from kformer.tokenizers.base import ids_of_words
from kformer.training.plan import describe_mixture, plan_batches
from kformer.training.train import train

THERE = toy.corpus()
BACK = Corpus(
    "back", *([(target, source) for source, target in part] for part in (THERE.train, THERE.valid, THERE.test))
)
SHORT = toy.TRAINING.replace(max_steps=6, validation_steps=3, scored_sources=5, vocab_size=330)
UNSCORED = SHORT.replace(monitor="loss", scored_sources=0)
BEGUN = UNSCORED.replace(corpus_weights="1 3", max_steps=1)


def weights_of(run):
    return arrays_of(Translator.from_run(run.path).model)


def both(pairs=40, tags=("<2es>", "<2en>")):
    """Some pairs of the first direction, and a quarter as many of the second."""
    parts = [
        Corpus(corpus.name, corpus.train[:number], corpus.valid[:9], [])
        for corpus, number in ((THERE, pairs), (BACK, pairs // 4))
    ]
    return join_corpora(parts, tags)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 6 updates, which is only read, and what it printed."""
    said = io.StringIO()
    with toy.untraced(), contextlib.redirect_stdout(said):
        run = tmp_path_factory.mktemp("trained") / "run"
        report = train(both(), run, toy.TRANSFORMER, SHORT.replace(corpus_weights="1 3"))
    return report.run, said.getvalue()


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a run of one update, with which others may not go on."""
    run = tmp_path_factory.mktemp("begun") / "run"
    with toy.untraced():
        train(both(), run, toy.TRANSFORMER, BEGUN)
    return run


@pytest.mark.tensorflow_only  # a translator is
def test_a_run_of_corpora_with_and_without_a_tag_reads_texts_without_one_as_they_are(tmp_path, untraced):
    real, made = Corpus("real", THERE.train[:40], THERE.valid[:9], []), Corpus("made", THERE.train[40:60], [], [])
    training = SHORT.replace(monitor="bleu")
    run = train(join_corpora([real, made], ["", "<bt>"]), tmp_path / "run", toy.TRANSFORMER, training).run
    search = run.decoding_config()
    assert (search.tags, search.untagged) == ("<bt>", True)
    assert Translator.from_run(run.path, DecodingConfig(beam_size=1)).decoding == search.replace(beam_size=1)
    translator = Translator.from_run(run.path)
    text = THERE.valid[0][0]
    bare = translator.source_tokenizer.tokenize([text]).to_list()
    assert translator.codec.tokenize([text]).to_list() == bare
    assert translator.codec.tokenize([f"<bt> {text}"]).to_list() != bare
    assert translator.codec.tokenize([f"<bt> {text}"])[0, -len(bare[0]) + 1 :].numpy().tolist() == bare[0][1:]
    assert "val_bleu made" not in (run.path / "log.csv").read_text()  # which has nothing to validate on


@pytest.mark.tensorflow_only  # a translator is
def test_a_run_knows_its_tags_and_its_corpora(trained):
    run, said = trained
    assert run.decoding_config().tags == "<2es> <2en>"
    assert run.decoding_config().untagged is False
    assert run.training_config().user_symbols == "<2es> <2en>"
    assert run.corpus()["parts"] == ["numbers", "back"]
    assert "An epoch has so many passes over each corpus: numbers 1, back 3" in said
    tokenizer = Translator.from_run(run.path).source_tokenizer
    assert [len(ids) for ids in tokenizer.tokenize(["<2es>", "<2en>"]).to_list()] == [2, 2]  # and the blank before it


def test_the_passes_that_a_run_has_had_are_told(trained):
    run, said = trained
    from kformer.tasks.translate import TranslateTask
    from kformer.training.run_setup import encode

    pairs, _ = encode(both(), TranslateTask(), run.training_config(), load_tokenizers(run.tokenizer_folder))
    plan = plan_batches(pairs, run.training_config())
    assert (pairs.parts, plan.passes) == ((40, 10), (1, 3))
    assert describe_mixture(plan, ["numbers", "back"], 6) in said.splitlines()


def test_each_validation_part_is_scored_apart(trained):
    run, said = trained
    header, *rows = [line.split(",") for line in run.log_file.read_text().splitlines()]
    names = ["val_bleu", "val_bleu numbers", "val_bleu back", "val_chrf", "val_chrf numbers", "val_chrf back"]
    assert {*names} <= {*header}
    assert len(rows) == 2
    for name in ("numbers", "back"):
        assert sum(line.startswith(f"  {name}: loss ") and " BLEU " in line for line in said.splitlines()) == 2


def rows_of(run):
    with run.log_file.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_losses_of_the_validation_parts_make_up_that_of_all(tmp_path, untraced):
    there = Corpus("numbers", THERE.train[:40], THERE.valid[:11], [])
    back = Corpus("back", BACK.train[:40], BACK.valid[:3], [])
    run = train(join_corpora([there, back], ["<2es>", "<2en>"]), tmp_path / "run", toy.TRANSFORMER, UNSCORED).run
    _, tokenizer = load_tokenizers(run.tokenizer_folder)
    targets = [[target for _, target in corpus.valid] for corpus in (there, back)]
    tokens = [sum(len(ids) + 1 for ids in tokenizer.tokenize(texts).to_list()) for texts in targets]
    assert tokens[0] > 2 * tokens[1]
    for metric in ("token_loss", "accuracy"):
        for row in rows_of(run):
            apart = [float(row[f"val_{metric} {name}"]) for name in ("numbers", "back")]
            assert apart[0] != apart[1]
            assert float(row[f"val_{metric}"]) == pytest.approx(np.average(apart, weights=tokens), abs=1e-5)


def test_a_run_of_one_corpus_has_no_losses_of_parts(tmp_path, untraced):
    run = train(join_corpora([THERE], ["<2es>"]), tmp_path / "run", toy.TRANSFORMER, UNSCORED.replace(max_steps=1)).run
    (row,) = rows_of(run)
    assert "val_token_loss" in row
    assert not [name for name in row if " " in name]


def test_a_signal_ends_the_validation_of_the_parts(tmp_path, untraced):
    """And the resumed run does all of this validation."""
    after = keras.callbacks.LambdaCallback()
    after.on_test_end = lambda logs: signal.raise_signal(signal.SIGINT)  # all have been validated, the parts have not
    report = train(both(), tmp_path / "run", toy.TRANSFORMER, UNSCORED, callbacks=[after])
    assert (report.interrupted, report.steps) == (True, 3)
    assert not report.run.log_file.exists() or not rows_of(report.run)
    resumed = train(both(), tmp_path / "run", resume=True).run
    whole = train(both(), tmp_path / "whole", toy.TRANSFORMER, UNSCORED).run
    for name in ("val_token_loss", "val_token_loss numbers", "val_token_loss back"):
        assert [row[name] for row in rows_of(resumed)] == [row[name] for row in rows_of(whole)]


def test_samples_are_of_each_corpus(trained):
    shown = [line.split()[0] for line in trained[1].splitlines() if line.startswith("  <2")]
    assert shown == ["<2es>", "<2en>", "<2es>"] * 2


@pytest.mark.slow
@pytest.mark.tensorflow_only  # a translator is
def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(tmp_path, untraced):
    training = UNSCORED.replace(corpus_weights="1 3")
    train(both(), tmp_path / "whole", toy.TRANSFORMER, training)
    train(both(), tmp_path / "stopped", toy.TRANSFORMER, training.replace(max_steps=4))
    train(both(), tmp_path / "stopped", training=training, resume=True)
    whole, stopped = (weights_of(RunFolder(tmp_path / name)) for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], stopped[name], err_msg=name)


@pytest.mark.parametrize(
    ("corpus", "changes"),
    [
        (both(44), {}),
        (both(tags=("<2en>", "<2es>")), {}),
        (both(), {"corpus_weights": "1 2"}),
        (both(), {"corpus_temperature": 2.0}),
        (both(), {"tags_before": "target"}),
    ],
    ids=["pairs", "tags", "weights", "temperature", "place of tags"],
)
def test_a_run_goes_on_with_the_same_mixture_alone(begun, corpus, changes):
    with pytest.raises(ValueError, match="was trained on another corpus|keeps its configuration"):
        train(corpus, begun, training=BEGUN.replace(max_steps=2, **changes), resume=True)


BEFORE_TARGETS = SHORT.replace(tags_before="target", max_steps=2, validation_steps=2)
UNSCORED_BEFORE_TARGETS = BEFORE_TARGETS.replace(monitor="loss", scored_sources=0)


@pytest.mark.tensorflow_only  # a translator is
def test_tags_may_stand_before_targets(tmp_path, untraced, capsys):
    """And a run that begins with the weights of such a run has its tags there, too."""
    first = train(both(), tmp_path / "first", toy.TRANSFORMER, BEFORE_TARGETS).run
    assert "  <2es> " in capsys.readouterr().out  # samples show the tag
    unsaid = UNSCORED.replace(max_steps=1, tags_before=None)
    later = train(both(), tmp_path / "later", training=unsaid, initialize_from=first.path).run
    for run in (first, later):
        assert run.training_config().tags_before == run.decoding_config().tags_before == "target"
        translator = Translator.from_run(run.path)
        texts = ["<2en> uno", "one", "<2es> one"]
        assert (
            translator.codec.tokenize(texts).to_list()
            == translator.source_tokenizer.tokenize(["uno", "one", "one"]).to_list()
        )
        starts = translator.codec.starts(texts).numpy()[:, None]
        assert translator.target_tokenizer.detokenize(starts).numpy().tolist() == [b"<2en>", b"<2es>", b"<2es>"]
    usual = train(both(), tmp_path / "usual", toy.TRANSFORMER, unsaid).run
    assert usual.decoding_config().tags_before == "source"


def test_the_targets_of_each_corpus_begin_with_its_tag(tmp_path, untraced):
    """In batches of training, whose mixture has passes of its own, and in those of each validation part."""
    from kformer.tasks.translate import TranslateTask
    from kformer.training.run_setup import encode

    run = train(both(), tmp_path / "run", toy.TRANSFORMER, UNSCORED_BEFORE_TARGETS.replace(corpus_weights="1 3")).run
    tokenizers = load_tokenizers(run.tokenizer_folder)
    pairs = encode(both(), TranslateTask(), run.training_config(), tokenizers)
    tags = {ids_of_words(tokenizers[1], [tag])[0]: words for tag, words in (("<2es>", THERE), ("<2en>", BACK))}
    assert len(tags) == 2
    sides = {start: {source for source, _ in [*corpus.train, *corpus.valid]} for start, corpus in tags.items()}
    seen = set()
    plans = [plan_batches(pairs[0], run.training_config()), *(BatchPlan(one, 512) for one in pairs[1].apart())]
    for plan in plans:
        for inputs, _ in plan.once(None):
            real = inputs["target_in"][:, 0] != 0
            sources = [text.decode() for text in tokenizers[0].detokenize(inputs["source"][real]).numpy()]
            for start, source in zip(inputs["target_in"][real, 0].tolist(), sources, strict=True):
                assert source in sides[start]
                seen.add(start)
    assert seen == {*tags}


def test_pairs_without_a_tag_begin_with_the_start_id(tmp_path, untraced):
    from kformer.tasks.translate import TranslateTask
    from kformer.training.run_setup import encode

    real, made = Corpus("real", THERE.train[:40], THERE.valid[:9], []), Corpus("made", THERE.train[40:60], [], [])
    corpus = join_corpora([real, made], ["", "<bt>"])
    run = train(corpus, tmp_path / "run", toy.TRANSFORMER, UNSCORED_BEFORE_TARGETS.replace(max_steps=1)).run
    tokenizers = load_tokenizers(run.tokenizer_folder)
    pairs, _ = encode(corpus, TranslateTask(), run.training_config(), tokenizers)
    (tag,) = ids_of_words(tokenizers[1], ["<bt>"])
    assert pairs.starts_of(np.array([0, 39, 40, 59])).tolist() == [tokenizers[1].start_id] * 2 + [tag] * 2


def test_a_place_for_tags_needs_tags(tmp_path):
    with pytest.raises(
        ValueError, match="tags_before='target' says where the tags of corpora stand. Received: a corpus"
    ):
        train(THERE, tmp_path / "run", toy.TRANSFORMER, BEFORE_TARGETS)
    assert not (tmp_path / "run").exists()


@pytest.mark.tensorflow_only  # a translator is
def test_tags_of_symbols_before_targets_are_symbols_of_the_targets(tmp_path, untraced):
    import dataclasses

    corpus = dataclasses.replace(both(), symbols=True)
    symbols = BEFORE_TARGETS.replace(tokenizer="symbols", monitor="loss", scored_sources=0, shared_vocabulary=False)
    run = train(corpus, tmp_path / "run", toy.TRANSFORMER, symbols).run
    source, target = load_tokenizers(run.tokenizer_folder)
    assert {"<2es>", "<2en>"} <= {*target.symbols}
    assert not {"<2es>", "<2en>"} & {*source.symbols}
    Translator.from_run(run.path).translate(["<2en> uno"])


def test_tags_before_targets_must_be_tokens_of_the_first_weights(tmp_path, untraced):
    words = SHORT.replace(tokenizer="words", max_steps=1, scored_sources=0)
    train(THERE, tmp_path / "first", toy.TRANSFORMER, words)
    with pytest.raises(ValueError, match="The vocabulary of the targets has no token of its own for <2es>, <2en>."):
        train(both(), tmp_path / "run", training=BEFORE_TARGETS, initialize_from=tmp_path / "first")
    assert not (tmp_path / "run").exists()


def test_tags_are_for_translators(tmp_path):
    corpus = join_corpora([Corpus("labels", [("a b", "x"), ("b", "y")] * 9, [("a", "x")], [])], ["<t>"])
    with pytest.raises(ValueError, match="Tags are for translators. Received: <t> with the task classify."):
        train(corpus, tmp_path / "run", TransformerConfig.of_size("tiny", task="classify"), toy.TRAINING)


def test_tags_that_the_first_weights_do_not_know_are_refused(tmp_path, untraced):
    words = SHORT.replace(tokenizer="words", max_steps=1, scored_sources=0)
    train(THERE, tmp_path / "first", toy.TRANSFORMER, words)
    with pytest.raises(ValueError, match="The vocabulary of the sources has no token for <2es>, <2en>. Choose tags"):
        train(both(), tmp_path / "run", training=words, initialize_from=tmp_path / "first")
    assert not (tmp_path / "run").exists()


@pytest.mark.tensorflow_only  # a translator is
@pytest.mark.parametrize("tokenizer", ["words", "symbols"])
def test_tags_are_words_of_the_vocabulary_where_texts_are_not_divided_into_subwords(tmp_path, untraced, tokenizer):
    training = SHORT.replace(tokenizer=tokenizer, max_steps=1, monitor="loss", scored_sources=0)
    run = train(both(), tmp_path / "run", toy.TRANSFORMER, training).run
    assert run.training_config().user_symbols == ""
    source = Translator.from_run(run.path).source_tokenizer
    assert (
        source.normalize(["<2es> one", "<2en> uno"]).numpy().tolist()
        == {
            "words": [b"< 2es > one", b"< 2en > uno"],
            "symbols": [b"<2es> one", b"<2en> uno"],
        }[tokenizer]
    )


def test_a_corpus_whose_validation_pairs_are_all_too_long_has_no_loss_of_its_own(tmp_path, untraced, capsys):
    parts = [Corpus("long", THERE.train[:9], [("one " * 40, "uno")], []), Corpus("short", *[THERE.train[:9]] * 2, [])]
    parts.append(Corpus("made", THERE.train[9:18], [], []))  # which never had any
    run = train(join_corpora(parts), tmp_path / "run", toy.TRANSFORMER, UNSCORED.replace(max_steps=1)).run
    (row,) = rows_of(run)
    assert "val_token_loss short" in row
    assert "val_token_loss long" not in row
    said = capsys.readouterr().out
    assert "long has no loss of its own, because each of its 1 validation pairs is" in said
    assert "made has no loss" not in said


def test_a_run_goes_on_only_with_the_same_border_between_its_corpora(tmp_path, untraced):
    def split_at(place):
        train_pairs, valid = THERE.train[:20], THERE.valid[:5]
        parts = [("one", train_pairs[:place], valid[:2]), ("two", train_pairs[place:], valid[2:])]
        return join_corpora([Corpus(*part, []) for part in parts])

    training = UNSCORED.replace(max_steps=1)
    run = train(split_at(8), tmp_path / "run", toy.TRANSFORMER, training).run
    with pytest.raises(ValueError, match="corpora of other sizes: 8, 12 training pairs. Received: 9, 11. How often"):
        train(split_at(9), run.path, resume=True)
    with pytest.raises(ValueError, match="Received: one corpus."):
        train(Corpus("one", THERE.train[:20], THERE.valid[:5], []), run.path, resume=True)


@pytest.mark.tensorflow_only  # a translator is
def test_tags_of_symbols_are_symbols(tmp_path, untraced):
    import dataclasses

    corpus = dataclasses.replace(both(), symbols=True)
    symbols = SHORT.replace(tokenizer="symbols", monitor="loss", max_steps=1, scored_sources=0)
    run = train(corpus, tmp_path / "run", toy.TRANSFORMER, symbols).run
    assert run.decoding_config().tags == "<2es> <2en>"
    assert len(Translator.from_run(run.path).source_tokenizer.tokenize(["<2es> one"]).to_list()[0]) == 2


def test_a_corpus_of_which_nothing_is_left_is_named(tmp_path):
    parts = [Corpus("long", [("one " * 40, "uno")], THERE.valid, []), Corpus("short", THERE.train[:9], THERE.valid, [])]
    with pytest.raises(ValueError, match="No pair of long is left. Check the texts or raise max_length."):
        train(join_corpora(parts), tmp_path / "run", toy.TRANSFORMER, SHORT)


@pytest.mark.slow
@pytest.mark.tensorflow_only
@pytest.mark.parametrize("place", ["source", "target"])
def test_one_model_learns_both_directions(tmp_path, place):
    corpus = join_corpora([THERE, BACK], ["<2es>", "<2en>"])
    training = toy.TRAINING.replace(max_steps=1100, vocab_size=330, validation_steps=550, tags_before=place)
    translator = Translator.from_run(train(corpus, tmp_path / "run", toy.TRANSFORMER, training).run.path)
    for tag, pairs, words in (("<2es>", THERE.test, toy.WORDS.values()), ("<2en>", BACK.test, toy.WORDS)):
        asked = [pair for pair in pairs if len(pair[0].split()) > 1][:50]
        found = translator([f"{tag} {source}" for source, _ in asked])
        assert {word for answer in found for word in answer.split()} <= {*words}
        right = sum(answer == target for answer, (_, target) in zip(found, asked, strict=True))
        assert right >= 30  # of 50
