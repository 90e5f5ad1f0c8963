"""Do SavedModels of imported models answer as the toolkits did that the models come from?

    python -m benchmarks.bridges.imported_exports [--models marian gpt2] [--precisions float32 int8]

The models are the small ones with random weights in `tests/importing/examples`, beside which lies what transformers
answered to 200 lines. Each is imported and exported, and a process with TensorFlow and the libraries of
tensorflow-text alone, without kformer, answers the same lines. The table counts the answers that are the same strings;
"refused" means that the export itself finds the scores of its samples rounded too much.

Random weights are a hard test of int8: the scores of their tokens lie closer together than those of a trained model.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

import kformer
from kformer.cli.startup import start_tensorflow
from kformer.importing.languages import Languages
from kformer.runs.folder import RunFolder
from kformer.tokenizers import Tokenizer, load_tokenizers

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "importing" / "examples"
TRANSLATORS = ("marian", "marian_separate", "m2m100", "nllb", "mbart", "bart", "t5", "t5_gated")
LANGUAGE_MODELS = ("gpt2", "llama")
MODELS = (*TRANSLATORS, *LANGUAGE_MODELS, "bert_classifier", "bert_tagger")
LANGUAGES = {"nllb": Languages("eng_Latn", "spa_Latn")}  # where the files do not say them
NEW_TOKENS = 20  # that a language model of the examples wrote
# Loads an export, and answers 20 texts at a time. TensorFlow needs the operations of tensorflow-text, not its Python.
ANSWER = """
import glob, json, os, sys, sysconfig
import tensorflow as tf
for library in glob.glob(os.path.join(sysconfig.get_path("platlib"), "tensorflow_text", "**", "*.so"), recursive=True):
    tf.load_op_library(library)
path, output = sys.argv[1:]
texts, answers = json.load(sys.stdin), []
model = tf.saved_model.load(path).signatures["serving_default"]
for start in range(0, len(texts), 20):
    found = model(text=tf.constant(texts[start : start + 20]))[output].numpy()
    answers += [answer.decode() for answer in found]
assert not any(name.split(".")[0] in ("kformer", "tensorflow_text") for name in sys.modules)
print(json.dumps(answers))
"""


class Case(NamedTuple):
    """A search of a model and its answers.

    Attributes:
        search: What the table says.
        predictor: The model with this search.
        output: The name of the answers in the export.
        texts: The lines.
        expected: The answer of transformers to each.
    """

    search: str
    predictor: Any
    output: str
    texts: list[str]
    expected: list[str]


def cases(name: str, place: pathlib.Path) -> Iterator[Case]:
    """Imports an example; its searches.

    Args:
        name: Of the example.
        place: Where the run folder is made.
    """
    run = kformer.import_model(FOLDER / name, place / name, languages=LANGUAGES.get(name))
    expected = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))
    decoding = run.decoding_config()
    if name in TRANSLATORS:
        for search, options in (("greedy", decoding.replace(beam_size=1)), ("beam", decoding)):
            translator = kformer.Translator.from_run(run.path, options)
            yield Case(search, translator, "translation", expected["lines"], expected[search])
    elif name in LANGUAGE_MODELS:
        tokenizer, _ = load_tokenizers(run.tokenizer_folder)
        for search, size in (("greedy", 1), ("beam", 4)):
            options = decoding.replace(beam_size=size, max_extra_length=NEW_TOKENS)
            model = kformer.LanguageModel.from_run(run.path, options)
            texts = continued(tokenizer, expected["prompts"], expected[search])
            yield Case(search, model, "text", expected["prompts"], texts)
    else:
        yield _labelled(run, expected)


def _labelled(run: RunFolder, expected: dict[str, Any]) -> Case:
    if "labels" in expected:
        labels = [label.replace(" ", "_") for label in expected["labels"]]  # labels of kformer have no blanks
        return Case("", kformer.Classifier.from_run(run.path), "label", expected["lines"], labels)
    return Case("", kformer.Tagger.from_run(run.path), "tags", expected["texts"], expected["tags"])


def continued(tokenizer: Tokenizer, prompts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[str]:
    """Prompts with what a model wrote: ids, as texts."""
    given = tokenizer.tokenize(list(prompts))
    whole = tokenizer.detokenize(tf.concat([given, tf.ragged.constant(ids, tf.int32)], axis=1))
    begun = [len(text) for text in tokenizer.detokenize(given).numpy()]
    rests = (text[start:].decode() for text, start in zip(whole.numpy(), begun, strict=True))
    return [prompt + rest for prompt, rest in zip(prompts, rests, strict=True)]


def answers_without_kformer(path: pathlib.Path, output: str, texts: Sequence[str]) -> list[str]:
    """The answers of an export in a process that knows nothing of kformer."""
    command = [sys.executable, "-c", ANSWER, str(path), output]
    answer = subprocess.run(command, input=json.dumps(texts), stdout=subprocess.PIPE, text=True, check=True, cwd=path)
    return json.loads(answer.stdout.splitlines()[-1])


def agreement(case: Case, target: pathlib.Path, precision: str) -> str:
    """How many answers of an export are those of transformers, or that the export refuses so much rounding."""
    try:
        path = kformer.export_saved_model(case.predictor, target, precision=precision)
    except ValueError as error:
        if precision == "float32":
            raise
        print(error, file=sys.stderr)
        return "refused"
    found = answers_without_kformer(path, case.output, case.texts)
    return f"{sum(one == other for one, other in zip(found, case.expected, strict=True))} of {len(found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    arguments = parser.parse_args()
    print(f"| model | search | {' | '.join(arguments.precisions)} |\n|{' --- |' * (2 + len(arguments.precisions))}")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            for case in cases(name, pathlib.Path(folder)):
                place = pathlib.Path(folder, f"{name}-{case.search}")
                counts = [agreement(case, place / precision, precision) for precision in arguments.precisions]
                print(f"| `{name}` | {case.search} | {' | '.join(counts)} |", flush=True)


if __name__ == "__main__":
    start_tensorflow()
    main()
