"""How well does kformer learn, beside a PyTorch Marian of the same size? BLEU and chrF after as many target tokens.

    pip install -e '.[benchmarks]'
    python -m benchmarks.quality.translation --system kformer
    python -m benchmarks.quality.translation --system marian

The size `small` (d_model 256, 3 + 3 layers) on `bible-en-es`, one joint vocabulary of 4,000 subwords. Both see the
same batches in the same order, 11.1 million target tokens (about an hour on two cores), and take the same steps: Adam,
the paper's schedule, label smoothing and dropout as in that size, no average of weights. What differs is the program:
its initial weights, its random numbers, its arithmetic. The weights after the last step translate the test part, in
float32, greedily and by beams of 4.

A line of JSON for each search is printed and appended to `results.jsonl` in the folder. What is there already is not
done again, and a training that was cut off goes on from its last checkpoint.
"""

import argparse
import json
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console

from benchmarks.common.peers import new_marian
from benchmarks.common.results import missing
from benchmarks.common.trainers import Batch, marian_update
from kformer.cli.startup import start_tensorflow
from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, Corpus, encode_pairs, load_corpus, train_tokenizers
from kformer.evaluation.evaluate import score
from kformer.files import writing
from kformer.inference import Model
from kformer.process.hardware import resolve_precision
from kformer.runs.folder import RunFolder
from kformer.schedules import WarmupInverseSqrt
from kformer.text.batches import AnswerBatch, Hypothesis
from kformer.tokenizers import Tokenizer
from kformer.training.plan import plan_batches
from kformer.training.train import train

SEARCHES = {"greedy": DecodingConfig(beam_size=1), "beam 4": DecodingConfig(beam_size=4)}
CHECKPOINT_SECONDS = 120


class Task(NamedTuple):
    """What both systems are given."""

    corpus: Corpus
    tokenizer: Tokenizer  # of both languages
    transformer: TransformerConfig
    training: TrainingConfig  # max_steps: as many as it takes to see the tokens
    plan: BatchPlan
    tokens: int  # of the target, without padding, in these steps

    def batches(self, first: int) -> Iterator[Batch]:
        """(source, target_in, target_out) from batch `first` on."""
        for inputs, target_out in self.plan.endless(self.training.seed, first):
            yield inputs["source"], inputs["target_in"], target_out


def prepare(tokens: int, precision: str, seed: int) -> Task:
    """Tokenizer, batches, and the number of steps in which `tokens` target tokens are seen."""
    corpus = load_corpus("bible-en-es")
    training = TrainingConfig.of_size("small", precision=resolve_precision(precision), seed=seed, ema_decay=0.0)
    source, target = train_tokenizers(corpus.train, training)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": source.vocab_size}
    transformer = TransformerConfig.of_size("small", **sizes)
    encoded = encode_pairs(corpus.train, source, target, training.max_length)
    plan = plan_batches(encoded, training)
    steps, seen = 0, 0
    for _, target_out in plan.endless(seed):
        steps, seen = steps + 1, seen + int(np.sum(target_out != encoded.target_pad_id))
        if seen >= tokens:
            break
    # One validation, at the end: the weights of the last step are used, as for the peer.
    training = training.replace(max_steps=steps, validation_steps=steps, keep_weights=0)
    return Task(corpus, source, transformer, training, plan, seen)


def kformer(task: Task, folder: pathlib.Path) -> dict[str, AnswerBatch]:
    """`kformer.training.train.train`, and the run folder's own translator."""
    run = RunFolder(folder / "run")
    console = rich.console.Console(stderr=True, soft_wrap=True, highlight=False)
    train(task.corpus, run.path, task.transformer, task.training, resume=run.exists(), console=console)
    return {name: Model(run.path, decoding) for name, decoding in SEARCHES.items()}


def marian(task: Task, folder: pathlib.Path) -> dict[str, AnswerBatch]:
    """Hugging Face Marian on PyTorch, trained step by step, and its `generate`."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(task.training.seed)
    model = new_marian(task.transformer.to_dict()).train()
    train_marian(task, model, folder / "marian.pt")
    model.eval()
    return {name: _marian_translator(model, task, decoding) for name, decoding in SEARCHES.items()}


def train_marian(task: Task, model: Any, file: pathlib.Path) -> None:
    """Trains on the task's batches, from the last checkpoint on if there is one."""
    import torch

    training = task.training
    optimizer = torch.optim.Adam(
        model.parameters(), 1.0, betas=(training.beta_1, training.beta_2), eps=training.adam_epsilon
    )
    rate = WarmupInverseSqrt(task.transformer.d_model, training.warmup_steps, training.learning_rate_scale)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(rate(step)))
    update = marian_update(model, optimizer, task.transformer.pad_id, training.precision, training.label_smoothing)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    first = 0
    if file.is_file():
        saved = torch.load(file, weights_only=True)
        first = saved.pop("step")
        torch.set_rng_state(saved.pop("random"))
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    console, written = rich.console.Console(stderr=True, soft_wrap=True, highlight=False), time.monotonic()
    for step, batch in zip(range(first + 1, training.max_steps + 1), task.batches(first), strict=False):
        loss = update(batch)
        schedule.step()
        if step == training.max_steps or time.monotonic() - written > CHECKPOINT_SECONDS:
            console.print(f"step {step:,} of {training.max_steps:,}  loss {loss:.3f}")
            with writing.replacing(file) as partial:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "step": step, "random": torch.get_rng_state()}, partial)
            written = time.monotonic()


def _marian_translator(model: Any, task: Task, decoding: DecodingConfig) -> AnswerBatch:
    """The task's tokenizer around `generate`, with kformer's limits on a translation."""
    import tensorflow as tf
    import torch

    pad, end = task.transformer.pad_id, task.transformer.end_id
    search = {"num_beams": decoding.beam_size, "do_sample": False}
    if decoding.beam_size > 1:
        # Divides by length**0.6, where Wu et al. (2016) divide by ((5 + length) / 6)**0.6.
        search["length_penalty"] = decoding.length_penalty

    def translate(texts: Sequence[bytes]) -> list[list[Hypothesis]]:
        ids = [[*row, end] for row in task.tokenizer.tokenize(tf.constant(list(texts))).to_list()]
        longest = max(map(len, ids))
        source = torch.tensor([row + [pad] * (longest - len(row)) for row in ids])
        with torch.inference_mode():
            found = model.generate(
                source,
                attention_mask=(source != pad).long(),
                max_new_tokens=longest + decoding.max_extra_length,
                suppress_tokens=[pad, task.transformer.start_id],
                **search,
            )
        translations = task.tokenizer.detokenize(tf.constant(found.numpy(), tf.int32)).numpy()
        return [[Hypothesis(text.decode("utf-8"), 0.0)] for text in translations]

    return translate


SYSTEMS = {"kformer": kformer, "marian": marian}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", required=True, choices=list(SYSTEMS))
    parser.add_argument("--tokens", type=int, default=11_100_000, help="target tokens to train on")
    parser.add_argument("--precision", default="auto", help="of training: auto, float32 or mixed_bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="only the first sentences of the test part")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("runs/quality"))
    arguments = parser.parse_args()

    task = prepare(arguments.tokens, arguments.precision, arguments.seed)
    made = {"system": arguments.system, "tokens": task.tokens, "steps": task.training.max_steps}
    made |= {"precision": task.training.precision, "seed": arguments.seed, "limit": arguments.limit}
    results = arguments.folder / "results.jsonl"
    rows = missing(results, [{**made, "search": search} for search in SEARCHES])
    if not rows:
        print(f"{results} has all of it: {json.dumps(made)}")
        return
    folder = arguments.folder / f"{arguments.system}-{task.training.precision}-{task.tokens}-seed-{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    translators = SYSTEMS[arguments.system](task, folder)
    for row in rows:
        scores = score(translators[row["search"]], task.corpus.test, limit=arguments.limit)
        line = json.dumps({**row, **scores, "date": time.strftime("%Y-%m-%d")})
        print(line, flush=True)
        with results.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    start_tensorflow()
    main()
