"""What a new run writes before it trains."""

import dataclasses
import io
import shutil
import sys

import pytest
import rich.console
import toy
from own_models import write_model

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import Corpus
from kformer.data.joined import join_corpora
from kformer.files.checksums import DamagedFileError
from kformer.runs.folder import RunFolder
from kformer.training.build_run import build_run
from kformer.training.checkpoints import TrainingState
from kformer.training.distributed import process_group
from kformer.training.new_run import start_run
from kformer.training.opened_run import RunRequest, opened_run
from kformer.training.resumed_run import resume_run

pytestmark = pytest.mark.tensorflow_only


@pytest.mark.parametrize(
    ("monitor", "given", "written"), [("loss", None, 0), ("loss", 3, 3), ("bleu", None, 500), ("bleu", 3, 3)]
)
def test_translations_are_scored_where_they_tell_the_best_weights_or_where_asked(tmp_path, monitor, given, written):
    training = toy.TRAINING.replace(monitor=monitor, scored_sources=given)
    setup = start_run(RunFolder(tmp_path / "run"), toy.corpus(), toy.TRANSFORMER, training)
    assert setup.training.scored_sources == written
    assert setup.training == RunFolder(tmp_path / "run").training_config()


def test_what_the_machine_and_the_corpus_decide_is_written_and_no_change_when_resumed(tmp_path):
    run, given = RunFolder(tmp_path / "run"), toy.TRAINING.replace(precision="auto", scored_sources=None)
    setup = start_run(run, toy.corpus(), None, given)
    assert setup.training.precision in ("float32", "mixed_bfloat16")
    assert setup.transformer.source_vocab_size == setup.tokenizers[0].vocab_size
    small, sizes = TransformerConfig.of_size("small"), ("d_model", "d_ff", "num_heads", "num_encoder_layers")
    assert [getattr(setup.transformer, name) for name in sizes] == [getattr(small, name) for name in sizes]
    again = resume_run(run, toy.corpus(), None, given.replace(max_steps=7))
    assert again.training == setup.training.replace(max_steps=7)
    assert again.training == run.training_config()
    assert TrainingConfig.load(run.training_file).max_steps == 7


def test_the_precision_stays_though_another_machine_would_choose_another_one(tmp_path, monkeypatch):
    run, given = RunFolder(tmp_path / "run"), toy.TRAINING.replace(precision="auto")
    begun = start_run(run, toy.corpus(), None, given).training.precision
    other = {"float32": "mixed_bfloat16", "mixed_bfloat16": "float32"}[begun]
    chosen = {"auto": other}
    monkeypatch.setattr("kformer.training.run_setup.resolve_precision", lambda given: chosen.get(given, given))
    assert resume_run(run, toy.corpus(), None, given).training.precision == begun


def test_the_multiple_of_rows_stays_that_of_the_devices_that_the_run_began_on(tmp_path):
    run = RunFolder(tmp_path / "run")
    start_run(run, toy.corpus(), None, toy.TRAINING.replace(batch_size_multiple=6))
    assert resume_run(run, toy.corpus(), None, toy.TRAINING).training.batch_size_multiple == 6


def test_weights_that_two_vocabularies_cannot_share_are_no_change_when_resumed(tmp_path):
    """The sizes ask for one matrix of all words; the run has two vocabularies, so the target's alone is shared."""
    run, training = RunFolder(tmp_path / "run"), toy.TRAINING.replace(shared_vocabulary=False)
    setup = start_run(run, toy.corpus(), toy.TRANSFORMER, training)
    assert (toy.TRANSFORMER.embedding_tying, setup.transformer.embedding_tying) == ("all", "target")
    assert resume_run(run, toy.corpus(), toy.TRANSFORMER, training).transformer == setup.transformer
    with pytest.raises(ValueError, match=r"embedding_tying='none' \(the run has 'target'\)"):
        resume_run(run, toy.corpus(), toy.TRANSFORMER.replace(embedding_tying="none"), training)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    run = RunFolder(tmp_path_factory.mktemp("begun") / "run")
    start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    return run


@pytest.mark.parametrize(
    "name",
    [
        *("transformer.json", "training.json", "corpus.json", "samples.json", "environment.json", "decoding.json"),
        "tokenizer/shared/model.spm",
    ],
)
def test_whatever_a_new_run_has_written_is_checked_when_it_goes_on(name, begun, tmp_path):
    run = RunFolder(shutil.copytree(begun.path, tmp_path / "run"))
    with (run.path / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DamagedFileError, match=f"{name} does not match its checksum"):
        resume_run(run, toy.corpus())
    with pytest.raises(DamagedFileError, match=f"{name} does not match its checksum"):
        run.check_files()


@pytest.mark.parametrize(
    ("begun_with", "given", "told"),
    [
        ({"embedding_tying": "none"}, {}, r"embedding_tying='all' \(the run has 'none'\)"),
        ({"embedding_dim": 32}, {}, r"embedding_dim=None \(the run has 32\)"),
        ({}, {"embedding_dim": 32}, r"embedding_dim=32 \(the run has None\)"),
    ],
)
def test_what_no_data_has_decided_is_a_change_when_resumed(begun_with, given, told, tmp_path):
    run, training = RunFolder(tmp_path / "run"), toy.TRAINING.replace(tokenizer="symbols")
    start_run(run, toy.corpus(), toy.TRANSFORMER.replace(**begun_with), training)
    with pytest.raises(ValueError, match=told):
        resume_run(run, toy.corpus(), toy.TRANSFORMER.replace(**given), training)


def test_the_parts_of_the_corpus_and_some_of_its_validation_sources_are_noted(begun):
    noted = begun.corpus()
    assert [noted[part] for part in ("train", "valid", "test")] == [1354, 100, 100]
    assert (noted["name"], noted["symbols"], noted["tabs_in_sources"]) == ("numbers", False, False)
    # Of 100 sources, each sixth.
    assert begun.samples() == [source for source, _ in toy.corpus().valid[::6]][:16]


@pytest.mark.parametrize("with_tabs", ["train", "valid"])
def test_symbols_and_tabs_of_the_training_sources_are_noted(with_tabs, tmp_path):
    parts = {"train": [("a b", "A\tB")] * 3, "valid": [("b a", "B\tA")]}
    parts[with_tabs] = [("b\ta", "B A"), *parts[with_tabs]]
    run = RunFolder(tmp_path / "run")
    start_run(run, Corpus("letters", **parts, test=[], symbols=True), toy.TRANSFORMER, toy.TRAINING)
    assert (run.corpus()["symbols"], run.corpus()["tabs_in_sources"]) == (True, with_tabs == "train")
    assert run.training_config().tokenizer == "symbols"


@pytest.mark.parametrize(
    ("training", "task", "symbols"),
    [
        ({"tokenizer": "symbols"}, "translate", True),
        ({"tokenizer": "symbols", "shared_vocabulary": False}, "translate", True),
        ({}, "translate", False),
        ({}, "classify", False),  # its labels are symbols
    ],
)
def test_a_run_reads_symbols_if_its_sources_are_symbols(training, task, symbols, tmp_path):
    run, pairs = RunFolder(tmp_path / "run"), [(source, target.split()[0]) for source, target in toy.corpus().valid]
    corpus, transformer = Corpus("numbers", pairs, pairs, []), toy.TRANSFORMER.replace(task=task)
    start_run(run, corpus, transformer, toy.TRAINING.replace(vocab_size=280, **training))
    assert run.reads_symbols() == symbols


def test_a_classifier_has_the_special_ids_of_its_texts_and_not_of_its_labels(tmp_path):
    labels = [(source, f"length-{len(source.split())}") for source, _ in toy.corpus().valid]
    own = write_model(tmp_path / "own.model", [source for source, _ in labels], pad_id=3)
    training = toy.TRAINING.replace(source_tokenizer=str(own))
    corpus, transformer = Corpus("lengths", labels, labels, []), toy.TRANSFORMER.replace(task="classify")
    setup = start_run(RunFolder(tmp_path / "run"), corpus, transformer, training)
    texts, classes = setup.tokenizers
    ids = [(one.pad_id, one.start_id, one.end_id) for one in (setup.transformer, texts, classes)]
    assert ids[0] == ids[1] != ids[2]


def test_without_settings_the_training_suits_the_task_of_the_given_sizes(tmp_path):
    """Language models are trained without label smoothing."""
    transformer = toy.TRANSFORMER.replace(task="language-model", num_encoder_layers=0)
    texts = [(source, "") for source, _ in toy.corpus().valid]
    request = RunRequest(RunFolder(tmp_path / "run"), Corpus("texts", texts, texts, []), transformer, None, False, None)
    with opened_run(request, process_group(1), rich.console.Console(quiet=True)) as opened:
        assert opened.setup.training.label_smoothing == 0.0


def test_tags_of_corpora_are_symbols_beside_those_of_a_user(tmp_path):
    corpus = join_corpora([toy.corpus()], ["<2es>"])
    run, given = RunFolder(tmp_path / "run"), toy.TRAINING.replace(user_symbols="{0}")
    setup = start_run(run, corpus, toy.TRANSFORMER, given)
    assert setup.training.user_symbols == "{0} <2es>"
    for again in (given, setup.training):  # a tag that is a symbol already is none twice
        assert resume_run(run, corpus, training=again).training == setup.training
    blank_and_symbol = setup.tokenizers[0].tokenize(["{0}", "<2es>"]).row_lengths()
    assert blank_and_symbol.numpy().tolist() == [2, 2]


def test_lengths_and_the_warmup_are_those_of_the_training_pairs(tmp_path):
    """The validation pairs are longer and fewer."""
    train, valid = ([(" ".join(["one"] * words), "uno")] * number for words, number in ((3, 48), (7, 8)))
    training = toy.TRAINING.replace(
        **{"tokenizer": "symbols", "tokens_per_batch": 64, "max_steps": None, "max_epochs": 8},
        **{"warmup_steps": 400, "learning_rate_scale": 1.0, "fit_warmup": True},
    )
    run = RunFolder(tmp_path / "run")
    setup = start_run(run, Corpus("ones", train, valid, test=[]), toy.TRANSFORMER, training)
    search = run.decoding_config()
    assert (search.max_source_length, search.max_sentence_length) == (4, 4)  # with the end
    # 16 texts of 4 tokens in a batch: 3 updates an epoch. A quarter of 24 is 6, and (6 / 400)**0.5 = 0.122.
    assert (setup.training.warmup_steps, setup.training.learning_rate_scale) == (6, pytest.approx(0.1225, abs=1e-4))


@pytest.mark.parametrize(
    ("transformer", "training", "told"),
    [
        ({"num_decoder_layers": 0}, {}, "needs num_encoder_layers and num_decoder_layers of at least 1"),
        ({"task": "classify"}, {"monitor": "bleu", "scored_sources": 5}, "gives no translations to score. Received"),
        ({}, {"bleu_tokenizer": "ja-mecab"}, "tokenizer ja-mecab cannot be used here"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    transformer, training, told, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "MeCab", None)  # a machine without it
    corpus = Corpus("labels", [("one", "a"), ("two", "b")], [("one", "a")], [])
    with pytest.raises(ValueError, match=told):
        start_run(
            RunFolder(tmp_path / "run"),
            corpus,
            toy.TRANSFORMER.replace(**transformer),
            toy.TRAINING.replace(**training),
        )
    assert list(tmp_path.iterdir()) == []


def test_every_budget_may_change_and_change_back(begun, tmp_path):
    run = RunFolder(shutil.copytree(begun.path, tmp_path / "run"))
    budget = {"max_epochs": 7, "max_steps": 8, "max_minutes": 9.0, "patience": 10, "keep_weights": 11}
    budget |= {"checkpoint_minutes": 12.0, "least_improvement": 13.0}
    for training in (toy.TRAINING.replace(**budget), toy.TRAINING):
        resume_run(run, toy.corpus(), training=training)
        assert run.training_config() == training.replace(precision="float32", scored_sources=0)


def test_files_of_others_in_the_folder_are_no_part_of_the_run(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    start_run(RunFolder(tmp_path), toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    (tmp_path / "mine.json").unlink()
    assert "mine.json" not in (tmp_path / "SHA256SUMS").read_text()
    assert resume_run(RunFolder(tmp_path), toy.corpus()).resumed


def test_a_pair_that_moved_from_training_to_validation_makes_another_corpus(begun):
    train, valid = toy.corpus().train, toy.corpus().valid
    moved = dataclasses.replace(toy.corpus(), train=train[:-1], valid=[train[-1], *valid])
    with pytest.raises(ValueError, match="was trained on another corpus"):
        resume_run(begun, moved)


@pytest.mark.parametrize(
    "killed_at", ["create.save_tokenizers", "folder.RunFolder.write_environment", "folder.RunFolder.note_files"]
)
def test_a_run_killed_while_it_begins_can_be_begun_again(killed_at, tmp_path, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(f"kformer.runs.{killed_at}", killed)
        with pytest.raises(KeyboardInterrupt):
            start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    assert not run.exists()
    run.best_weights_file.touch()  # of a model that was written here in part, too
    run.embeddings_file.touch()
    start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    assert not run.best_weights_file.exists()
    assert not run.embeddings_file.exists()
    resume_run(run, toy.corpus())


def test_labels_that_cannot_be_learned_are_told_and_a_new_vocabulary_is_not_said_to_be_of_another_corpus(tmp_path):
    console, group = rich.console.Console(file=io.StringIO(), width=200), process_group(1)
    labels = [("one", "odd"), ("one two", "even")] * 9
    corpus = Corpus("labels", labels, [*labels, ("one two one", "none")], [])
    transformer, training = toy.TRANSFORMER.replace(task="classify"), toy.TRAINING.replace(tokenizer="words")
    request = RunRequest(RunFolder(tmp_path / "run"), corpus, transformer, training, False, None)
    with opened_run(request, group, console) as opened:
        build_run(request, opened, group, TrainingState(), console)
    said = console.file.getvalue()
    assert "1 validation label not among the training labels" in said
    assert "The model reads at most 256 tokens at once" in said
    assert "made for another corpus" not in said


def test_a_new_run_has_the_search_that_is_asked_for_with_the_lengths_of_its_texts(tmp_path):
    run, usual = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "usual")
    search = DecodingConfig(beam_size=2, max_source_length=3)
    start_run(run, toy.corpus(), toy.TRANSFORMER, toy.TRAINING, decoding=search)
    start_run(usual, toy.corpus(), toy.TRANSFORMER, toy.TRAINING)
    assert run.decoding_config() == usual.decoding_config().replace(beam_size=2)
    assert usual.decoding_config().max_source_length != 3
