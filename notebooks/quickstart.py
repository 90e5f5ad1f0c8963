# ---
# jupyter:
#   accelerator: GPU
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: use, train, export
#
# kformer is the Transformer of *Attention Is All You Need* in Keras 3. This notebook translates with the models that
# come with it, trains a small one, exports it, and asks the export.
#
# It takes about 4 minutes on a CPU, of which 3 are the budget of training. On a Colab GPU, where it was not measured, it
# should take as long. Nothing is downloaded but packages.

# %% tags=["install"]
# Installs kformer from the clone in which this notebook lies. In Colab it takes less than a minute: TensorFlow is there.
# %pip install --quiet "..[plots]"

# %%
import os

MINUTES = float(os.environ.get("KFORMER_NOTEBOOK_MINUTES", "3"))  # of training
OUTPUT = os.environ.get("KFORMER_NOTEBOOK_OUTPUT", "quickstart")

# %% [markdown]
# ## 1. A trained model, at once
#
# `bible-en-es` translates English to Spanish, in the language of the Bible.

# %%
import kformer

translator = kformer.Translator.from_preset("bible-en-es")
translator(["You are witnesses of these things.", "They found the stone rolled away from the tomb."])

# %% [markdown]
# Which words of the text does the model look at while it writes a word of the translation? Every row of the picture is
# a token of the translation; bright squares are where the last layer's cross-attention looks.

# %%
from kformer import visualization

attention = translator.attention("They found the stone rolled away from the tomb.")
visualization.plot_attention(attention.cross)

# %% [markdown]
# `piedra` looks at `stone`, and `sepulcro` at `tom`, the first part of `tomb`. Nobody told the model which words belong
# together. A token for which nothing is left to find, such as the end of a word, looks at the full stop and the end of
# the text.
#
# ## 2. Train a model of your own
#
# `cmudict` has 133,667 pronunciations of English words. A source is a word, letter by letter; its target is its sounds.

# %%
from kformer.data import load_corpus

corpus = load_corpus("cmudict")
print(f"{len(corpus.train):,} pairs to train on, {len(corpus.valid):,} to validate, {len(corpus.test):,} to test")
corpus.train[0]

# %%
training = kformer.TrainingConfig.of_size("tiny", max_minutes=MINUTES, tokenizer="symbols")
transformer = kformer.TransformerConfig.of_size("tiny")
report = kformer.train(corpus, f"{OUTPUT}/run", transformer, training, resume="auto")  # "auto": or go on with it
print(report.reason)

# %%
visualization.plot_runs(f"{OUTPUT}/run", ["loss", "accuracy"])

# %%
mine = kformer.Translator.from_run(f"{OUTPUT}/run")
for word in ("hello", "transformer", "attention"):
    print(f"{word:12} {mine(' '.join(word))}")

# %% [markdown]
# ## 3. Export it
#
# An export is one SavedModel: strings in, strings out. It needs TensorFlow and tensorflow-text, but not kformer.

# %%
import tensorflow as tf

path = kformer.export_saved_model(mine, f"{OUTPUT}/exported")
loaded = tf.saved_model.load(str(path))
loaded.signatures["serving_default"](text=tf.constant([" ".join("hello"), " ".join("world")]))

# %% [markdown]
# The other notebooks go on from here: `attention_from_scratch` builds the model formula by formula,
# `train_a_translator` trains on real sentences, `decoding` shows how a translation is searched for, and
# `export_and_serve` puts an export behind a server.
