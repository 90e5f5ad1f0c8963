# ---
# jupyter:
#   accelerator: GPU
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train a translator
#
# From pairs of sentences to a translator: a corpus, training with TensorBoard, scores, the mean of several weights,
# fine-tuning on other text, and going on after a lost runtime.
#
# It takes about 25 minutes on a CPU and 18 on a Colab GPU, which is mostly the budget of training below. In Colab choose
# *Runtime > Change runtime type > GPU* first.

# %% tags=["install"]
# In Colab this installs kformer in less than a minute. From a clone, in its folder `notebooks/`, it does the same.
# %pip install --quiet "..[plots]"

# %%
import os

MINUTES = float(os.environ.get("KFORMER_NOTEBOOK_MINUTES", "15"))  # of training
OUTPUT = os.environ.get("KFORMER_NOTEBOOK_OUTPUT", "train-a-translator")

# %% [markdown]
# To keep a run when Colab takes the machine away, mount your Drive and train there:
#
# ```python
# from google.colab import drive
# drive.mount("/content/drive")
# OUTPUT = "/content/drive/MyDrive/kformer"
# ```
#
# ## 1. The corpus
#
# `bible-en-es` comes with kformer. Your own files are read by `read_tsv` (source TAB target) or `read_parallel` (two files
# of as many lines), and `load_corpus("tfds:NAME")` takes any translation data set of TensorFlow Datasets.

# %%
from kformer.data import corpus_from_pairs, load_corpus, read_tsv

corpus = load_corpus("bible-en-es")
print(f"{len(corpus.train):,} pairs to train on, {len(corpus.valid):,} to validate, {len(corpus.test):,} to test")
corpus.train[0]

# %% [markdown]
# A file of your own, for example:

# %%
import pathlib

pathlib.Path(OUTPUT).mkdir(parents=True, exist_ok=True)
own_file = pathlib.Path(OUTPUT) / "own.tsv"
own_file.write_text("".join(f"{source}\t{target}\n" for source, target in corpus.valid[:200]), encoding="utf-8")
own = corpus_from_pairs("own", read_tsv(own_file))
print(f"{len(own.train)} pairs to train on, {len(own.valid)} to validate")

# %% [markdown]
# ## 2. Training
#
# The size `small` has 3 + 3 layers of 256 units. Every setting is a field of one of two configurations, and each has the
# paper's value unless the size says otherwise. Batches hold a number of tokens, not of sentences.

# %%
import kformer

transformer = kformer.TransformerConfig.of_size("small")
training = kformer.TrainingConfig.of_size("small", max_minutes=MINUTES, patience=5)
report = kformer.train(
    corpus,
    f"{OUTPUT}/run",
    transformer,
    training,
    samples=[corpus.valid[250][0]],  # a held-out verse to watch
)
print(report.reason)

# %% [markdown]
# The run folder holds the configurations, the tokenizer, the best weights, the last checkpoint, and logs: `log.csv`, and
# files for TensorBoard. The curves as a figure:

# %%
from kformer import visualization

visualization.plot_runs(f"{OUTPUT}/run")

# %% [markdown]
# And in TensorBoard, which also has translations of the samples and images of their attention:

# %%
# %load_ext tensorboard
# %tensorboard --logdir {OUTPUT}/run/tensorboard

# %% [markdown]
# ## 3. After a lost runtime
#
# If the machine goes away, the run goes on from its last checkpoint with `resume=True`. On a CPU it ends bit for bit as if
# nothing had happened. Here the budget grows a little, so that there is something left to do.

# %%
longer = training.replace(max_minutes=MINUTES * 1.2)
report = kformer.train(corpus, f"{OUTPUT}/run", transformer, longer, resume=True)
print(report.reason)

# %% [markdown]
# ## 4. Translating, and scores
#
# BLEU and chrF are computed by sacreBLEU. Its signature says how, so that the numbers can be compared.

# %%
translator = kformer.Translator.from_run(f"{OUTPUT}/run")
translator(["In the beginning God created the heavens and the earth.", "You are witnesses of these things."])

# %%
from kformer.evaluation.metrics import bleu_and_chrf

test = corpus.test[: int(os.environ.get("KFORMER_NOTEBOOK_SENTENCES", "100"))]
references = [[target] for _, target in test]
bleu_and_chrf(translator([source for source, _ in test]), references)

# %% [markdown]
# ## 5. The mean of several weights
#
# The paper translates with the mean of the weights of several checkpoints (section 6.1). The run keeps those of its last
# validations.

# %%
from kformer.training.averaging import average_weights

average_weights(f"{OUTPUT}/run", f"{OUTPUT}/mean")
mean = kformer.Translator.from_run(f"{OUTPUT}/mean")
bleu_and_chrf(mean([source for source, _ in test]), references)

# %% [markdown]
# ## 6. Fine-tuning
#
# A new run may begin with the weights of another one. It keeps that one's tokenizer, and has its own corpus.

# %%
tuning = training.replace(max_minutes=MINUTES / 5, learning_rate_scale=0.3)
report = kformer.train(own, f"{OUTPUT}/own", training=tuning, initialize_from=f"{OUTPUT}/run")
print(report.reason)
kformer.Translator.from_run(f"{OUTPUT}/own")(["You are witnesses of these things."])
