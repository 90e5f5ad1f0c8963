"""Translators of whole files, for `decoding/whole_files.py`, each in a separate process.

    python -m benchmarks.common.file_translators PROGRAM THREADS

The process reads one JSON request a line and answers with one. A request names the prepared folder, the search and how
many sources are translated as one file. If it has `alone`, that number of sources is translated one at a time instead.
"""

import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common.translators import peak_bytes

TranslateFile = Callable[[list[str]], list[str]]


def kformer(request: dict[str, Any], threads: int) -> TranslateFile:
    """An export, as `kformer translate` runs it."""
    from kformer.inference import Model
    from kformer.text.batches import answer_all

    name = f"{request['precision']}-{request['variant']}-{request['beam_size']}"
    model = Model(
        pathlib.Path(request["folder"], name), threads_per_operation=max(1, threads // request["workers"])
    ).load()  # not within the time that is measured
    return lambda texts: [found[0].text for found in answer_all(model, [text.encode() for text in texts])]


def ctranslate2(request: dict[str, Any], threads: int) -> TranslateFile:
    """CTranslate2 with the sentencepiece library around it, in batches of 32."""
    import ctranslate2
    import sentencepiece

    folder = pathlib.Path(request["folder"])
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.spm"))
    translator = ctranslate2.Translator(
        str(folder / f"ctranslate2-{request['precision']}"),
        "cpu",
        compute_type=request["precision"],
        inter_threads=request["workers"],
        intra_threads=threads // request["workers"],
    )

    def translate(texts: list[str]) -> list[str]:
        search = {"beam_size": request["beam_size"], "length_penalty": 0.6, "max_decoding_length": 300}
        results = translator.translate_batch(pieces.encode(texts, out_type=str), max_batch_size=32, **search)
        return pieces.decode([result.hypotheses[0] for result in results])

    return translate


def marian(request: dict[str, Any], threads: int) -> TranslateFile:
    """Hugging Face Marian on PyTorch, in batches of 32 of like length."""
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
        order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
        translations = [""] * len(ids)
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            longest = max(len(ids[index]) for index in chosen)
            source = torch.tensor([ids[index] + [0] * (longest - len(ids[index])) for index in chosen])
            with torch.inference_mode():
                found = model.generate(
                    source,
                    attention_mask=(source != 0).long(),
                    num_beams=request["beam_size"],
                    length_penalty=0.6,
                    max_new_tokens=longest + 50,
                    do_sample=False,
                )
            texts_found = pieces.decode([[token for token in row if token > 3] for row in found.tolist()])
            for index, text in zip(chosen, texts_found, strict=True):
                translations[index] = text
        return translations

    return translate


LOADERS = {"kformer": kformer, "ctranslate2": ctranslate2, "marian": marian}


def serve(program: str, threads: int) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    translate = None
    for line in sys.stdin:
        request = json.loads(line)
        translate = translate or LOADERS[program](request, threads)
        lines = pathlib.Path(request["folder"], "sources").read_text(encoding="utf-8").splitlines()
        answer: dict[str, Any] = {}
        if alone := request.get("alone"):
            answer["latencies"] = [_seconds(translate, [text]) for text in lines[:alone]]
        else:
            cpu, began = time.process_time(), time.perf_counter()
            answer["translations"] = translate(lines[: request["sources"]])
            answer["seconds"], answer["cpu_seconds"] = time.perf_counter() - began, time.process_time() - cpu
        answer["peak_bytes"] = peak_bytes()
        print(json.dumps(answer), flush=True)


def _seconds(translate: TranslateFile, texts: list[str]) -> float:
    began = time.perf_counter()
    translate(texts)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
