"""Token embeddings that also give the logits before the softmax (section 3.4).

Shape letters: B batch, T length, D model size, E size of the embedding vectors, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from kformer.layers.dense import Arithmetic, Dense
from kformer.layers.initializers import small_normal, unit_variance
from kformer.layers.tensors import Tensor


def take_embeddings(matrix: Tensor, ids: Tensor) -> Tensor:
    """Rows (..., D) of a matrix (V, D) for integer ids (...), with a gradient that is a dense tensor.

    TensorFlow's own gradient is a list of slices, which Keras's gradient accumulation adds up incorrectly.
    """
    vocab_size, width = matrix.shape

    @ops.custom_gradient
    def take(matrix: Tensor) -> tuple[Tensor, Any]:
        def gradient(*args: Any, upstream: Any = None) -> Tensor:
            if upstream is None:  # TensorFlow and JAX pass it by position
                (upstream,) = args
            slices = ops.reshape(ops.cast(upstream, "float32"), (-1, width))
            sums = ops.segment_sum(slices, ops.reshape(ids, (-1,)), num_segments=vocab_size)  # (V, D)
            return ops.cast(sums, matrix.dtype)

        return ops.take(matrix, ids, axis=0), gradient

    return take(matrix)


@keras.saving.register_keras_serializable(package="kformer")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """Maps ids to embeddings times sqrt(d_model); called in reverse, it projects vectors to logits of the vocabulary.

    With `tie_weights`, embedding and projection use one matrix. One such layer for source, target and softmax is the
    three-way weight tying of section 3.4.

    Ids are not checked, as in Keras: this would cost an operation in every step. The id -1 gives the last row without
    an error. Labels may have a padding of -1 or -100, but ids that are embedded must be from 0 to V - 1.

    Args:
        input_dim: V.
        output_dim: D.
        tie_weights: Whether the reverse projection shares the matrix.
        train_embeddings: Whether training changes the matrix of the embeddings.
        scale_embeddings: Whether embeddings are multiplied by sqrt(d_model).
        kwargs: Those of `keras.layers.Embedding`: with `mask_zero=True`, the vectors carry an implicit Keras mask that
            hides the id 0.

    Examples:
        >>> embedding = TokenEmbedding(input_dim=100, output_dim=8)
        >>> vectors = embedding(np.array([[3, 5]]))
        >>> tuple(vectors.shape), tuple(embedding(vectors, reverse=True).shape), len(embedding.weights)
        ((1, 2, 8), (1, 2, 100), 1)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        train_embeddings: bool = True,
        scale_embeddings: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("embeddings_initializer", small_normal())
        super().__init__(input_dim, output_dim, tie_weights=tie_weights, **kwargs)
        self.supports_masking = True
        self.train_embeddings = train_embeddings
        self.scale_embeddings = scale_embeddings

    def build(self, input_shape: tuple | None = None) -> None:
        super().build(input_shape)
        self.embeddings.trainable = self.train_embeddings

    @property
    def trainable(self) -> bool:
        """Whether training changes the weights. Embeddings that were frozen stay so, whatever is set here."""
        return super().trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.ReversibleEmbedding.trainable.fset(self, value)
        if self.built:
            self.embeddings.trainable = value and self.train_embeddings

    def freeze_embeddings(self) -> None:
        """Excludes the embedding matrix from training. Compile the model after this call, not before."""
        self.train_embeddings = False
        if self.built:
            self.embeddings.trainable = False

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Embeds ids, or projects vectors to logits.

        Args:
            inputs: (B, T) integer ids; with `reverse`, (B, T, D) floats.
            reverse: Whether to project to logits (the signature of `keras.layers.ReversibleEmbedding`).

        Returns:
            (B, T, D) floats; with `reverse`, (B, T, V) logits.
        """
        return self.project(inputs) if reverse else self._scaled(self.embed(inputs))

    def quantize(self, mode: str | None = None, type_check: bool = True, config: Any = None) -> None:
        """As Keras's layer. A class that extends this one is refused: Keras would leave out what it adds.

        Raises:
            NotImplementedError: The class extends `TokenEmbedding`. `keras.Model.quantize` turns this into a warning,
                and quantizes the other layers.
        """
        if type(self) is not TokenEmbedding:
            raise NotImplementedError(
                f"{type(self).__name__} extends TokenEmbedding and is not quantized: Keras would leave out what it "
                "adds. Give it a `quantize` and a `quantized_call` of its own, or leave it as it is."
            )
        super().quantize(mode, type_check=False, config=config)

    def quantized_call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """What Keras calls in place of `call` when the matrix is quantized."""
        found = super().quantized_call(inputs, reverse=reverse)
        return found if reverse else self._scaled(found)

    def save_own_variables(self, store: Any) -> None:
        """As Keras's layer, but with one copy of the matrix in memory and not two, which large vocabularies need."""
        super().save_own_variables(_TensorStore(store))

    def _scaled(self, vectors: Tensor) -> Tensor:
        """(B, T, D) vectors times sqrt(D), unless embeddings are not scaled."""
        return vectors * vectors.shape[-1] ** 0.5 if self.scale_embeddings else vectors

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """The implicit Keras mask (B, T) of the result: with `mask_zero`, True where an id is not 0.

        Logits carry the mask of the vectors that were projected.
        """
        # Vectors (B, T, D) were projected. Floats of fewer dimensions are ids: `keras.Input` has that dtype by default.
        is_reverse = len(inputs.shape) > 2 and keras.backend.is_float_dtype(inputs.dtype)
        return ops.not_equal(inputs, 0) if self.mask_zero and not is_reverse else mask

    def embed(self, inputs: Tensor) -> Tensor:
        """(B, T) integer ids to (B, T, D) rows of the matrix, not yet scaled."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.embed(self, inputs)
        # Keras may return a TensorFlow variable, which allows no custom gradient. The copy is a tensor.
        rows = take_embeddings(ops.copy(self.embeddings), ops.cast(inputs, "int32"))
        return ops.cast(rows, self.compute_dtype)

    def project(self, inputs: Tensor) -> Tensor:
        """(B, T, D) floats to (B, T, V) logits."""
        if isinstance(self.dtype_policy, Arithmetic):
            return self.dtype_policy.project(self, inputs)
        return super().call(inputs, reverse=True)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "train_embeddings": self.train_embeddings,
            "scale_embeddings": self.scale_embeddings,
        }


@keras.saving.register_keras_serializable(package="kformer")
class ProjectedTokenEmbedding(TokenEmbedding):
    """Embeddings of another size than the model's: a learned projection without bias follows them.

    If the softmax shares the matrix, a second projection, from D to E, precedes it. If not, the matrix of the softmax
    has D rows and needs no projection. When training begins, both projections keep the variance of their inputs, so
    embeddings and logits are as large as without them.

    Args:
        input_dim: V.
        output_dim: E.
        d_model: D.
        reversible: Whether the layer is called in reverse, too. If not, it has no weights for that.
        kwargs: Those of `TokenEmbedding`.

    Examples:
        >>> embedding = ProjectedTokenEmbedding(input_dim=100, output_dim=3, d_model=8)
        >>> vectors = embedding(np.array([[3, 5]]))
        >>> tuple(vectors.shape), tuple(embedding(vectors, reverse=True).shape)
        ((1, 2, 8), (1, 2, 100))
        >>> [tuple(weight.shape) for weight in embedding.weights]
        [(100, 3), (3, 8), (8, 3)]
    """

    def __init__(self, input_dim: int, output_dim: int, d_model: int, reversible: bool = True, **kwargs: Any) -> None:
        super().__init__(input_dim, output_dim, **kwargs)
        self.d_model = d_model
        self.reversible = reversible
        self.input_projection = self._projection(d_model, "input_projection")
        self.output_projection = None
        if reversible and self.tie_weights:
            self.output_projection = self._projection(output_dim, "output_projection")

    def _projection(self, units: int, name: str) -> Dense:
        return Dense(units, use_bias=False, kernel_initializer=unit_variance(), dtype=self.dtype_policy, name=name)

    def build(self, input_shape: tuple | None = None) -> None:
        keras.layers.Embedding.build(self, input_shape)
        self.embeddings.trainable = self.train_embeddings
        self.input_projection.build((None, self.output_dim))
        if self.output_projection is not None:
            self.output_projection.build((None, self.d_model))
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                shape=(self.d_model, self.input_dim), initializer=self.embeddings_initializer, name="reverse_embeddings"
            )

    def embed(self, inputs: Tensor) -> Tensor:
        """(B, T) integer ids to (B, T, D) projected rows of the matrix, not yet scaled."""
        return self.input_projection(super().embed(inputs))

    def project(self, inputs: Tensor) -> Tensor:
        """(B, T, D) floats to (B, T, V) logits."""
        return super().project(inputs if self.output_projection is None else self.output_projection(inputs))

    def compute_output_shape(self, input_shape: tuple, reverse: bool = False) -> tuple:
        return (*input_shape[:-1], self.input_dim) if reverse else (*input_shape, self.d_model)

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(tuple(inputs.shape), reverse), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model, "reversible": self.reversible}


class _TensorStore:
    """Hands values on to a store as tensors. Keras copies a tensor once when it saves it, but a variable twice."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __setitem__(self, key: str, value: Any) -> None:
        self._store[key] = ops.copy(value)  # of a variable, a tensor
