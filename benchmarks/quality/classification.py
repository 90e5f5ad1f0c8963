"""How well does a classifier learn, beside one of keras-nlp's layers with equal sizes, batches, optimizer and steps?

    pip install -e .
    python -m benchmarks.quality.classification --steps 1500

The corpora are `bible-books` (six labels) and `bible-next` (two verses: does the second follow the first?). Both models
have the same vocabulary, layers, heads and features, dropout 0.3, and learned positions; keras-nlp's has no vectors for
the two texts of a pair. Both begin with random weights and read the same batches in the same order. The table has the
accuracy and the macro F1 on the test part after the last step, and the seconds of training, one after the other.
"""

import argparse
import time

import keras
import numpy as np
from keras_nlp.layers import TokenAndPositionEmbedding, TransformerEncoder

from kformer.config import TrainingConfig, TransformerConfig
from kformer.data import BatchPlan, load_corpus, make_dataset
from kformer.evaluation import label_scores
from kformer.models import build_model
from kformer.tasks import task_of
from kformer.training.compile import compile_model

SIZES = TransformerConfig(
    num_encoder_layers=2,
    num_decoder_layers=0,
    d_model=128,
    d_ff=512,
    num_heads=4,
    dropout_rate=0.3,
    positional_encoding="learned",
    max_length=256,
    embedding_tying="none",
    task="classify",
)
TRAINING = TrainingConfig(
    vocab_size=4000, max_length=256, warmup_steps=800, learning_rate_scale=1.2, precision="float32"
)


def keras_nlp_classifier(config: TransformerConfig) -> keras.Model:
    """As keras-nlp's guides build an encoder; the head is that of kformer's classifier."""
    source = keras.Input((None,), dtype="int32", name="source")
    embed = TokenAndPositionEmbedding(config.source_vocab_size, config.max_length, config.d_model)
    hidden = embed(source)
    hidden = keras.layers.Dropout(config.dropout_rate)(hidden)
    for _ in range(config.num_encoder_layers):
        encode = TransformerEncoder(config.d_ff, config.num_heads, config.dropout_rate)
        hidden = encode(hidden, padding_mask=keras.ops.not_equal(source, config.pad_id))
    pooled = keras.layers.Dense(config.d_model, activation="tanh")(hidden[:, :1])
    pooled = keras.layers.Dropout(config.dropout_rate)(pooled)
    return keras.Model({"source": source}, keras.layers.Dense(config.target_vocab_size)(pooled))


def kformer_classifier(config: TransformerConfig) -> keras.Model:
    return build_model(config)


SYSTEMS = {"kformer": kformer_classifier, "keras-nlp": keras_nlp_classifier}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--corpora", nargs="+", default=["bible-books", "bible-next"])
    arguments = parser.parse_args()
    print("| corpus | system | parameters | accuracy | macro F1 | seconds |", "| --- " * 6 + "|", sep="\n")
    for corpus in arguments.corpora:
        for system in SYSTEMS:
            print(row(corpus, system, arguments.steps), flush=True)


def row(corpus_name: str, system: str, steps: int) -> str:
    """One row of the table."""
    corpus, task = load_corpus(corpus_name), task_of("classify")
    tokenizers = task.train_tokenizers(corpus.train, TRAINING)
    config = SIZES.replace(source_vocab_size=tokenizers[0].vocab_size, target_vocab_size=tokenizers[1].vocab_size)
    plans = [
        BatchPlan(
            task.encode(pairs, tokenizers, TRAINING.max_length),
            TRAINING.tokens_per_batch,
            arrangement=task.arrangement(tokenizers, TRAINING),
        )
        for pairs in (corpus.train, corpus.test)
    ]
    keras.utils.set_random_seed(1)
    model = SYSTEMS[system](config)
    compile_model(model, config, TRAINING)
    began = time.perf_counter()
    model.fit(make_dataset(plans[0], shuffle_seed=1, repeat=True), steps_per_epoch=steps, shuffle=False, verbose=0)
    seconds = time.perf_counter() - began
    found, right = [], []
    for inputs, labels in make_dataset(plans[1], shuffle_seed=None, repeat=False):
        real = labels.numpy()[:, 0] > 0
        found += np.argmax(model(inputs, training=False)[:, 0, 4:], axis=-1)[real].tolist()
        right += (labels.numpy()[real, 0] - 4).tolist()
    scores = label_scores(list(map(str, found)), list(map(str, right)))
    cells = [corpus_name, system, f"{model.count_params():,}", f"{scores['accuracy']:.3f}", f"{scores['macro_f1']:.3f}"]
    return f"| {' | '.join(cells)} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
