# ---
# jupyter:
#   accelerator: GPU
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Decoding: how a translation is searched for
#
# A model gives a probability to every token that may come next. A search decides which ones to take: always the most
# probable one (greedy search), several in parallel (beam search), or one at random (sampling).
#
# It takes about a minute on a CPU. On a Colab GPU, where it was not measured, it should take as long.

# %% tags=["install"]
# Installs kformer from the clone in which this notebook lies. In Colab it takes less than a minute: TensorFlow is there.
# %pip install --quiet "..[plots]"

# %%
import kformer  # first, so that TensorFlow starts without messages

TEXT = "You are witnesses of these things."
translator = kformer.Translator.from_preset("bible-en-es")

# %%
import numpy as np
import tensorflow as tf
from IPython.display import Markdown

from kformer import visualization
from kformer.config import DecodingConfig


def table(*rows):
    """The first row is the head."""
    head, *others = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return Markdown("\n".join([head, "| --- " * len(rows[0]) + "|", *others]))


# %% [markdown]
# ## 1. Greedy search
#
# Take the most probable token, again and again, and never go back. `translate_detailed` gives the tokens of a
# translation and the natural logarithms of their probabilities.

# %%
greedy = kformer.Translator.from_preset("bible-en-es", DecodingConfig(beam_size=1))


def tokens(translator):
    found = translator.translate_detailed(tf.constant([TEXT]))
    names = [token.decode().strip() or "(end)" for token in found["target_token"][0].numpy()]
    return [("token", *names), ("probability", *np.exp(found["log_probability"][0].numpy()).round(2))]


print(greedy(TEXT))
table(*tokens(greedy))

# %% [markdown]
# The probability of the whole translation is the product of these numbers. The third token has a low one: after
# `Estas`, no continuation is probable.
#
# ## 2. Beam search
#
# Keep the K best beginnings (*hypotheses*; here K = 4), and continue all of them. The tree has a column for each step,
# with the best hypothesis at the top: blue ones go on, orange ones have ended, grey ones are dropped. The number below
# a token is the score of the hypothesis up to it. The bold path is the translation. Its first token was only the second
# best: greedy search has lost it there.

# %%
tree = translator.beam_tree(TEXT)
visualization.plot_beam(tree)

# %%
print(translator(TEXT))
table(*tokens(translator))

# %% [markdown]
# `translate_n_best` gives the K hypotheses that the search has found, best first. `score` gives the probability of any
# translation, also of one that you wrote. Here are the best hypotheses, and the words of the best one in a wrong order:

# %%
found = translator.translate_n_best(tf.constant([TEXT]))["translation"][0].numpy()
texts = [*(text.decode() for text in found), "Testigos cosas estas de sois vosotros."]
scored = translator.score(tf.constant([TEXT] * len(texts)), tf.constant(texts))
rows = zip(texts, np.exp(scored["log_probability"].numpy()), scored["score"].numpy(), strict=True)
table(("translation", "probability", "score"), *((text, f"{p:.2g}", f"{score:.3f}") for text, p, score in rows))

# %% [markdown]
# ## 3. The length penalty
#
# Every token multiplies the probability by a number below 1, so a search for the most probable translation prefers
# short ones. Therefore the score is the logarithm of the probability, divided by the length penalty of Wu et al.
# (2016):
#
# $$lp(Y) = \left(\frac{5 + |Y|}{6}\right)^\alpha$$
#
# The score of a translation whose tokens all have the probability 0.8, over its length:

# %%
visualization.plot_length_penalties(penalties=[0.0, 0.6, 1.4])

# %% [markdown]
# With $\alpha = 0$ there is no penalty, 0.6 is the paper's, and 1.4 is the best one for the validation sentences of
# this model, which therefore uses it. A larger penalty makes longer translations; this one loses its end without it:

# %%
SAD = "He said to them, “What are you talking about as you walk, and are sad?”"
rows = [("length penalty", "score", "translation")]
for penalty in (0.0, 0.6, 1.4):
    found = translator.translate_with_options([SAD], length_penalty=penalty)
    rows.append((penalty, f"{found['score'][0].numpy():.3f}", found["translation"][0].numpy().decode()))
table(*rows)

# %% [markdown]
# The search of section 2 went on after the step at which the drawn tree ends, until no hypothesis could become better
# than those that had ended. All that ended, by their lengths:

# %%
finished = [one for one in tree.extensions if one.outcome == "finished"]
lengths, log_probs = [one.length for one in finished], [one.log_prob for one in finished]
visualization.plot_length_penalties(lengths, log_probs, penalties=[0.0, 0.6, 1.4])

# %% [markdown]
# ## 4. Drawing at random
#
# Tokens can also be drawn, each with its probability. A temperature below 1 makes probable tokens more probable; at 0
# only the best one is left. `top_k=k` draws among the k most probable tokens alone, `top_p=p` among the most probable
# ones that together have the probability p.

# %%
visualization.plot_temperatures(temperatures=[0.3, 0.7, 1.0])

# %%
rows = [("temperature", "seed 0", "seed 1", "seed 2")]
for temperature in (0.3, 0.7, 1.0):
    rows.append((temperature, *(translator.sample(TEXT, seed, temperature, top_p=0.9) for seed in range(3))))
table(*rows)

# %% [markdown]
# ## 5. Constraints
#
# `translate_with_options` takes a largest number of tokens, another length penalty, and a prefix: the translation then
# begins with it. The prefix should end with a whole word. A translation that reaches the largest number is cut off.

# %%
options = {
    "none": {},
    "at most 4 tokens": {"max_length": 4},
    "begins with Y vosotros": {"target_prefix": "Y vosotros"},
    "begins with Testigos": {"target_prefix": "Testigos"},
}
rows = [("constraint", "score", "translation")]
for name, chosen in options.items():
    found = translator.translate_with_options([TEXT], **chosen)
    rows.append((name, f"{found['score'][0].numpy():.3f}", found["translation"][0].numpy().decode()))
table(*rows)
