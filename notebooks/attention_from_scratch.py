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
# Sections 3.1 to 5.4 of *Attention Is All You Need*, step by step. Each step has the formula of the paper, the same in
# NumPy, and the layer of kformer that computes it; `assert_allclose` checks that both give the same numbers.
#
# Words that are used from the start: a text is divided into *tokens*, words or parts of words, and each token has a
# number, its *id*. The model works with a vector of $d_{model}$ numbers for each token. *softmax* makes numbers into
# shares that sum to 1: $\mathrm{softmax}(z)_i = e^{z_i} / \sum_j e^{z_j}$.
#
# It takes about a minute on a CPU. On a Colab GPU, where it was not measured, it should take as long.

# %% tags=["install"]
# Installs kformer from the clone in which this notebook lies. In Colab it takes less than a minute: TensorFlow is there.
# %pip install --quiet "..[plots]"

# %%
import os

import kformer  # first, so that TensorFlow starts without messages

LENGTHS = [int(one) for one in os.environ.get("KFORMER_NOTEBOOK_LENGTHS", "128,256,512,1024,2048,4096").split(",")]

# %%
import keras
import numpy as np
import tensorflow as tf

from kformer import layers, visualization

tf.config.experimental.enable_tensor_float_32_execution(False)  # a GPU should compute as exactly as NumPy
keras.utils.set_random_seed(1)
random = np.random.default_rng(1)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def softmax(scores):
    exponents = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


# %% [markdown]
# ## 1. Scaled dot-product attention (section 3.2.1)
#
# Each token has a *query*, a *key* and a *value*. The product of a query with a key says how well the two fit. The
# softmax makes these numbers into weights, and the result is the mean of the values with these weights:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# One query and three keys of $d_k = 4$ numbers. The products with the keys are 4, 2 and 0; divided by $\sqrt 4 = 2$
# they are 2, 1 and 0.

# %%
query = np.array([[1.0, 1.0, 1.0, 1.0]])
key = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
value = np.array([[10.0, 0.0, 0.0, 0.0], [0.0, 10.0, 0.0, 0.0], [0.0, 0.0, 10.0, 0.0]])

scores = query @ key.T / np.sqrt(4)
weights = softmax(scores)
print("scores ", scores)
print("weights", weights.round(3), "= e^2, e^1, e^0, divided by their sum")
print("result ", (weights @ value).round(3))

# %% [markdown]
# The function of kformer has two more axes in front: the sentences of a batch, and the heads of section 4 below.

# %%
from kformer.layers.scaled_dot_product import attention_weights, scaled_dot_product_attention

as_tensors = [one[np.newaxis, np.newaxis].astype("float32") for one in (query, key, value)]
np.testing.assert_allclose(array(attention_weights(*as_tensors[:2]))[0, 0], weights, atol=1e-6)
np.testing.assert_allclose(array(scaled_dot_product_attention(*as_tensors))[0, 0], weights @ value, atol=1e-5)

# %% [markdown]
# ## 2. Why divide by $\sqrt{d_k}$?
#
# The product of two vectors of $d_k$ independent numbers with mean 0 and variance 1 has the variance $d_k$. So with
# large vectors the scores are far apart, and the softmax gives nearly everything to one key. Its derivative for a
# weight p is p (1 - p), which is then close to 0, so the model hardly learns. Here are 4,000 queries with 10 keys
# each; the last columns are the largest weight, and the mean derivative of all weights, without and with the division.

# %%
print("d_k   variance of q.k   of q.k / sqrt(d_k)   largest weight   mean derivative")
for d_k in (4, 16, 64, 256):
    q, k = random.normal(size=(2, 4000, 10, d_k))
    products = (q[:, :1] * k).sum(axis=-1)
    assert abs(products.var() / d_k - 1) < 0.1
    scaled = products / np.sqrt(d_k)
    both = [softmax(products), softmax(scaled)]
    largest = " / ".join(f"{one.max(axis=-1).mean():.2f}" for one in both)
    derivative = " / ".join(f"{(one * (1 - one)).mean():.3f}" for one in both)
    print(f"{d_k:3}   {products.var():15.1f}   {scaled.var():18.2f}   {largest:>14}   {derivative:>15}")

# %% [markdown]
# To divide scores by a number before a softmax is also called a *temperature*: a higher one makes the weights more
# equal, a lower one less. Searches use it when they draw tokens at random.

# %%
visualization.plot_temperatures()

# %% [markdown]
# ## 3. Masks (section 3.2.3)
#
# The sentences of a batch have different lengths, so shorter ones are filled up with the id 0, the *padding*. No query
# may attend to it. And a decoder learns to predict the next token, so it must not see that token: a position may attend
# only to itself and to what stands before it (the look-ahead mask, also called causal). Both masks are booleans, True
# where a query may attend. Used together, they are joined by a logical "and".

# %%
visualization.plot_masks(length=8, padding=2)

# %% [markdown]
# Where the mask is False, the score becomes $-\infty$ before the softmax, and the weight 0:

# %%
ids = np.array([[5, 9, 4, 0, 0]])  # two positions of padding
padding = array(layers.padding_mask(ids))  # (batch, 1, 1, keys)
causal = array(layers.causal_mask(5))  # (1, 1, queries, keys)
assert padding[0, 0, 0].tolist() == [True, True, True, False, False]
assert np.array_equal(causal[0, 0], np.tri(5, dtype=bool))

rows = random.normal(size=(1, 1, 5, 4)).astype("float32")
mask = (padding & causal)[0, 0]
by_hand = softmax(np.where(mask, rows[0, 0] @ rows[0, 0].T / np.sqrt(4), -np.inf))
masked = array(attention_weights(rows, rows, mask=padding & causal))[0, 0]
np.testing.assert_allclose(masked, by_hand, atol=1e-6)
assert masked[0].tolist() == [1, 0, 0, 0, 0]  # the first position sees itself alone
masked.round(2)

# %% [markdown]
# ## 4. Several heads (section 3.2.2)
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h) W^O, \qquad
# \mathrm{head}_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# Every head has its own queries, keys and values of $d_k = d_{model} / h$ numbers, so that each can look for something
# else. All heads together cost as much as one head of full size.


# %%
def project(dense, x):
    return x @ array(dense.kernel) + array(dense.bias)


def multi_head(layer, queries, keys, mask=True):
    """What a layer `MultiHeadAttention` computes, in NumPy: (T, d_model) and (S, d_model) to (T, d_model)."""
    q, k, v = (
        project(layer.query_projection, queries),
        project(layer.key_projection, keys),
        project(layer.value_projection, keys),
    )
    size = layer.d_model // layer.num_heads
    found = []
    for head in range(layer.num_heads):
        part = slice(head * size, (head + 1) * size)
        scores = np.where(mask, q[:, part] @ k[:, part].T / np.sqrt(size), -np.inf)
        found.append(softmax(scores) @ v[:, part])
    return project(layer.output_projection, np.concatenate(found, axis=-1))


# %% [markdown]
# The paper uses such layers in three ways: in the encoder all positions attend to all positions, in the decoder to the
# earlier ones, and from the decoder to the encoder (*cross-attention*) the queries are of the target and the keys and
# values of the source.

# %%
layer = layers.MultiHeadAttention(d_model=8, num_heads=2)
source, target = random.normal(size=(1, 5, 8)).astype("float32"), random.normal(size=(1, 3, 8)).astype("float32")

encoder_self = layer(source)
np.testing.assert_allclose(array(encoder_self)[0], multi_head(layer, source[0], source[0]), atol=1e-4)

decoder_self = layer(target, attention_mask=layers.causal_mask(3))
np.testing.assert_allclose(
    array(decoder_self)[0], multi_head(layer, target[0], target[0], np.tri(3, dtype=bool)), atol=1e-4
)

cross = layer(target, key=source)
np.testing.assert_allclose(array(cross)[0], multi_head(layer, target[0], source[0]), atol=1e-4)
print("self-attention", encoder_self.shape, "cross-attention", cross.shape)

# %% [markdown]
# ## 5. Embeddings and softmax (section 3.4)
#
# A matrix has a row of $d_{model}$ numbers for each token. The embedding of a token is its row, times
# $\sqrt{d_{model}}$. At the end of the decoder the same matrix gives the *logits*: the product of the decoder's output
# with each row. The softmax of the logits is the probability of each token to be the next one.

# %%
embedding = layers.TokenEmbedding(input_dim=10, output_dim=8)  # 10 tokens
vectors = array(embedding(ids))
matrix = array(embedding.embeddings)
np.testing.assert_allclose(vectors[0], matrix[ids[0]] * np.sqrt(8), atol=1e-6)
np.testing.assert_allclose(array(embedding(target, reverse=True))[0], target[0] @ matrix.T, atol=1e-4)
print("embeddings", vectors.shape, "logits", embedding(target, reverse=True).shape)

# %% [markdown]
# ## 6. Positions (section 3.5)
#
# Attention does not know the order of its keys: without positions, a sentence in another order gives the same vectors
# in that other order.

# %%
order = [3, 0, 4, 1, 2]
np.testing.assert_allclose(array(layer(source[:, order])), array(layer(source))[:, order], atol=1e-5)

# %% [markdown]
# So a vector for each position is added to the embedding:
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i / d_{model}}), \qquad PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i / d_{model}})$$

# %%
positions = layers.PositionalEncoding(6)
table = array(positions.table(4))
for position in range(4):
    for i in range(3):
        angle = position / 10000 ** (2 * i / 6)
        np.testing.assert_allclose(table[position, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-6)
embedded = random.normal(size=(1, 4, 6)).astype("float32")
np.testing.assert_allclose(array(positions(embedded)), embedded + table, atol=1e-6)
visualization.plot_positions(length=64, d_model=128)

# %% [markdown]
# The product of two positions depends on their distance alone, and is the same in both directions: every diagonal of
# the matrix of products has one value.

# %%
table = array(layers.PositionalEncoding(128).table(64))
products = table @ table.T
for distance in range(64):
    np.testing.assert_allclose(np.diagonal(products, distance), products[0, distance], rtol=1e-4)
np.testing.assert_allclose(products, products.T, rtol=1e-5)
visualization.plot_position_products(length=64, d_model=128)

# %% [markdown]
# Each pair of dimensions is a sine and a cosine of its own wavelength, from $2\pi$ positions to $10000 \cdot 2\pi$:
# short ones tell neighbours apart, long ones tell the beginning from the end.

# %%
visualization.plot_wavelengths(512)

# %% [markdown]
# ## 7. Residual connection and layer norm (sections 3.1 and 5.4)
#
# The attention and the feed-forward network are *sublayers*. Around each of them, its input is added to its output, and
# the sum is normalized: $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$. Layer norm gives each vector the mean 0 and the
# variance 1, then multiplies it by a learned gain (1 at first) and adds a learned bias (0 at first). In training,
# *dropout* sets a tenth of the output of each sublayer to 0, before the sum.


# %%
from kformer.layers.residual import ResidualConnection


def layer_norm(x, epsilon=1e-6):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


connection = ResidualConnection(dropout_rate=0.1)
x = source[0]
wrapped = array(connection(source, sublayer=lambda inputs: inputs * inputs, training=False))
np.testing.assert_allclose(wrapped[0], layer_norm(x + x * x), atol=1e-4)

# %% [markdown]
# ## 8. The feed-forward network (section 3.3)
#
# Each vector passes through two matrices with a ReLU (negative numbers become 0) between them:
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2$$


# %%
def feed_forward(network, x):
    return project(network.outer, np.maximum(project(network.inner, x), 0))


network = layers.FeedForward(d_model=8, d_ff=32)
np.testing.assert_allclose(array(network(source))[0], feed_forward(network, x), atol=1e-4)

# %% [markdown]
# ## 9. Encoder and decoder layers (section 3.1, Figure 1)
#
# An encoder layer is self-attention and then the feed-forward network, a decoder layer has cross-attention between
# them. Each is wrapped as in section 7. With the functions above, this is all that they compute:

# %%
encoder_layer = layers.EncoderLayer(d_model=8, num_heads=2, d_ff=32)
encoded = array(encoder_layer(source, training=False))[0]
x = source[0]
x = layer_norm(x + multi_head(encoder_layer.self_attention, x, x))
x = layer_norm(x + feed_forward(encoder_layer.feed_forward, x))
np.testing.assert_allclose(encoded, x, atol=1e-4)

decoder_layer = layers.DecoderLayer(d_model=8, num_heads=2, d_ff=32)
decoded = array(decoder_layer(target, encoded[np.newaxis], attention_mask=layers.causal_mask(3), training=False))[0]
y = target[0]
y = layer_norm(y + multi_head(decoder_layer.self_attention, y, y, np.tri(3, dtype=bool)))
y = layer_norm(y + multi_head(decoder_layer.cross_attention, y, x))
y = layer_norm(y + feed_forward(decoder_layer.feed_forward, y))
np.testing.assert_allclose(decoded, y, atol=1e-4)

# %% [markdown]
# The whole model is embeddings with positions, a stack of encoder layers, a stack of decoder layers, and the logits.
# Its parameters can be counted by hand: an attention has four matrices $d \times d$ with biases, a network has two, a
# norm has a gain and a bias.

# %%
config = kformer.TransformerConfig.of_size("tiny", source_vocab_size=100, target_vocab_size=100)
model = kformer.models.build_transformer(config)
logits = model({"source": np.array([[5, 6, 7]]), "target_in": np.array([[1, 8]])})
d, d_ff = config.d_model, config.d_ff
attention, network, norm = 4 * (d * d + d), (d * d_ff + d_ff) + (d_ff * d + d), 2 * d
encoder = config.num_encoder_layers * (attention + network + 2 * norm)
decoder = config.num_decoder_layers * (2 * attention + network + 3 * norm)
embeddings = 100 * d  # one matrix for source, target and logits
assert model.count_params() == embeddings + encoder + decoder
print("logits", logits.shape, "parameters", f"{model.count_params():,}")

# %% [markdown]
# ## 10. Label smoothing (section 5.4)
#
# The model learns to give the right token the probability $1 - \epsilon$ instead of 1, and $\epsilon = 0.1$ is shared
# by all K tokens (in a second form, by the K - 1 wrong ones). The loss is the cross entropy with these probabilities q
# instead of 1 and 0:
#
# $$q_k = (1 - \epsilon) \, [k = right] + \frac{\epsilon}{K}, \qquad loss = -\sum_k q_k \log p_k$$

# %%
from kformer.losses import LabelSmoothedCrossEntropy

random_logits = random.normal(size=(1, 2, 5)).astype("float32")  # two positions, K = 5
right = np.array([[3, 4]])
smoothed = 0.9 * np.eye(5)[right] + 0.1 / 5
by_hand = -(smoothed * np.log(softmax(random_logits))).sum(-1).mean()
loss = LabelSmoothedCrossEntropy(epsilon=0.1)(right, random_logits)
np.testing.assert_allclose(float(loss), by_hand, rtol=1e-4)
visualization.plot_smoothed_labels()

# %% [markdown]
# ## 11. Optimizer and learning rate (section 5.3, equation 3)
#
# Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$ and $\epsilon = 10^{-9}$. The learning rate grows for 4,000 updates (the
# *warm-up*) and then falls with the square root of the number of updates:
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5})$$

# %%
from kformer.schedules import WarmupInverseSqrt

schedule = WarmupInverseSqrt(512, 4000)
for step in (1, 100, 4000, 16000):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    np.testing.assert_allclose(float(schedule(step - 1)), expected, rtol=1e-5)  # Keras counts from 0

defaults = kformer.TrainingConfig()
assert (defaults.beta_1, defaults.beta_2, defaults.adam_epsilon) == (0.9, 0.98, 1e-9)
weight = keras.Variable([0.0, 0.0])
keras.optimizers.Adam(schedule, 0.9, 0.98, 1e-9).apply([keras.ops.array([0.5, -20.0])], [weight])
# Adam divides a gradient by its own size: the first update is the learning rate, whatever the gradient.
np.testing.assert_allclose(array(weight), [-float(schedule(0)), float(schedule(0))], rtol=0.01)
visualization.plot_schedules()

# %% [markdown]
# Section 5.1: sentences of about the same length make a batch, of about 25,000 source and 25,000 target tokens. In
# kformer, `TrainingConfig.tokens_per_batch` is the size of a batch, padding included.
#
# ## 12. Why self-attention? (section 4, table 1)
#
# For sequences of n vectors of d numbers, a convolution of width k, and attention within r positions:
#
# | layer | operations | steps that wait for each other | longest path between two positions |
# | --- | --- | --- | --- |
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolution | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$ with gaps that grow (dilated), else $O(n / k)$ |
# | self-attention, restricted | $O(r n d)$ | $O(1)$ | $O(n / r)$ |
#
# TensorFlow counts the operations of a layer; here in millions of multiplications, with d = 256. Twice the length makes
# twice the operations of a recurrent layer and of a convolution. Self-attention has two parts: projections, which grow
# as these do, and the products of all pairs, which grow with the square and dominate where n is larger than 2 d.

# %%
d, r = 256, 32
tf.get_logger().setLevel("ERROR")  # the counter is an old part of TensorFlow, which says so
kinds = {
    "self-attention": layers.MultiHeadAttention(d, 4),
    "recurrent (LSTM)": keras.layers.LSTM(d, return_sequences=True, unroll=True),
    "convolution, k = 3": keras.layers.Conv1D(d, 3, padding="same"),
}


def millions(layer, length):
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec((1, length, d))).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    found = tf.compat.v1.profiler.profile(graph, options={**options, "output": "none"})
    return found.total_float_ops / 2 / 1e6  # a multiplication and an addition are two operations


print("    n" + "".join(f"{name:>22}" for name in kinds))
for length in (32, 64, 128, 256):
    counted = [millions(one, length) for one in kinds.values()]
    by_hand = [(2 * length**2 * d + 4 * length * d**2) / 1e6, 8 * length * d**2 / 1e6, 3 * length * d**2 / 1e6]
    np.testing.assert_allclose(counted, by_hand, rtol=0.02)  # softmax, biases and gates are the rest
    print(f"{length:5}" + "".join(f"{number:22.1f}" for number in counted))

# %% [markdown]
# The time of one forward pass, measured here. The steps of a recurrent layer wait for each other, so it is slow
# although it has few operations. Long sequences of self-attention cost as the square of their length; within a window
# (`attention_window` of the configuration) they cost as their length.

# %%
import time

from matplotlib.figure import Figure

timed = {
    "self-attention": (kinds["self-attention"], {}),
    f"self-attention, r = {r}": (kinds["self-attention"], {"attention_mask": layers.Band(r)}),
    "recurrent (LSTM)": (keras.layers.LSTM(d, return_sequences=True), {}),
    "convolution, k = 3": (kinds["convolution, k = 3"], {}),
}
times = {name: [] for name in timed}
for length in LENGTHS:
    vectors = random.normal(size=(1, length, d)).astype("float32")
    for name, (one, options) in timed.items():
        inputs = keras.Input((length, d))
        run = keras.Model(inputs, one(inputs, **options)).predict_on_batch
        run(vectors)  # builds the function
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            run(vectors)
            seconds.append(time.perf_counter() - began)
        times[name].append(min(seconds) * 1000)

figure = Figure(figsize=(8, 4.5), layout="constrained")
axes = figure.subplots()
for (name, milliseconds), marker in zip(times.items(), "os^v", strict=True):
    axes.plot(LENGTHS, milliseconds, marker=marker, label=name)
axes.set(title="One layer, one sequence", xlabel="length n", ylabel="time in ms", xscale="log", yscale="log")
axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS], minor=False)
axes.set_xticks([], minor=True)
axes.grid(alpha=0.3)
axes.legend()
for name, milliseconds in times.items():
    print(f"{name:24}" + " ".join(f"{one:8.2f}" for one in milliseconds) + " ms")
figure

# %% [markdown]
# And the path: change the first vector, and count the layers that are needed until the last one notices. One layer of
# self-attention is enough at any length. A convolution reaches one neighbour on each side, so it needs as many layers
# as there are steps between. One recurrent layer is enough, but the change passes through every step and becomes
# smaller.

# %%
print("    n" + "".join(f"{name:>22}" for name in kinds) + "     change that arrives: self-attention, LSTM")
for length in (4, 8, 16, 32):
    vectors = random.normal(size=(1, length, d)).astype("float32")
    needed, arrived = [], []
    for one in kinds.values():
        before, after, number = vectors, vectors.copy(), 0
        after[0, 0] += 1
        while not (difference := np.abs(array(after) - array(before))[0, -1].max()):
            before, after, number = one(before), one(after), number + 1
        needed.append(number)
        arrived.append(difference)
    assert needed == [1, 1, length - 1]
    print(f"{length:5}" + "".join(f"{number:22}" for number in needed) + f"     {arrived[0]:.0e}, {arrived[1]:.0e}")

# %% [markdown]
# ## 13. Real attention
#
# What the heads of a trained model look at. In "The animal didn't cross the street because it was too tired", `it` is
# the animal; if the sentence ended with "too wide", it would be the street. Which does a head of the first layer look
# at?

# %%
translator = kformer.Translator.from_preset("bible-en-es")
attention = translator.attention("The animal didn't cross the street because it was too tired.")
visualization.plot_attention_links(attention.encoder, "it", layer=0)

# %% [markdown]
# Neither. Head 0 looks at the token before, whatever it is, and head 2 at `The`. This small model, which has read only
# the Bible, does not find out who was tired, and a picture of attention does not say that a model has understood a
# sentence. What heads do look for shows in the maps of all of them: the token before, the token itself, the end.

# %%
visualization.plot_attention_heads(attention.encoder)

# %% [markdown]
# In the last layer nearly every token attends to the full stop and to the end, about half and half. Both are in almost
# every text. A head that has nothing to add to a token puts its attention there, because the weights must sum to 1:
# such tokens are called attention sinks (Xiao et al. 2023). So a bright column says little about the text.

# %%
for layer, weights in enumerate(attention.encoder.weights):
    print(f"layer {layer}: {weights[:, :-2, -2:].sum(axis=-1).mean():4.0%} of the attention goes to full stop and end")

# %% [markdown]
# The interactive view: choose encoder, decoder or cross-attention, a layer and heads; move the mouse over a token to
# see its lines alone.

# %%
visualization.AttentionView(*attention)
