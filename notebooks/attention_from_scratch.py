# ---
# jupyter:
#   accelerator: GPU
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Attention from scratch
#
# Sections 3.1 to 5.4 of *Attention Is All You Need*, step by step: every formula on numbers that can be checked by hand,
# beside the layer of kformer that computes it. Each cell asserts that both are equal.
#
# It takes about 3 minutes on a CPU, and as long on a Colab GPU.

# %% tags=["install"]
# In Colab this installs kformer in less than a minute. From a clone, in its folder `notebooks/`, it does the same.
# %pip install --quiet "..[plots]"

# %%
import os

import kformer  # first, so that TensorFlow starts without messages

LENGTHS = [int(one) for one in os.environ.get("KFORMER_NOTEBOOK_LENGTHS", "64,128,256,512,1024").split(",")]

# %%
import keras
import numpy as np

from kformer import layers, visualization

keras.utils.set_random_seed(1)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


# %% [markdown]
# ## 1. Scaled dot-product attention (section 3.2.1)
#
# A query asks, keys answer how well they fit, and values are what is taken home:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# One query and three keys of $d_k = 4$. The products with the keys are 4, 2 and 0; divided by $\sqrt 4 = 2$ they are
# 2, 1 and 0.

# %%
query = np.array([[1.0, 1.0, 1.0, 1.0]])
key = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
value = np.array([[10.0, 0.0, 0.0, 0.0], [0.0, 10.0, 0.0, 0.0], [0.0, 0.0, 10.0, 0.0]])

scores = query @ key.T / np.sqrt(4)
weights = np.exp(scores) / np.exp(scores).sum()
print("scores ", scores)
print("weights", weights.round(3), "= e^2, e^1, e^0, divided by their sum")
print("result ", (weights @ value).round(3))

# %% [markdown]
# The layer has two more axes in front: the batch and the heads.

# %%
from kformer.layers.scaled_dot_product import attention_weights, scaled_dot_product_attention

as_tensors = [one[np.newaxis, np.newaxis].astype("float32") for one in (query, key, value)]
np.testing.assert_allclose(array(attention_weights(*as_tensors[:2]))[0, 0], weights, atol=1e-6)
np.testing.assert_allclose(array(scaled_dot_product_attention(*as_tensors))[0, 0], weights @ value, atol=1e-5)

# %% [markdown]
# ## 2. Why divide by $\sqrt{d_k}$?
#
# The product of two vectors of $d_k$ independent numbers with mean 0 and variance 1 has the variance $d_k$. Without the
# division the softmax of a large model would see scores so far apart that it gives everything to one key, and its gradient
# vanishes.

# %%
random = np.random.default_rng(1)
print("d_k   variance of q.k   of q.k / sqrt(d_k)   largest of 10 weights without / with the division")
for d_k in (4, 16, 64, 256):
    q, k = random.normal(size=(2, 4000, 10, d_k))
    products = (q[:, :1] * k).sum(axis=-1)
    assert abs(products.var() / d_k - 1) < 0.1
    scaled = products / np.sqrt(d_k)
    largest = [array(keras.ops.softmax(one)).max(axis=-1).mean() for one in (products, scaled)]
    print(f"{d_k:3}   {products.var():15.1f}   {scaled.var():18.2f}   {largest[0]:.2f} / {largest[1]:.2f}")

# %% [markdown]
# What a division does to a softmax is what a temperature does:

# %%
visualization.plot_temperatures()

# %% [markdown]
# ## 3. Masks (section 3.2.3)
#
# Padding is no word, and a decoder must not see the word that it is to predict. Both are boolean masks, True where a query
# may attend; together they are their logical "and".

# %%
visualization.plot_masks(length=8, padding=2)

# %%
ids = np.array([[5, 9, 4, 0, 0]])  # two positions of padding
padding = array(layers.padding_mask(ids))  # (batch, 1, 1, keys)
causal = array(layers.causal_mask(5))  # (1, 1, queries, keys)
assert padding[0, 0, 0].tolist() == [True, True, True, False, False]
assert np.array_equal(causal[0, 0], np.tri(5, dtype=bool))

rows = random.normal(size=(1, 1, 5, 4)).astype("float32")
masked = array(attention_weights(rows, rows, mask=padding & causal))[0, 0]
assert masked[0].tolist() == [1, 0, 0, 0, 0]  # the first position sees itself alone
assert not masked[:, 3:].any()  # nobody sees padding
np.testing.assert_allclose(masked.sum(axis=-1), 1, atol=1e-6)
masked.round(2)

# %% [markdown]
# ## 4. Several heads (section 3.2.2)
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h) W^O, \qquad
# \mathrm{head}_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# Each head works on $d_{model} / h$ of the dimensions, so that all of them cost as much as one head of full size.

# %%
d_model, heads = 8, 2
layer = layers.MultiHeadAttention(d_model, heads)
inputs = random.normal(size=(1, 5, d_model)).astype("float32")
result = array(layer(inputs))


def project(dense, x):
    return x @ array(dense.kernel) + array(dense.bias)


projected = [project(one, inputs[0]) for one in (layer.query_projection, layer.key_projection, layer.value_projection)]
size = d_model // heads
found = []
for head in range(heads):
    q, k, v = (one[:, head * size : (head + 1) * size] for one in projected)
    exponents = np.exp(q @ k.T / np.sqrt(size))
    found.append(exponents / exponents.sum(axis=-1, keepdims=True) @ v)
by_hand = project(layer.output_projection, np.concatenate(found, axis=-1))
np.testing.assert_allclose(result[0], by_hand, atol=1e-5)

# %% [markdown]
# ## 5. Positions (section 3.5)
#
# Attention does not know the order of its keys. So each position adds its own vector to the embedding:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i / d_{model}}), \qquad PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i / d_{model}})$$

# %%
table = array(layers.PositionalEncoding(6).table(4))
for position in range(4):
    for i in range(3):
        angle = position / 10000 ** (2 * i / 6)
        np.testing.assert_allclose(table[position, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-6)
visualization.plot_positions(length=64, d_model=128)

# %% [markdown]
# The product of two positions depends on their distance alone, and is the same in both directions:

# %%
visualization.plot_position_products(length=64, d_model=128)

# %%
visualization.plot_wavelengths(512)

# %% [markdown]
# ## 6. Residual connection and layer norm (sections 3.1 and 5.4)
#
# Every sublayer is wrapped: $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$.

# %%
from kformer.layers.residual import ResidualConnection

connection = ResidualConnection(dropout_rate=0.0)
x = random.normal(size=(2, 3, 8)).astype("float32")
wrapped = array(connection(x, sublayer=lambda inputs: inputs * 2))
total = x + 2 * x
expected = (total - total.mean(-1, keepdims=True)) / np.sqrt(
    total.var(-1, keepdims=True) + connection.layer_norm_epsilon
)
np.testing.assert_allclose(wrapped, expected, atol=1e-4)

# %% [markdown]
# ## 7. The feed-forward network (section 3.3)
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2$$

# %%
network = layers.FeedForward(d_model=8, d_ff=32)
outputs = array(network(x))
np.testing.assert_allclose(outputs, project(network.outer, np.maximum(project(network.inner, x), 0)), atol=1e-5)

# %% [markdown]
# ## 8. The whole model (Figure 1)
#
# Encoder and decoder are stacks of such layers. `build_transformer` wires them into a functional Keras model.

# %%
config = kformer.TransformerConfig.of_size("tiny", source_vocab_size=100, target_vocab_size=100)
model = kformer.models.build_transformer(config)
logits = model({"source": np.array([[5, 6, 7]]), "target_in": np.array([[1, 8]])})
print("logits", logits.shape, "parameters", f"{model.count_params():,}")

# %% [markdown]
# ## 9. Label smoothing (section 5.4)
#
# The model is not asked for certainty: a little of the probability goes to the other classes.

# %%
from kformer.losses import LabelSmoothedCrossEntropy

random_logits = random.normal(size=(1, 2, 5)).astype("float32")
log_probs = random_logits - np.log(np.exp(random_logits).sum(-1, keepdims=True))
targets = np.full((1, 2, 5), 0.1 / 5)
targets[0, 0, 3] += 0.9
targets[0, 1, 4] += 0.9
by_hand = -(targets * log_probs).sum(-1).mean()
loss = LabelSmoothedCrossEntropy(epsilon=0.1)(np.array([[3, 4]]), random_logits)
np.testing.assert_allclose(float(loss), by_hand, rtol=1e-5)
visualization.plot_smoothed_labels()

# %% [markdown]
# ## 10. The learning rate (section 5.3, equation 3)
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5})$$

# %%
from kformer.schedules import WarmupInverseSqrt

schedule = WarmupInverseSqrt(512, 4000)
for step in (1, 100, 4000, 16000):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    np.testing.assert_allclose(float(schedule(step - 1)), expected, rtol=1e-5)  # Keras counts from 0
visualization.plot_schedules()

# %% [markdown]
# ## 11. Why self-attention? (section 4, table 1)
#
# | layer | operations | steps that wait for each other | longest path between two positions |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 d)$ | 1 | 1 |
# | recurrent | $O(n d^2)$ | n | n |
# | convolution of width k | $O(k n d^2)$ | 1 | n / k |
#
# The time of one forward pass, measured here, over the length n:

# %%
import time

d = 64
kinds = {
    "self-attention": layers.MultiHeadAttention(d, 4),
    "recurrent (LSTM)": keras.layers.LSTM(d, return_sequences=True),
    "convolution of width 3": keras.layers.Conv1D(d, 3, padding="same"),
}
times = {name: [] for name in kinds}
for length in LENGTHS:
    inputs = random.normal(size=(1, length, d)).astype("float32")
    for name, one in kinds.items():
        model = keras.Sequential([keras.Input((length, d)), one])
        run = model.predict_on_batch
        run(inputs)  # builds the function
        began = time.perf_counter()
        repeats = 5
        for _ in range(repeats):
            run(inputs)
        times[name].append((time.perf_counter() - began) / repeats * 1000)
print("n     " + "  ".join(f"{name:>24}" for name in kinds))
for number, length in enumerate(LENGTHS):
    print(f"{length:5} " + "  ".join(f"{times[name][number]:21.2f} ms" for name in kinds))

# %% [markdown]
# And the path: change the first position, and see which outputs notice. In one layer of self-attention all of them do, in a
# convolution only the neighbours; in a recurrent layer what is far away notices through every step between, and fades.

# %%
inputs = random.normal(size=(1, 32, d)).astype("float32")
changed = inputs.copy()
changed[0, 0] += 1
for name, one in kinds.items():
    difference = np.abs(array(one(changed)) - array(one(inputs))).max(axis=-1)[0]
    print(
        f"{name:24} reaches {np.count_nonzero(difference > 1e-7):2} of 32 positions; "
        f"change at the last one: {difference[-1]:.1e}"
    )

# %% [markdown]
# ## 12. Real attention
#
# What the heads of a trained model look at. In "The animal didn't cross the street because it was too tired", `it` may be the
# animal or the street.

# %%
translator = kformer.Translator.from_preset("bible-en-es")
attention = translator.attention("The animal didn't cross the street because it was too tired.")
visualization.plot_attention_links(attention.encoder, "it", layer=0)

# %%
visualization.plot_attention_heads(attention.encoder)

# %% [markdown]
# In the last layer nearly every token attends to the full stop and to the end, about half and half. Both are in almost every
# text. A head that has nothing to add to a token puts its attention there, because a softmax must put it somewhere: such
# tokens are called attention sinks (Xiao et al. 2023). So a bright column says little about the text.

# %%
for layer, weights in enumerate(attention.encoder.weights, start=1):
    print(
        f"layer {layer}: {weights[:, :-2, -2:].sum(axis=-1).mean():4.0%} of the attention goes to the full stop and to the end"
    )

# %% [markdown]
# Lines to choose from and to point at:

# %%
visualization.AttentionView(*attention)
