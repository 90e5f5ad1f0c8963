"""Every field of the configurations that a user may set is an option of `kformer train`, and arrives in a run."""

import dataclasses

import keras
import pytest
import toy
import typer
import yaml
from commands import refused
from own_models import write_model
from typer.testing import CliRunner

from kformer.cli.main import app
from kformer.cli.train_config import FIELDS, PARTS, WITHOUT_OPTION
from kformer.config import TrainingConfig, TransformerConfig
from kformer.runs.folder import RunFolder
from kformer.training.compile import compile_model
from kformer.training.new_run import start_run
from kformer.training.optimizers import Adafactor, Adam, AdamW
from kformer.training.train import TrainingReport

pytestmark = pytest.mark.tensorflow_only

# Values that suit the other fields, where one more than the default, or half of it, does not.
VALUES = {
    "d_model": 260,
    "num_heads": 8,
    "head_dim": 32,
    "num_key_value_heads": 2,
    "source_tokenizer": "words.model",
    "target_tokenizer": "words.model",
    "user_symbols": "<2es> {0}",
    "bpe_dropout": 0.1,
    "unigram_alpha": 0.2,
    "corpus_weights": "2",
    "corpus_temperature": 2.5,
    "source_embeddings": "words.vec",
    "target_embeddings": "words.vec",
    "attention_dropout_rate": 0.5,
    "max_minutes": 2.5,
    "scored_sources": 7,
    "monitor": "accuracy",
    "task": "tag",
    "precision": "mixed_bfloat16",
    "tokens_per_batch": 512,
    "schedule": "constant",
    "learning_rate": 0.001,
    "final_learning_rate": 0.0002,
    "weight_decay": 0.1,
    "gradient_clip_norm": 2.5,
    "least_improvement": 0.25,
    "r_drop": 2.5,
    "guided_alignment": 0.25,
    "word_level": 0.25,
    "word_level_teacher": "bible-en-es",
}
NEEDED = {
    "train_embeddings": ("--source-embeddings", "words.vec"),
    "schedule": ("--learning-rate", "0.001"),
    "learning_rate": ("--schedule", "constant"),
    "final_learning_rate": ("--schedule", "linear", "--learning-rate", "0.001", "--max-steps", "9"),
    "optimizer": ("--weight-decay", "0.1"),
    "weight_decay": ("--optimizer", "adamw"),
    "unigram_alpha": ("--tokenizer", "unigram"),
    "guided_alignment": ("--alignments", "pairs.align"),
    "word_level": ("--word-level-teacher", "bible-en-es"),
    "word_level_teacher": ("--word-level", "0.5"),
}


def other_value(field, default):
    """A value of a field that is not the default."""
    if field.name in VALUES:
        return VALUES[field.name]
    if field.choices:
        return next(name for name in field.choices if name != default)
    if bool in field.types:
        return not default
    return (default or 1) + 1 if int in field.types else default / 2


def as_words(option, value):
    """An option as a user writes it."""
    name = option.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


OF_SUBWORDS = ("user_symbols", "bpe_dropout", "unigram_alpha")
WORDS = ("--tokenizer", "words", "--precision", "float32")  # a vocabulary that is made in no time


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Runs the command, which makes the run folder and does not train; gives the folder's configurations by part."""
    pairs = toy.corpus().train[:20]
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    (tmp_path / "pairs.align").write_text("0-0\n" * len(pairs))
    write_model(tmp_path / "words.model", ["one two three"])
    (tmp_path / "words.vec").write_text("1 4\none 1 2 3 4\n")
    monkeypatch.chdir(tmp_path)

    def started(corpus, output, transformer, training, initialize_from, **options):
        start_run(RunFolder(output), corpus, transformer, training, initialize_from)
        return TrainingReport(RunFolder(output), 0, None, "started", interrupted=False)

    monkeypatch.setattr("kformer.training.train.train", started)

    def run(*words):
        command = ["train", "--train", "pairs.tsv", "--output", "run", *words]
        answer = CliRunner().invoke(app, command, catch_exceptions=False)
        assert answer.exit_code == 0, answer.output
        folder = RunFolder(tmp_path / "run")
        return {"transformer": folder.transformer_config(), "training": folder.training_config()}

    return run


def test_without_options_a_run_has_the_settings_of_the_default_size(train):
    found = train(*WORDS)
    tokenizers = {name: getattr(found["transformer"], name) for name in WITHOUT_OPTION}
    assert found["transformer"] == TransformerConfig.of_size("small", **tokenizers)
    found_in_run = {"precision": "float32", "scored_sources": 0, "tags_before": "source"}
    expected = TrainingConfig.of_size("small", tokenizer="words", **found_in_run)
    assert found["training"] == expected


def test_a_field_has_an_option_or_a_reason_to_have_none():
    of_options = {(part, field.name) for part, field in FIELDS.values()}
    every = {(part, field.name) for part, start in PARTS.items() for field in dataclasses.fields(start)}
    assert {name for _, name in every - of_options} == set(WITHOUT_OPTION)
    assert all(reason.endswith(".") for reason in WITHOUT_OPTION.values())


@pytest.mark.parametrize("option", FIELDS)
def test_the_value_of_an_option_arrives_in_the_run_folder(option, train):
    part, field = FIELDS[option]
    value = other_value(field, getattr(PARTS[part], field.name))
    other = () if option in ("tokenizer", "precision", *OF_SUBWORDS) else WORDS
    other += NEEDED.get(option, ())
    assert getattr(train(*other, *as_words(option, value))[part], field.name) == value
    assert value != getattr(PARTS[part], field.name)


def test_a_teacher_of_another_task_is_refused_before_the_training_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("kformer.training.train.train", None)
    (tmp_path / "texts.txt").write_text("one\n")
    words = ("--train", tmp_path / "texts.txt", "--output", tmp_path / "run", "--task", "language-model")
    told = refused("train", *words, "--word-level", 0.5, "--word-level-teacher", "bible-en-es")
    assert "is a run of the task translate. Expected: a run of the task language-model" in told


def test_an_option_wins_over_a_file_and_a_file_over_a_size(train, tmp_path):
    file = {
        "transformer": {"d_model": 64, "dropout_rate": 0.2},
        "training": {"tokens_per_batch": 512, "seed": 5, "warmup_steps": 9},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(file))
    found = train(*WORDS, "--config", "c.yaml", "--d-model", "32", "--seed", "7", "--size", "tiny")
    transformer, training = found["transformer"], found["training"]
    assert (transformer.d_model, transformer.dropout_rate, transformer.d_ff) == (32, 0.2, 512)
    assert (training.seed, training.tokens_per_batch, training.learning_rate_scale) == (7, 512, 1.2)
    assert (training.warmup_steps, training.fit_warmup) == (9, False)


def test_a_file_and_options_may_fit_only_together(train, tmp_path):
    (tmp_path / "c.yaml").write_text("transformer: {num_heads: 6}\n")
    found = train(*WORDS, "--config", "c.yaml", "--d-model", "36")
    assert (found["transformer"].d_model, found["transformer"].num_heads) == (36, 6)


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (
            *(
                ["--optimizer", "adamw", "--weight-decay", "0.1", "--beta-2", "0.95", "--gradient-clip-norm", "2"],
                AdamW,
            ),
            {"weight_decay": 0.1, "beta_2": 0.95, "global_clipnorm": 2.0, "ema_decay": 0.999},
        ),
        (["--optimizer", "adafactor", "--gradient-clip-norm", "2"], Adafactor, {"global_clipnorm": 2.0}),
        ([], Adam, {"weight_decay": None, "global_clipnorm": None, "ema_decay": 0.999}),
    ],
)
def test_the_options_of_the_optimizer_and_of_its_rate_arrive_there(words, kind, expected, train):
    rate = ["--schedule", "cosine", "--learning-rate", "0.5", "--final-learning-rate", "0.25", "--warmup-steps", "3"]
    found = train(*WORDS, *words, *rate, "--max-steps", "7", "--gradient-accumulation-steps", "2")
    model = keras.Sequential([keras.Input((None,), dtype="int32"), keras.layers.Embedding(7, 7)])
    compile_model(model, found["transformer"], found["training"])
    optimizer = model.optimizer
    assert type(optimizer) is kind
    assert {name: getattr(optimizer, name) for name in expected} == expected
    # Two batches are an update: the rates of the third and of the seventh.
    schedule = keras.optimizers.schedules.deserialize(optimizer.get_config()["learning_rate"])
    assert [float(schedule(batch)) for batch in (4, 12)] == pytest.approx([0.5, 0.25])


def test_an_option_wins_over_a_recipe(train):
    found = train("--recipe", "bible-en-es", *WORDS, "--patience", "3", "--norm-first")
    assert (found["training"].patience, found["transformer"].norm_first) == (3, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--d-model", "-2"], "^--d-model: d_model must be greater than 0"),
        (["--num-heads", "7"], "^--num-heads: d_model must be divisible by num_heads"),
        (["--config", "c.yaml", "--num-heads", "7"], "^c.yaml, --num-heads: d_model must be divisible by num_heads"),
        (["--config", "c.yaml", "--seed", "7", "--dropout-rate", "2"], "^--dropout-rate: dropout_rate must be at"),
        (["--activation", "geluu"], r"^--activation: activation must be one of .* Did you mean 'gelu'\?"),
        (["--task", "tagg"], "^--task: .*'tag'"),
        (["--monitor", "bleu", "--task", "tag"], "^--task, --monitor: A model of the task tag gives no translations"),
        (
            ["--positional-encoding", "learned", "--transformer-max-length", "8"],
            "^--transformer-max-length: The transformer has 8 learned positions",
        ),
        (["--optimizer", "adamw"], "^--optimizer: weight_decay must be above 0 with the optimizer adamw, such as"),
        (["--schedule", "linear", "--learning-rate", "1"], "^--schedule: The schedule linear ends at the last"),
        (["--learning-rate", "1"], "^--learning-rate: The schedule equation_3 has the peak"),
        (
            ["--tokenizer", "words", "--bpe-dropout", "0.1"],
            "^--tokenizer, --bpe-dropout: bpe_dropout is for bpe .* words. Leave it out, or train with the tokenizer",
        ),
        (["--bpe-dropout", "0.1", "--task", "tag"], "^--task, --bpe-dropout: bpe_dropout: only the tasks translate"),
        (
            ["--initialize-from", "cmudict", "--bpe-dropout", "0.1"],
            "^--bpe-dropout: bpe_dropout is for bpe .* of the kind symbols",
        ),
        (["--bpe-dropout", "1"], "^--bpe-dropout: bpe_dropout must be at least 0 and below 1"),
        (["--num-decoder-layers", "0"], "^--num-decoder-layers: A model of the task translate needs"),
    ],
)
def test_a_wrong_value_is_refused_with_the_names_of_its_options(words, message, train, tmp_path):
    (tmp_path / "c.yaml").write_text("transformer: {d_model: 64}\n")
    with pytest.raises(ValueError, match=message):
        train(*words)


def test_a_value_of_another_type_is_refused_as_wrong_usage(tmp_path):
    answer = CliRunner().invoke(app, ["train", "--output", str(tmp_path / "run"), "--d-model", "big"])
    assert (answer.exit_code, "--d-model" in answer.output) == (2, True)


def test_the_help_of_a_field_tells_its_choices_and_the_default_of_the_usual_size():
    options = {one.name: one for one in typer.main.get_command(app).commands["train"].params}
    ends = {
        "vocab_size": "Default: 4000.",
        "fit_warmup": "Default: yes.",
        "norm_first": "Default: no.",
        "weight_decay": "Default: 0.0.",
        "optimizer": "One of adam, adamw, adafactor. Default: adam.",
    }
    assert {name: options[name].help.endswith(f" {end}") for name, end in ends.items()} == dict.fromkeys(ends, True)
    assert not any("Default: " in options[name].help for name in ("max_steps", "user_symbols"))
    metavars = {"optimizer": "NAME", "source_tokenizer": "FILE", "user_symbols": "TEXT"}
    assert {name: options[name].metavar for name in metavars} == metavars
