"""How well does a language model learn, and how fast does it generate, beside GPT-2 of Hugging Face on PyTorch?

    pip install -e '.[benchmarks]'
    python -m benchmarks.quality.language_models --steps 1000

Both learn the English side of `bible-en-es`: the same vocabulary, layers, features, learned positions, norm first, GELU
and dropout, the same batches in the same order, Adam with the same warm-up schedule. The first table has the perplexity
of a token and the bits a character on the test part.

Then each continues 32 beginnings of five tokens (`--prompt-tokens`) by 50 tokens, greedy, forced to that length: alone
and as one batch. The speed does not depend on the training: `--steps 1` is enough for it. kformer runs its exports
through TensorFlow's C API. Systems take turns; the best time of the rounds counts.
"""

import argparse
import math
import pathlib
import tempfile
import time
from collections.abc import Callable

import keras
import numpy as np
import torch
import transformers

from kformer.config import DecodingConfig, TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, load_corpus, make_dataset
from kformer.export.saved_model import export_saved_model
from kformer.models import build_model
from kformer.runtime.c_api import SavedModel
from kformer.schedules import WarmupInverseSqrt
from kformer.tasks import LanguageModel, task_of
from kformer.tokenizers import Tokenizer
from kformer.training.compile import compile_model

SIZES = TransformerConfig(
    num_encoder_layers=0,
    num_decoder_layers=3,
    d_model=256,
    d_ff=1024,
    num_heads=4,
    dropout_rate=0.1,
    norm_first=True,
    activation="gelu",
    positional_encoding="learned",
    max_length=256,
    task="language-model",
)
TRAINING = TrainingConfig(
    vocab_size=4000,
    label_smoothing=0.0,
    warmup_steps=400,
    learning_rate_scale=0.5,
    precision="float32",
)
NEW_TOKENS = 50
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=5)
    arguments = parser.parse_args()
    corpus, task = load_corpus("bible-en-es"), task_of("language-model")
    tokenizers = task.train_tokenizers(task.pairs(corpus.train), TRAINING)
    config = SIZES.replace(source_vocab_size=tokenizers[0].vocab_size, target_vocab_size=tokenizers[0].vocab_size)
    train, test = (
        BatchPlan(
            task.encode(task.pairs(pairs), tokenizers, TRAINING.max_length),
            TRAINING.tokens_per_batch,
            arrangement=task.arrangement(tokenizers, TRAINING),
        )
        for pairs in (corpus.train, corpus.test)
    )
    characters = sum(len(text) for text, _ in corpus.test)
    print("| system | parameters | perplexity | bits a character | seconds of training |", "| --- " * 5 + "|", sep="\n")
    keras.utils.set_random_seed(1)
    ours = build_model(config)
    compile_model(ours, config, TRAINING)
    began = time.perf_counter()
    ours.fit(
        make_dataset(train, shuffle_seed=1, repeat=True), steps_per_epoch=arguments.steps, shuffle=False, verbose=0
    )
    _print_quality("kformer", ours.count_params(), _loss_of_keras(ours), test, characters, time.perf_counter() - began)
    torch.manual_seed(1)
    theirs = _new_gpt2(config)
    began = time.perf_counter()
    _train_gpt2(theirs, train, config, arguments.steps)
    seconds = time.perf_counter() - began
    _print_quality("GPT-2 (PyTorch)", theirs.num_parameters(), _loss_of_gpt2(theirs), test, characters, seconds)
    _compare_speed(ours, theirs, config, tokenizers[0], [text for text, _ in corpus.test], arguments)


def _new_gpt2(config: TransformerConfig) -> transformers.GPT2LMHeadModel:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config.target_vocab_size,
            n_positions=config.max_length,
            n_embd=config.d_model,
            n_layer=config.num_decoder_layers,
            n_head=config.num_heads,
            n_inner=config.d_ff,
            activation_function="gelu",
            resid_pdrop=config.dropout_rate,
            embd_pdrop=config.dropout_rate,
            attn_pdrop=0.0,
            bos_token_id=config.start_id,
            eos_token_id=config.end_id,
        )
    )


def _train_gpt2(model: transformers.GPT2LMHeadModel, plan: BatchPlan, config: TransformerConfig, steps: int) -> None:
    model.train()
    rate = WarmupInverseSqrt(config.d_model, TRAINING.warmup_steps, TRAINING.learning_rate_scale)
    optimizer = torch.optim.Adam(model.parameters(), 1.0, betas=(TRAINING.beta_1, TRAINING.beta_2), eps=1e-9)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=config.pad_id)
    for step, (inputs, labels) in zip(range(steps), plan.endless(shuffle_seed=1), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = float(rate(step))
        logits = model(torch.from_numpy(inputs["target_in"].astype("int64"))).logits
        loss = loss_of(logits.reshape(-1, logits.shape[-1]), torch.from_numpy(labels.astype("int64")).reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _loss_of_keras(model: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    return lambda target_in: keras.ops.convert_to_numpy(model({"target_in": target_in}, training=False))


def _loss_of_gpt2(model: transformers.GPT2LMHeadModel) -> Callable[[np.ndarray], np.ndarray]:
    model.eval()

    @torch.no_grad()
    def logits(target_in: np.ndarray) -> np.ndarray:
        return model(torch.from_numpy(target_in.astype("int64"))).logits.numpy()

    return logits


def _print_quality(
    name: str,
    parameters: int,
    logits_of: Callable[[np.ndarray], np.ndarray],
    plan: BatchPlan,
    characters: int,
    seconds: float,
) -> None:
    nats, tokens = 0.0, 0
    for inputs, labels in plan.once(shuffle_seed=None):
        logits = logits_of(inputs["target_in"]).astype("float64")
        logits -= logits.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        real = labels != 0
        nats -= np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0][real].sum()
        tokens += int(real.sum())
    bits = nats / math.log(2) / characters
    print(f"| {name} | {parameters:,} | {math.exp(nats / tokens):.2f} | {bits:.3f} | {seconds:.0f} |", flush=True)


def _compare_speed(
    ours: keras.Model,
    theirs: transformers.GPT2LMHeadModel,
    config: TransformerConfig,
    tokenizer: Tokenizer,
    texts: list[str],
    arguments: argparse.Namespace,
) -> None:
    length = arguments.prompt_tokens
    ids = [row[:length] for row in tokenizer.tokenize(texts).to_list() if len(row) >= length][:BATCH]
    prompts = [text for text in tokenizer.detokenize(np.array(ids, "int32")).numpy()]
    decoding = DecodingConfig(beam_size=1, max_extra_length=NEW_TOKENS, min_length=length + NEW_TOKENS)
    predictor = LanguageModel(ours, config, tokenizer, decoding, samples=[text.decode() for text in prompts])
    with tempfile.TemporaryDirectory() as folder:
        systems: dict[str, Callable[[int], object]] = {}
        for precision in ("float32", "int8"):
            model = SavedModel(export_saved_model(predictor, pathlib.Path(folder, precision), precision=precision))
            systems[f"kformer {precision}"] = lambda size, model=model: model(prompts[:size])
        starts = torch.tensor([[config.start_id, *row] for row in ids])
        for dtype in (torch.float32, torch.bfloat16):
            copy = _new_gpt2(config)
            copy.load_state_dict(theirs.state_dict())
            generate = _generator(copy.eval().to(dtype), starts, config)
            systems[f"GPT-2 (PyTorch) {str(dtype).removeprefix('torch.')}"] = generate
        print("", "| system | tokens a second, alone | batch of 32 |", "| --- " * 3 + "|", sep="\n")
        best = {(name, size): math.inf for name in systems for size in (1, BATCH)}
        for name, size in list(best) * (arguments.rounds + 1):
            began = time.perf_counter()
            systems[name](size)
            best[name, size] = min(best[name, size], time.perf_counter() - began)
        for name in systems:
            rates = [f"{size * NEW_TOKENS / best[name, size]:,.0f}" for size in (1, BATCH)]
            print(f"| {name} | {' | '.join(rates)} |", flush=True)


def _generator(
    model: transformers.GPT2LMHeadModel, starts: torch.Tensor, config: TransformerConfig
) -> Callable[[int], object]:
    def generate(size: int) -> object:
        return model.generate(
            starts[:size],
            attention_mask=torch.ones_like(starts[:size]),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=config.pad_id,
        )

    return generate


if __name__ == "__main__":
    main()
