"""Trains small models with OpenNMT-tf, and notes their answers in `tests/importing/examples/opennmt-tf...`.

OpenNMT-tf needs an environment of its own, with Python 3.11:

    pip install OpenNMT-tf==2.32.0 tensorflow==2.13.1 "setuptools<81"  # REQUIREMENTS below
    python tests/importing/make_opennmt_tf.py ENVIRONMENT/bin

The first `python` is that of kformer, the other one is only called. It takes some minutes for each model; names of
folders behind ENVIRONMENT/bin choose some of them.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import sentencepiece
import tensorflow as tf
import yaml

from kformer.data import load_corpus

REQUIREMENTS = ("OpenNMT-tf==2.32.0", "tensorflow==2.13.1", "setuptools<81")
EXAMPLES = pathlib.Path(__file__).parent / "examples"
RELATIVE = """import opennmt

model = lambda: opennmt.models.Transformer(
    num_layers=2, num_units=64, num_heads=2, ffn_inner_dim=64, maximum_relative_position=8, position_encoder_class=None
)
"""
# The models, as options of onmt-main.
MODELS = {"opennmt-tf": "--model_type TransformerTiny", "opennmt-tf-relative": "--model relative.py"}
LINES = 200
SETTINGS = {
    "model_dir": "run",
    "data": {
        "train_features_file": "source.pieces",
        "train_labels_file": "target.pieces",
        "source_vocabulary": "vocabulary.txt",
        "target_vocabulary": "vocabulary.txt",
    },
    "infer": {"with_scores": True},
    "params": {"beam_width": 4, "maximum_decoding_length": 60},
    "train": {
        "max_step": 2500,
        "batch_size": 1024,
        "effective_batch_size": 1024,
        "save_checkpoints_steps": 500,
        "average_last_checkpoints": 2,
    },
}
TOKENIZATION = {"type": "SentencePieceTokenizer", "params": {"model": "pieces.model"}}


def main(programs: pathlib.Path, names: list[str]) -> None:
    for name in names or MODELS:
        make(programs, EXAMPLES / name, MODELS[name])


def make(programs: pathlib.Path, folder: pathlib.Path, model: str) -> None:
    """Trains one model, and makes its folder anew."""
    with tempfile.TemporaryDirectory() as here:
        place = pathlib.Path(here)
        lines = write_texts(place)
        (place / "relative.py").write_text(RELATIVE)
        (place / "train.yml").write_text(yaml.safe_dump(SETTINGS))
        vocabulary = "--from_vocab pieces.vocab --from_format sentencepiece --save_vocab vocabulary.txt"
        run(place, programs / "onmt-build-vocab", vocabulary)
        run(place, programs / "onmt-main", f"{model} --config train.yml --auto_config train")
        answers = {name: answer(place, programs, beams) for name, beams in (("greedy", 1), ("beam", 4))}
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "run").mkdir(parents=True)
        for name in ("vocabulary.txt", "pieces.model"):
            shutil.copy(place / name, folder)
        copy_checkpoint(place / "run" / "avg", folder / "run" / "avg")
        shutil.copy(place / "run" / "model_description.py", folder / "run")
        data = {**SETTINGS["data"], "source_tokenization": TOKENIZATION, "target_tokenization": TOKENIZATION}
        (folder / "train.yml").write_text(yaml.safe_dump({**SETTINGS, "data": data}))
        (folder / "expected.json").write_text(json.dumps({"lines": lines, **answers}, ensure_ascii=False) + "\n")


def copy_checkpoint(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a checkpoint without most of what belongs to the optimizer, which is two thirds of it."""
    target.mkdir()
    last = pathlib.Path(tf.train.latest_checkpoint(str(source)))
    reader = tf.train.load_checkpoint(str(last))
    names = [
        name for name in reader.get_variable_to_shape_map() if "OPTIMIZER_SLOT" not in name or "layer_norm" in name
    ]
    tensors = [reader.get_tensor(name) for name in names]
    tf.raw_ops.SaveV2(
        prefix=str(target / last.name), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )
    (target / "checkpoint").write_text(f'model_checkpoint_path: "{last.name}"\n')


def write_texts(place: pathlib.Path) -> list[str]:
    """The files of the training, cut into pieces; and the lines that are answered."""
    corpus = load_corpus("bible-en-es")
    pairs = [pair for pair in corpus.train if len(pair[0]) < 110][:6000]
    texts = iter([text for pair in pairs for text in pair])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts, model_prefix=str(place / "pieces"), vocab_size=500, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(place / "pieces.model"))
    lines = [source for source, _ in corpus.test if len(source) < 110][:LINES]
    sides = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs], "lines": lines}
    for name, side in sides.items():
        rows = (" ".join(processor.encode(text, out_type=str)) for text in side)
        (place / f"{name}.pieces").write_text("\n".join(rows) + "\n")
    return lines


def answer(place: pathlib.Path, programs: pathlib.Path, beams: int) -> dict[str, list]:
    """Translations and log probabilities of a search with so many beams.

    Where a translation was cut before a word, its last piece is a blank, which kformer does not write.
    """
    settings = {**SETTINGS, "params": {**SETTINGS["params"], "beam_width": beams}}
    (place / "infer.yml").write_text(yaml.safe_dump(settings))
    (averaged,) = (place / "run" / "avg").glob("*.index")
    files = "--features_file lines.pieces --predictions_file answers"
    checkpoint = f"--checkpoint_path {averaged.with_suffix('')}"
    run(place, programs / "onmt-main", f"--config infer.yml --auto_config {checkpoint} infer {files}")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(place / "pieces.model"))
    rows = [line.split(" ||| ") for line in (place / "answers").read_text().splitlines()]
    return {
        "texts": [processor.decode(row[1].split()).rstrip(" ") for row in rows],
        "scores": [float(row[0]) for row in rows],
    }


def run(place: pathlib.Path, program: pathlib.Path, arguments: str) -> None:
    subprocess.run([program, *arguments.split()], cwd=place, check=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
