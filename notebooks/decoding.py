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
# A model gives a probability to every next token. Which tokens to take is the search's business: greedy search, beam search
# with a length penalty, or drawing at random.
#
# It takes about 2 minutes on a CPU, and as long on a Colab GPU.

# %% tags=["install"]
# In Colab this installs kformer in less than a minute. From a clone, in its folder `notebooks/`, it does the same.
# %pip install --quiet "..[plots]"

# %%
import kformer
from kformer import visualization
from kformer.config import DecodingConfig

TEXT = "You are witnesses of these things."
translator = kformer.Translator.from_preset("bible-en-es")

# %% [markdown]
# ## 1. Greedy search
#
# Take the most probable token, again and again. It never goes back.

# %%
greedy = kformer.Translator.from_preset("bible-en-es", DecodingConfig(beam_size=1))
greedy(TEXT)

# %% [markdown]
# ## 2. Beam search
#
# Keep the K best hypotheses. The tree has a column for each step: blue hypotheses go on, orange ones have ended, grey ones
# are dropped. The bold path is the translation. Its first token was only the second best: greedy search would have lost it.

# %%
tree = translator.beam_tree(TEXT)
visualization.plot_beam(tree)

# %% [markdown]
# The hypotheses that were found, as `n_best`:

# %%
import tensorflow as tf

found = translator.translate_n_best(tf.constant([TEXT]))
for text, score in zip(found["translation"][0].numpy(), found["score"][0].numpy(), strict=True):
    print(f"{score:7.3f}  {text.decode()}")

# %% [markdown]
# ## 3. The length penalty
#
# Every token costs probability, so that short translations win. The penalty of Wu et al. (2016) divides the logarithm of the
# probability by
#
# $$lp(Y) = \left(\frac{5 + |Y|}{6}\right)^\alpha$$

# %%
visualization.plot_length_penalties()

# %% [markdown]
# The same for the finished hypotheses of the tree above, of which each has a length and a log probability:

# %%
finished = [one for one in tree.extensions if one.outcome == "finished"]
visualization.plot_length_penalties([one.length for one in finished], [one.log_prob for one in finished])

# %% [markdown]
# ## 4. Drawing at random
#
# A temperature below 1 makes probable tokens more probable. `top_k` and `top_p` leave the improbable ones out.

# %%
visualization.plot_temperatures(temperatures=[0.5, 1.0, 1.5])

# %%
for temperature in (0.3, 0.7, 1.0):
    print(temperature, [translator.sample(TEXT, seed=seed, temperature=temperature, top_p=0.9) for seed in range(3)])

# %% [markdown]
# ## 5. Constraints
#
# `translate_with_options` takes a largest length, another length penalty, and a prefix that the translation begins with. The
# prefix should end with a whole word.

# %%
options = {
    "as it is": {},
    "length penalty 0": {"length_penalty": 0.0},
    "at most 4 tokens": {"max_length": 4},
    "begins with Y vosotros": {"target_prefix": "Y vosotros"},
}
for name, chosen in options.items():
    result = translator.translate_with_options([TEXT], **chosen)
    print(f"{name:22} {result['score'][0].numpy():7.3f}  {result['translation'][0].numpy().decode()}")

# %% [markdown]
# ## 6. How sure is the model?
#
# `translate_detailed` gives every token's probability, and `score` that of a translation of your own.

# %%
detailed = translator.translate_detailed(tf.constant([TEXT]))
for token, log_probability in zip(
    detailed["target_token"][0].numpy(), detailed["log_probability"][0].numpy(), strict=True
):
    print(f"{token.decode() or '(end)':12} {2.718281828**log_probability:5.2f}")

# %%
scored = translator.score(
    tf.constant([TEXT] * 2), tf.constant(["Vosotros sois testigos de estas cosas.", "Estas cosas son testigos."])
)
scored["log_probability"].numpy()
