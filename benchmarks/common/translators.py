"""Translators behind one interface, each in a separate process.

    python -m benchmarks.common.translators SYSTEM THREADS

The process reads one JSON request a line and answers with one. A request names the prepared folder of a model size
(see `decoding/speed.py`), the search and the texts; the answer has the translations and the seconds they took, from
strings to strings, tokenization included. The translation is repeated for the time of a turn, or done once if the
request says `once`; the fastest time counts. If the model of a request is not loaded yet, it is loaded first.
"""

import importlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

Translate = Callable[[list[str]], list[str]]


def saved_model(request: dict[str, Any], threads: int) -> Translate:
    """The exported SavedModel, without kformer."""
    import tensorflow as tf

    if not tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    loaded = tf.saved_model.load(request["saved_model"])
    signature = loaded.signatures["serving_default"]

    def translate(texts: list[str]) -> list[str]:
        found = signature(text=tf.constant(texts))["translation"].numpy()
        return [translation.decode() for translation in found]

    translate.loaded = loaded
    return translate


def ctranslate2(request: dict[str, Any], threads: int) -> Translate:
    """CTranslate2 with the sentencepiece library around it."""
    import ctranslate2
    import sentencepiece

    folder = pathlib.Path(request["folder"])
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.spm"))
    translator = ctranslate2.Translator(
        str(folder / f"ctranslate2-{request['precision']}"),
        "cpu",
        compute_type=request["precision"],
        inter_threads=1,
        intra_threads=threads,
    )

    def translate(texts: list[str]) -> list[str]:
        results = translator.translate_batch(
            pieces.encode(texts, out_type=str),
            beam_size=request["beam_size"],
            length_penalty=0.6,
            min_decoding_length=request["length"],
            max_decoding_length=request["length"],
            max_batch_size=0,
        )
        return pieces.decode([result.hypotheses[0] for result in results])

    return translate


def marian(request: dict[str, Any], threads: int) -> Translate:
    """Hugging Face Marian on PyTorch with the sentencepiece library around it."""
    import numpy as np
    import sentencepiece
    import torch
    from transformers.utils import logging

    from benchmarks.common.peers import marian_model

    logging.set_verbosity_error()
    torch.set_num_threads(threads)
    folder = pathlib.Path(request["folder"])
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.spm"))
    config = json.loads((folder / "transformer.json").read_text())
    model = marian_model(dict(np.load(folder / "marian.npz")), config).to(getattr(torch, request["precision"]))

    def translate(texts: list[str]) -> list[str]:
        ids = [[*row, pieces.eos_id()] for row in pieces.encode(texts)]
        longest = max(map(len, ids))
        source = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
        with torch.inference_mode():
            found = model.generate(
                source,
                attention_mask=(source != 0).long(),
                num_beams=request["beam_size"],
                length_penalty=0.6,
                min_new_tokens=request["length"],
                max_new_tokens=request["length"],
                do_sample=False,
            )
        return pieces.decode([[token for token in row if token > 3] for row in found.tolist()])

    return translate


def peak_bytes() -> int:
    """The most memory that this process has held. `getrusage` would count its parent's memory, too."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# What is imported before a model is loaded.
LIBRARIES = {
    "kformer": ("tensorflow", "tensorflow_text"),
    "ctranslate2": ("ctranslate2", "sentencepiece"),
    "marian": ("torch", "transformers.models.marian.modeling_marian", "sentencepiece"),
}
LOADERS = {"kformer": saved_model, "ctranslate2": ctranslate2, "marian": marian}
# A model is loaded again when one of these fields of a request changes.
MODEL_FIELDS = ("folder", "saved_model", "precision", "beam_size", "length")


TURN_SECONDS = 1.0  # A turn repeats a translation for this time; the fastest counts.


def serve(system: str, threads: int) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for name in LIBRARIES[system]:
        importlib.import_module(name)
    library_bytes = peak_bytes()
    key, translate = None, None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"library_bytes": library_bytes}
        wanted = tuple(request.get(field) for field in MODEL_FIELDS)
        if wanted != key:
            translate = None  # frees the old model's memory before the new model is loaded
            key, translate = wanted, LOADERS[system](request, threads)
        turn_seconds = 0 if request.get("once") else TURN_SECONDS
        times: list[float] = []
        # The first runs after a pause are slower: caches are cold and threads sleep.
        while not times or sum(times) < turn_seconds:
            began = time.perf_counter()
            answer["translations"] = translate(request["texts"])
            times.append(time.perf_counter() - began)
        answer["seconds"] = min(times)
        answer["peak_bytes"] = peak_bytes()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
