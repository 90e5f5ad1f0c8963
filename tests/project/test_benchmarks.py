"""What the benchmarks count and compute; their timings are nobody's promise."""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import toy

from benchmarks.common import commands, sequence_tasks
from benchmarks.common.flops import multiplications, training_flops
from benchmarks.common.results import missing
from benchmarks.decoding import batch_engines, hardware_limits
from benchmarks.quality import back_translation, distillation, manuals, multilingual, translation
from benchmarks.training.wmt14_cost import PAPER, TOKENS_A_STEP, cost
from benchmarks.variants import attention_window, fewer_heads_and_layers, lines_of_code, universal_transformer
from kformer.config import TransformerConfig
from kformer.data import load_corpus
from kformer.models import build_transformer
from kformer.recipes import load_recipe

pytestmark = pytest.mark.tensorflow_only  # that is: once
ROOT = pathlib.Path(__file__).parents[2]
JAX = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def test_multiplications_of_a_model_of_two_numbers():
    """By hand: d_model 2, d_ff 3, one head, one layer each, 5 words; a source of 4 positions and a target of 3."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    vocabulary = {"source_vocab_size": 5, "target_vocab_size": 5}
    config = TransformerConfig(d_model=2, d_ff=3, num_heads=1, **layers, **vocabulary)
    found = multiplications(config, 4, 3)
    # Four matrices of 2 x 2 for each of 4 positions; 4 x 4 products of 2 numbers, twice; 2 x 3 and 3 x 2.
    assert found.encoder == 4 * 4 * 4 + 2 * 4 * 4 * 2 + 4 * (6 + 6)
    # The same of 3 positions; then queries and outputs of 3, keys and values of 4, 3 x 4 products of 2 numbers, twice.
    assert found.decoder == (3 * 4 * 4 + 2 * 3 * 3 * 2) + (3 * 2 * 4 + 4 * 2 * 4 + 2 * 3 * 4 * 2) + 3 * (6 + 6)
    assert found.logits == 3 * 2 * 5
    assert training_flops(config, 4, 3) == 6 * (found.encoder + found.decoder + found.logits)


def test_lines_of_code_are_counted_without_words():
    def sample(one):
        """What is no code.

        It has many lines.
        """
        # Neither is this.
        two = [
            one,
            one,
        ]

        return two

    assert lines_of_code.lines(sample) == 3


def test_numbers_to_add_have_their_last_digit_first():
    # 75 + 38 = 113, and 4 + 9 = 13.
    np.testing.assert_array_equal(universal_transformer.added(np.array([[5, 7]]), np.array([[8, 3]])), [[3, 1, 1]])
    task = universal_transformer.TASKS["addition"]
    inputs, labels = universal_transformer.examples(task, np.random.default_rng(0), 50, range(1, 4))
    assert (inputs["source"].shape, labels.shape) == ((50, 8), (50, 5))

    def number(ids):
        return sum((digit - universal_transformer.ZERO) * 10**place for place, digit in enumerate(ids))

    for source, target_in, target in zip(*inputs.values(), labels, strict=True):
        source, target = (ids[: list(ids).index(sequence_tasks.END)] for ids in (source, target))
        length = list(source).index(universal_transformer.PLUS)
        assert len(source) == 2 * length + 1
        assert number(source[:length]) + number(source[length + 1 :]) == number(target)
        assert [*target_in[: length + 2]] == [sequence_tasks.START, *target]
        assert not target_in[length + 2 :].any()


# Adds up the products of matrices in the traced gradient of a model's loss.
COUNT = """
import json, math, sys
import jax, numpy as np
from kformer.config import TransformerConfig
from kformer.data import load_corpus
from kformer.models import build_transformer
from kformer.losses import LabelSmoothedCrossEntropy

def count(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            terms = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * terms * math.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else [value]:
                inner = getattr(inner, "jaxpr", inner)
                total += count(inner) if hasattr(inner, "eqns") else 0
    return total

fields, rows, source_length, target_length = json.loads(sys.argv[1])
model = build_transformer(TransformerConfig(**fields), dtype="mixed_bfloat16")
source, target = np.ones((rows, source_length), "int32"), np.ones((rows, target_length), "int32")

def loss(weights):
    others = [variable.value for variable in model.non_trainable_variables]
    logits, _ = model.stateless_call(weights, others, {"source": source, "target_in": target}, training=True)
    return LabelSmoothedCrossEntropy()(target, logits)

print(count(jax.make_jaxpr(jax.grad(loss))([variable.value for variable in model.trainable_variables]).jaxpr))
"""


@pytest.mark.slow
def test_the_formula_counts_the_products_of_a_traced_training_step():
    fields = {
        **{"d_model": 24, "d_ff": 40, "num_heads": 3, "num_encoder_layers": 3, "num_decoder_layers": 2},
        **{"source_vocab_size": 50, "target_vocab_size": 50, "num_key_value_heads": 1, "attention_window": 4},
    }
    command = [sys.executable, "-c", COUNT, json.dumps([fields, 2, 7, 5])]
    answer = subprocess.run(command, env=JAX, capture_output=True, text=True, check=True)
    assert int(answer.stdout) == 2 * training_flops(TransformerConfig(**fields), 7, 5)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_own_figures_fit(name):
    found = cost(load_recipe(f"wmt14-en-de-{name}"), length=30)
    paper = PAPER[name]
    assert found.hours(TOKENS_A_STEP / paper.seconds_a_step) == pytest.approx(paper.hours, rel=0.1)
    # The paper multiplies time, cards and what they sustain (section 6.1, footnote 5); products alone are part of that.
    assert 8 * 9.5e12 * paper.hours * 3600 == pytest.approx(paper.flops, rel=0.01)
    assert 0.2 < found.flops / paper.flops < 0.5


def test_the_cost_of_attention_hardly_depends_on_the_lengths():
    recipe = load_recipe("wmt14-en-de-base")
    assert cost(recipe, 60).flops == pytest.approx(cost(recipe, 30).flops, rel=0.02)


def test_the_page_shows_what_the_script_prints():
    page = (ROOT / "docs" / "wmt14.md").read_text("utf-8")
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.training.wmt14_cost"], env=JAX, capture_output=True, text=True, check=True
    ).stdout
    tables = printed.strip().split("\n\n")
    assert len(tables) == 3
    for table in tables:
        assert table in page


@pytest.mark.slow
def test_training_gpu_runs_without_tensorflow(tmp_path):
    """On a CPU, with a small model: that it runs, and that its figures fit each other."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('TensorFlow was imported')\n")
    environment = {**JAX, "PYTHONPATH": f"{tmp_path}{os.pathsep}{JAX['PYTHONPATH']}"}
    command = [sys.executable, ROOT / "benchmarks" / "training_gpu.py", "--sizes", "tiny", "--attentions", "xla"]
    command += ["--lengths", "8", "--tokens", "70", "--steps", "2", "--rounds", "1", "--matrix", "64"]
    command += ["--output", tmp_path / "found.json"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (case,) = json.loads((tmp_path / "found.json").read_text())["cases"]
    assert (case["rows"], case["flash_attention"]) == (8, False)  # 70 tokens hold 8 rows of 8
    assert case["tokens_per_second"] == pytest.approx(64 / case["seconds_a_step"])
    sizes = TransformerConfig.of_size("tiny")
    assert case["flops_per_second"] * case["seconds_a_step"] == pytest.approx(8 * training_flops(sizes, 8, 8))
    assert case["utilisation"] == pytest.approx(case["flops_per_second"] / case["peak_flops_per_second"])
    assert re.search(r"\| tiny \| 8 x 8 \| xla, no flash kernel \|", answer.stdout)


@pytest.fixture
def toy_task(monkeypatch):
    """The comparison of quality on the toy language: both systems' batches, tokenizer and settings."""
    monkeypatch.setattr(translation, "load_corpus", lambda name: toy.corpus())
    return translation.prepare(tokens=9000, precision="float32", seed=3)


def test_quality_trains_until_the_tokens_are_seen(toy_task):
    counts = [int((target_out != 0).sum()) for _, _, target_out in itertools.islice(toy_task.batches(0), 20)]
    steps = toy_task.training.max_steps
    assert sum(counts[: steps - 1]) < 9000 <= sum(counts[:steps]) == toy_task.tokens


def test_quality_does_nothing_twice(tmp_path):
    file = tmp_path / "results.jsonl"
    rows = [{"system": "kformer", "limit": None, "search": search} for search in translation.SEARCHES]
    assert missing(file, rows) == rows
    file.write_text(json.dumps({**rows[0], "bleu": 30.6}) + "\n" + json.dumps({**rows[1], "limit": 8}) + "\n")
    assert missing(file, rows) == rows[1:]


def test_back_translation_halves_the_pairs_and_does_nothing_twice(tmp_path, monkeypatch, capsys):
    done = []

    def kformer(command, *arguments):
        done.append([command, *map(str, arguments)])
        if command == "train":
            summary = tmp_path / done[-1][-1]
            (tmp_path / summary.stem).mkdir()
            summary.write_text('{"exit_status": 0}')
        if command == "translate":
            pathlib.Path(done[-1][-1]).touch()
        return json.dumps({"bleu": 10.0 + len(done), "chrf": 30.0})

    for module in (commands, back_translation):
        monkeypatch.setattr(module, "kformer", kformer)
    options = ["--seeds", "1", "2", "--steps", "30", "--pairs", "7", "--folder", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["back_translation", *options])
    back_translation.main()
    corpus = load_corpus("bible-en-es")
    assert (tmp_path / "half.tsv").read_text().splitlines() == [
        "\t".join(corpus.train[place]) for place in (0, 2, 4, 6)
    ]
    assert (tmp_path / "monolingual.es").read_text().splitlines() == [corpus.train[place][1] for place in (1, 3, 5)]
    trained = [pathlib.Path(words[-1]).stem for words in done if words[0] == "train"]
    assert trained == [f"{name}-{seed}" for seed in (1, 2) for name in ("half", "reverse", "untagged", "tagged", "all")]
    [drawn] = [words for words in done if words[0] == "translate" and words[1].endswith("reverse-2")]
    assert {"--temperature", "--pairs", "--seed"} <= {*drawn}
    assert all(words[words.index("--seed") + 1] == words[-1][-6] for words in done if words[0] == "train")
    assert re.search(r"\| half \| 1\d\.\d\d ± \d\.\d\d \| 30\.00 ± 0\.00 \|", capsys.readouterr().out)
    done.clear()
    back_translation.main()
    assert done == []


def test_students_of_each_size_learn_with_and_without_the_teacher(tmp_path, monkeypatch, capsys):
    done = []

    def kformer(command, *arguments):
        done.append([command, *map(str, arguments)])
        if command == "train":
            pathlib.Path(done[-1][-1]).write_text('{"exit_status": 0}')
        if command == "export":
            pathlib.Path(done[-1][2]).mkdir(parents=True)
            (pathlib.Path(done[-1][2]) / "weights").write_bytes(bytes(2_000_000))
        return json.dumps({"bleu": 10.0 + len(done), "chrf": 30.0})

    for module in (commands, distillation):
        monkeypatch.setattr(module, "kformer", kformer)
    corpus = load_corpus("bible-en-es")
    taught = dataclasses.replace(corpus, train=[("one", "uno")])
    monkeypatch.setattr(distillation, "distilled_corpus", lambda teacher, corpus, folder: taught)
    options = ["--seeds", "1", "2", "--steps", "30", "--sizes", "tiny-shallow-decoder", "--folder", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["distillation", *options])
    distillation.main()
    assert (tmp_path / "translations.tsv").read_text() == "one\tuno\n"
    assert (tmp_path / "texts.tsv").read_text().splitlines()[0] == "\t".join(corpus.train[0])
    trained = [words for words in done if words[0] == "train"]
    assert [pathlib.Path(words[2]).stem for words in trained] == ["texts"] * 2 + ["translations"] * 4
    assert ["--word-level" in words for words in trained] == [False] * 4 + [True] * 2
    beams = [words[-1] for words in done if words[0] == "evaluate"]
    assert beams == ["4", "1"] + ["1"] * 6
    said = capsys.readouterr().out
    assert re.search(r"\| teacher, 4 beams \| 1 \| 11\.00 \| 30\.00 \| 2\.0 \|", said)
    assert re.search(r"\| tiny-shallow-decoder: both \| 2 \| \d\d\.\d\d ± \d\.\d\d \| 30\.00 ± 0\.00 \| 2\.0 \|", said)
    done.clear()
    distillation.main()
    assert done == []


PAGE = '<body><p id="par_0">a menu</p><div id="DisplayArea">{}</div><p id="bm_system">a foot</p></body>'


def test_paragraphs_of_manuals_are_paired_by_their_ids():
    english = PAGE.format(
        '<h1 id="hd_1"><a name="x"></a>Macro\n  Security</h1><p id="par_2">Choose <b>Tools</b>.</p>'
        '<p id="par_3">New</p><p id="par_4" class="code">Print "x"</p><p>no id</p><p id="par_5"> </p>'
    )
    portuguese = PAGE.format(
        '<p id="par_2">Escolha <b>Ferramentas</b>.</p><h1 id="hd_1">Segurança de macro</h1><p id="par_5">vazio</p>'
        '<p id="par_4" class="code">Print "x"</p><p>sem id</p>'
    )
    assert manuals.pairs_of_page(english, portuguese) == [
        ("Macro Security", "Segurança de macro"),
        ("Choose Tools.", "Escolha Ferramentas."),
    ]


def test_manuals_are_read_as_they_are_shown_on_linux():
    switch = (
        '<span class="switchinline"><span hidden="true" id="MAC1" class="MAC">Command</span>'
        '<span hidden="true" id="default1">Ctrl</span></span>'
    )
    assert manuals.texts(PAGE.format(f'<p id="par_1">Press {switch} +A.</p>')) == {"par_1": "Press Ctrl +A."}


def test_no_part_of_the_manuals_has_a_source_of_another():
    pairs = [(f"text {number % 997}", f"texto {number}") for number in range(3000)]
    parts = manuals.split(pairs)
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 997
    assert min(map(len, sources)) >= 20


@pytest.fixture
def of_three(tmp_path):
    """What a script of three directions is given."""
    return tmp_path / "data", tmp_path / "run", argparse.Namespace(size="tiny", seed=3, max_steps=70, limit=5)


def values_of(command, option):
    return [value for name, value in itertools.pairwise(command) if name == option]


def test_a_model_of_three_directions_has_the_updates_of_three_models(of_three):
    commands = {name: multilingual.training(system, *of_three) for name, system in multilingual.SYSTEMS.items()}
    updates = {name: int(*values_of(command, "--max-steps")) for name, command in commands.items()}
    assert updates == {"en>es": 70, "es>en": 70, "en>pt": 70, "all": 210, "all, short": 70}
    files = [f"{of_three[0]}/{name}.train.tsv" for name in ("bible", "bible", "manuals")]
    assert values_of(commands["all"], "--train") == files
    assert values_of(commands["all"], "--tag") == ["<2es>", "<2en>", "<2pt>"]
    assert values_of(commands["all"], "--columns") == ["source,target", "target,source", "source,target"]
    assert values_of(commands["es>en"], "--train") == files[1:2]
    assert values_of(commands["es>en"], "--columns") == ["target,source"]
    assert values_of(commands["es>en"], "--tag") == []


def test_all_models_of_a_direction_translate_the_same_test_set(of_three):
    for name, direction in multilingual.DIRECTIONS.items():
        alone, joined = (
            multilingual.evaluation(multilingual.SYSTEMS[system], name, *of_three) for system in (name, "all")
        )
        assert joined == [*alone[:-2], "--tag", direction.tag, *alone[-2:]]
        assert values_of(alone, "--test") == [f"{of_three[0]}/{direction.files}.test.tsv"]
        assert values_of(alone, "--columns") == [direction.columns]


def test_the_table_has_a_row_for_each_model():
    lines = [
        {"system": "all", "updates": 9000, "direction": "en>pt", "bleu": 21.04, "chrf": 45.55},
        {"system": "all", "updates": 9000, "direction": "en>es", "bleu": 12.0, "chrf": 38.0},
        {"system": "en>es", "updates": 3000, "direction": "en>es", "bleu": 11.5, "chrf": 37.5},
    ]
    assert multilingual.table(lines).splitlines()[2:] == [
        "| en>es | 3,000 | 11.5, 37.5 | - | - |",
        "| all | 9,000 | 12.0, 38.0 | - | 21.0, 45.5 |",
    ]


@pytest.mark.slow
def test_qualitys_peer_is_as_large_and_goes_on_where_it_was_cut_off(toy_task, tmp_path):
    torch = pytest.importorskip("torch")
    tiny = toy_task.transformer.replace(d_model=16, d_ff=32, num_heads=2, dropout_rate=0.2)

    def trained(steps, file):
        torch.manual_seed(1)
        task = toy_task._replace(transformer=tiny, training=toy_task.training.replace(max_steps=steps))
        model = translation.new_marian(tiny.to_dict()).train()
        translation.train_marian(task, model, tmp_path / file)
        return model

    whole = trained(5, "whole.pt")
    assert sum(w.numel() for w in whole.parameters() if w.requires_grad) == build_transformer(tiny).count_params()
    trained(2, "parts.pt")
    parts = trained(5, "parts.pt")
    for ours, expected in zip(parts.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_a_window_makes_steps_that_can_be_measured():
    arguments = argparse.Namespace(window=3, causal=True, d_model=8, heads=2, steps=1)
    assert all(attention_window.measure(kind, 16, arguments).seconds > 0 for kind in attention_window.KINDS)
    lengths = [512, 1024, 2048]
    assert attention_window.slope(lengths, [7.0 * length**2 for length in lengths]) == pytest.approx(2)


def test_caches_of_few_heads_are_small():
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 3, "source_vocab_size": 9, "target_vocab_size": 9}
    config = TransformerConfig(d_model=32, d_ff=8, num_heads=8, num_key_value_heads=2, **layers)
    # Keys and values of 5 positions, in 3 layers, of 2 heads, of 4 numbers, of 4 bytes.
    assert fewer_heads_and_layers.cache_bytes(config, 5) == (2 * 5 * 3 * 2 * 4 * 4,) * 2


@pytest.mark.slow
def test_the_peaks_of_every_precision_are_measured():
    """The script calls the products of an export, whose form has changed before without it."""
    peaks = hardware_limits.measure(1)
    assert min(peaks.float32, peaks.bfloat16, peaks.int8, peaks.bandwidth) > 1e8


def test_engines_are_compared_with_their_start_and_without_it():
    whole, one_line = {"a": 10.0, "b": 25.0}, {"a": 5.0, "b": 5.0}
    assert batch_engines.table(100, whole, one_line).splitlines()[2:] == [
        "| a | 10.0 | 10 | 1.00 | 5.0 | 20 | 1.00 |",
        "| b | 25.0 | 4 | 0.40 | 5.0 | 5 | 0.25 |",
    ]
    (busy,) = batch_engines.table(100, {"a": 10.0}, {"a": 11.0}).splitlines()[2:]
    assert busy == "| a | 10.0 | 10 | 1.00 | 11.0 | - | - |"


def test_engines_run_the_programs_of_the_page(tmp_path):
    found = batch_engines.commands(tmp_path, {engine: f"python-{engine}" for engine in batch_engines.ENGINES})
    for engine in batch_engines.ENGINES:
        python, program = found[batch_engines.ENGINES[engine]]
        assert python == f"python-{engine}"
        assert f"kformer.inference.{engine}" in (tmp_path / program).read_text()
