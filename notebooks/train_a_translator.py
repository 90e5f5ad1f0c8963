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
# From pairs of sentences to a translator: corpora, training with TensorBoard, going on after a lost runtime, BLEU, the
# mean of several weights, and fine-tuning on text of your own.
#
# It takes about 21 minutes on a CPU: 15, 3 and at most 3 minutes are budgets of training below. A Colab GPU, where it
# was not measured, should take as long and learn more in that time: choose *Runtime > Change runtime type > GPU* first.

# %% tags=["install"]
# Installs kformer from the clone in which this notebook lies. In Colab it takes less than a minute: TensorFlow is there.
# %pip install --quiet "..[plots]"

# %%
import os
import pathlib

MINUTES = float(os.environ.get("KFORMER_NOTEBOOK_MINUTES", "15"))  # of training
OUTPUT = pathlib.Path(os.environ.get("KFORMER_NOTEBOOK_OUTPUT", "train-a-translator"))

# %% [markdown]
# Colab may take the machine away, with all files on it. To keep a run, mount your Drive and train there:
#
# ```python
# from google.colab import drive
# drive.mount("/content/drive")
# OUTPUT = pathlib.Path("/content/drive/MyDrive/kformer")
# ```
#
# ## 1. The corpus
#
# `bible-en-es` comes with kformer. Each verse is a pair: English, the *source*, and Spanish, the *target*.

# %%
from kformer.data import corpus_from_pairs, load_corpus, read_tsv

corpus = load_corpus("bible-en-es")
print(f"{len(corpus.train):,} pairs to train on, {len(corpus.valid):,} to validate, {len(corpus.test):,} to test")
corpus.train[0]

# %% [markdown]
# Text of your own is a file with a pair on each line, source TAB target, for `read_tsv`; or two files with the same
# number of lines, for `read_parallel`. As an example, 2,000 pairs in a newer spelling: the translation is of 1909, when
# Spanish wrote *á*, *fué* and *dió* for *a*, *fue* and *dio*.

# %%
import re

NEW = {"á": "a", "ó": "o", "fué": "fue", "dió": "dio", "vió": "vio"}
OLD = re.compile(rf"\b({'|'.join(NEW)})\b")


def in_new_spelling(pairs):
    return [(source, OLD.sub(lambda found: NEW[found[0]], target)) for source, target in pairs]


OUTPUT.mkdir(parents=True, exist_ok=True)
lines = [f"{source}\t{target}\n" for source, target in in_new_spelling(corpus.train[:2000])]
(OUTPUT / "new-spelling.tsv").write_text("".join(lines), encoding="utf-8")
own = corpus_from_pairs("own", read_tsv(OUTPUT / "new-spelling.tsv"), in_new_spelling(corpus.valid[:200]))
print(f"{len(own.train):,} pairs to train on, {len(own.valid)} to validate")
own.train[4]

# %% [markdown]
# `load_corpus("tfds:NAME")` takes any translation data set of TensorFlow Datasets and downloads it, for example
# `tfds:ted_hrlr_translate/pt_to_en`. It also takes a folder of text files for `tfds.TranslateFolder`, one for each
# language and part:

# %%
folder = OUTPUT / "tfds"
folder.mkdir(exist_ok=True)
for part in ("train", "valid"):
    for language, texts in zip(("en", "es"), zip(*getattr(own, part), strict=True), strict=True):
        (folder / f"{language}.{part}.txt").write_text("\n".join(texts), encoding="utf-8")
from_tfds = load_corpus(f"tfds:{folder}@en-es")
print(f"{len(from_tfds.train):,} pairs to train on, {len(from_tfds.test)} held out to test")

# %% [markdown]
# ## 2. Training
#
# The size `small` has 3 + 3 layers with vectors of 256 numbers. Everything else is a field of one of two
# configurations: the values are the paper's, or those that suit the size. A batch is a number of tokens, not of
# sentences.
#
# `resume="auto"` begins a run, or goes on with it if there is one. So if Colab has taken the machine away, run all
# cells again, Drive included: training goes on from the last checkpoint.

# %%
import kformer

run = OUTPUT / "run"
transformer = kformer.TransformerConfig.of_size("small")
training = kformer.TrainingConfig.of_size("small", max_minutes=MINUTES, patience=5)
report = kformer.train(
    corpus,
    run,
    transformer,
    training,
    samples=[corpus.valid[250][0]],  # a held-out verse, translated after each validation
    resume="auto",
)
print(report.reason)

# %% [markdown]
# *loss* is the label-smoothed cross entropy of a token, *accuracy* the share of tokens that the model predicts right,
# and *perplexity* is $e^x$ of the cross entropy without label smoothing x, which is why it is less than $e^{loss}$.
# Validation looks better than training, because it is without dropout, and with the moving average of the weights
# (`ema_decay`).
#
# The run folder has the configurations, the tokenizer, the best weights, the last checkpoint, `log.csv`, and files for
# TensorBoard. The curves as a figure:

# %%
from kformer import visualization

visualization.plot_runs(run)

# %% [markdown]
# And in TensorBoard, which also has translations of the samples and images of their attention:

# %%
# %load_ext tensorboard
# %tensorboard --logdir {OUTPUT}/run/tensorboard

# %% [markdown]
# ## 3. More training
#
# A run that has spent its budget goes on with a larger one. On a CPU, the results are exactly those of a run that had
# the larger budget from the start.

# %%
longer = training.replace(max_minutes=MINUTES * 1.2)
report = kformer.train(corpus, run, transformer, longer, resume=True)
print(report.reason)

# %% [markdown]
# ## 4. Translations and their scores
#
# BLEU and chrF compare translations with those of a person, from 0 to 100; higher is better. sacreBLEU computes them,
# and its signature says how, so that the numbers can be compared with others. Few sentences give an inexact number:
# compare only scores of the same sentences.

# %%
translator = kformer.Translator.from_run(run)
translator(["In the beginning God created the heavens and the earth.", "You are witnesses of these things."])

# %%
from kformer.evaluation.metrics import bleu_and_chrf

test = corpus.test[: int(os.environ.get("KFORMER_NOTEBOOK_SENTENCES", "200"))]


def scores(translator, pairs):
    return bleu_and_chrf(translator([source for source, _ in pairs]), [[target] for _, target in pairs])


scores(translator, test)

# %% [markdown]
# ## 5. The mean of several weights
#
# The paper translates with the mean of the weights of the last checkpoints (section 6.1); a run keeps those of its last
# validations. It helps at the end of a long training. After a short one, as here, it makes the translations worse: the
# model still learns fast, so the older weights are much worse than the last ones, and the best weights are a moving
# average already.

# %%
import shutil

from kformer.training.averaging import average_weights

shutil.rmtree(OUTPUT / "mean", ignore_errors=True)  # of an earlier execution
average_weights(run, OUTPUT / "mean")
mean = kformer.Translator.from_run(OUTPUT / "mean")
scores(mean, test)["bleu"]

# %% [markdown]
# ## 6. Fine-tuning
#
# A new run may begin with the weights of another one, keep its tokenizer, and learn other text. With a fifth of the
# learning rate and a short warm-up it forgets little. Here it learns the new spelling from the 2,000 pairs:

# %%
tuning = training.replace(max_minutes=MINUTES / 5, learning_rate_scale=0.2, warmup_steps=400)
report = kformer.train(own, OUTPUT / "own", training=tuning, initialize_from=run, resume="auto")
print(report.reason)

# %%
wanted = in_new_spelling(test)
for name, one in {"before": translator, "after": kformer.Translator.from_run(OUTPUT / "own")}.items():
    old_words = sum(len(OLD.findall(text)) for text in one([source for source, _ in wanted]))
    print(f"{name:6}  BLEU {scores(one, wanted)['bleu']:.1f}, {old_words} words in the old spelling")
