"""Runs the searches of `kformer.decoding` with a model, as a `DecodingConfig` says, from ids to ids, on every backend.

Shape letters: B sentences, S source length, T target length, P tokens read at once.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from kformer.config import DecodingConfig, TransformerConfig
from kformer.decoding import (
    Constraint,
    ForcedEnd,
    MinLength,
    NoRepeatedNGrams,
    Prefix,
    SearchResult,
    SearchSpace,
    sample,
)
from kformer.decoding.beam_search import BeamSearch, check_beam_options
from kformer.decoding.greedy import GreedySearch
from kformer.decoding.opennmt_beam_search import OpenNMTBeamSearch
from kformer.decoding.sampling import check_sampling_options
from kformer.decoding.search import Search, run
from kformer.decoding.shrinking_batch import run_in_stretches
from kformer.decoding.transformers_beam_search import TransformersBeamSearch
from kformer.layers import Cache
from kformer.layers.tensors import Tensor
from kformer.models import StepwiseTransformer, reorder_rows
from kformer.models.decoder_only import StepwiseLanguageModel
from kformer.models.stepwise import Context, History
from kformer.text.codec import longest_translation

# Caches that can grow have room for so many positions at first: words that are to be pronounced seldom need more.
FIRST_ROOM = 8
# Full caches double, but do not grow by more positions than this at a time.
ROOM_STEP = 16


def _usual_first_room() -> int | None:
    """The value of `Searcher.first_room` that suits the current backend."""
    return FIRST_ROOM if keras.backend.backend() == "tensorflow" else None


@dataclasses.dataclass(frozen=True)
class Searcher:
    """Searches for the translations of a batch of sources.

    Args:
        model: From `build_transformer(config)`.
        config: The model's configuration.
        decoding: How to search.
        cache: The class that keeps keys and values, see `StepwiseTransformer`.
        first_room: Number of positions for which the caches have room at first. Full caches grow, and finished
            sentences leave the search. None for XLA, where shapes cannot change: then there is room for all positions
            from the start.
        stepwise: How the model decodes position by position; `StepwiseLanguageModel` for a decoder-only model.
        never: Ids that no translation has, such as those of tags that stand before targets.
    """

    model: keras.Model
    config: TransformerConfig
    decoding: DecodingConfig
    cache: type[Cache] = Cache
    first_room: int | None = dataclasses.field(default_factory=_usual_first_room)
    stepwise: type[StepwiseTransformer] = StepwiseTransformer
    never: tuple[int, ...] = ()

    def find(
        self,
        source: Tensor,
        limits: Tensor,
        starts: Tensor | None = None,
        n_best: int = 1,
        prefix: Tensor | None = None,
        length_penalty: Tensor | None = None,
        min_length: Tensor | None = None,
        read: Tensor | None = None,
    ) -> SearchResult:
        """Greedy search, or beam search if the beam size exceeds 1.

        Args:
            source: (B, S) int32 ids.
            limits: (B,) int32, the largest number of tokens of each translation.
            starts: (B,) int32, the ids that stand before the translations, in place of the start id, such as those of
                tags.
            n_best: Number of hypotheses to return for each sentence.
            prefix: (B, F) int32, see `kformer.decoding.Prefix`.
            length_penalty: () float32 in place of the configuration's. Its value is not checked.
            min_length: (B,) int32, the least number of tokens before the end of each translation, those of its prefix
                among them, in place of the configuration's. A limit that allows fewer counts.
            read: P, () int32: a decoder-only model reads the first P tokens of every prefix at once, and not one by
                one. Every prefix must have P tokens or more, and every limit must be P or more.

        Raises:
            ValueError: `n_best` exceeds the beam size. It is raised before the model runs.
        """
        check_beam_options(self.decoding.beam_size, self.decoding.length_penalty, n_best)
        penalty = self.decoding.length_penalty if length_penalty is None else length_penalty
        search = self._search(self.space(source, limits, starts, prefix, min_length), penalty, n_best, prefix)
        longest = self._buffer_length(source)
        stepwise = self._stepwise(longest, self.decoding.beam_size)
        if self.first_room is None:
            context, history = stepwise.start(source, longest)
            return run(search, stepwise.begin(context), history)
        if read is None:
            context, history = stepwise.start(source, ops.minimum(self.first_room, longest))
            return run_in_stretches(search, stepwise, context, history)
        room = ops.minimum(self.first_room + read, longest)
        context, history, *known = self._after_reading(stepwise, source, room, prefix, read, search.space)
        return run_in_stretches(search, stepwise, context, history, search.after(*known))

    def _after_reading(
        self,
        stepwise: StepwiseTransformer,
        source: Tensor,
        room: Tensor,
        prefix: Tensor | None,
        read: Tensor,
        space: SearchSpace,
    ) -> tuple[Context, History, Tensor, Tensor]:
        """Context and history after the first P tokens of the prefixes, and the arguments of `Search.after`."""
        if prefix is None or not isinstance(stepwise, StepwiseLanguageModel):
            raise ValueError("Only a decoder-only model reads the beginning of its prefixes at once. Leave out `read`.")
        batch_size = ops.shape(source)[0]
        tokens = ops.concatenate([ops.expand_dims(space.first_inputs(), 1), prefix[:, :read]], axis=1)  # (B, P + 1)
        history, log_probs = ops.cond(
            read > 0,
            lambda: stepwise.read(tokens, room),
            lambda: (stepwise.no_history(batch_size, room), ops.zeros((batch_size,), dtype="float32")),
        )
        return Context(*stepwise.encode(source), room), history, tokens, log_probs

    def _search(self, space: SearchSpace, length_penalty: float | Tensor, n_best: int, prefix: Tensor | None) -> Search:
        decoding = self.decoding
        if decoding.beam_size == 1:
            return GreedySearch(space)
        options = (space, decoding.beam_size, length_penalty, n_best, reorder_rows)
        if decoding.beam_rules == "transformers":
            given = None if prefix is None else self._lengths(prefix)
            rules = decoding.forced_end, given, decoding.first_is_free, decoding.early_stopping
            return TransformersBeamSearch(*options, *rules)
        kind = OpenNMTBeamSearch if decoding.beam_rules == "opennmt" else BeamSearch
        return kind(*options)

    def sample(
        self,
        source: Tensor,
        limits: Tensor,
        seed: int | Tensor,
        temperature: float | Tensor,
        top_k: int | Tensor,
        top_p: float | Tensor,
        starts: Tensor | None = None,
        prefix: Tensor | None = None,
        min_length: Tensor | None = None,
        read: Tensor | None = None,
    ) -> SearchResult:
        """Draws a translation of each source at random; see `find` and `kformer.decoding.sample` for the arguments.

        Raises:
            ValueError: An option is out of range. It is raised before the model runs.
        """
        check_sampling_options(seed, temperature, top_k, top_p)
        longest = self._buffer_length(source)
        stepwise = self._stepwise(longest, rows_per_source=1)
        space, known = self.space(source, limits, starts, prefix, min_length), None
        if read is None:
            context, history = stepwise.start(source, longest)
        else:
            context, history, *known = self._after_reading(stepwise, source, longest, prefix, read, space)
        return sample(
            stepwise.begin(context),
            history,
            space,
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            read=known,
        )

    def _lengths(self, prefix: Tensor) -> Tensor:
        """(B,) int32, the numbers of tokens of prefixes (B, F)."""
        return ops.sum(ops.cast(ops.not_equal(prefix, self.config.pad_id), "int32"), axis=1)

    def _stepwise(self, longest: int | Tensor, rows_per_source: int) -> StepwiseTransformer:
        return self.stepwise(self.model, longest, self.config.pad_id, rows_per_source, self.cache, more_room=ROOM_STEP)

    def space(
        self,
        source: Tensor,
        limits: Tensor,
        starts: Tensor | None = None,
        prefix: Tensor | None = None,
        min_length: Tensor | None = None,
    ) -> SearchSpace:
        """Which sequences may be found; the arguments are those of `find`."""
        config = self.config
        return SearchSpace(
            start_id=config.start_id,
            end_id=config.end_id,
            pad_id=config.pad_id,
            max_lengths=limits,
            buffer_length=self._buffer_length(source),
            constraints=self.constraints(limits, prefix, min_length),
            renormalize=self.decoding.renormalize,
            starts=starts,
            never=self.never,
        )

    def constraints(
        self, limits: Tensor, prefix: Tensor | None = None, min_length: Tensor | None = None
    ) -> list[Constraint]:
        """What every hypothesis must keep; the arguments are those of `find`. What is not here costs nothing."""
        found: list[Constraint] = []
        if self.decoding.forced_end:
            found.append(ForcedEnd(limits, self.config.end_id, self.config.pad_id))
        if self.decoding.first_id is not None:
            prefix = self._with_first(limits, prefix)
        if prefix is not None:
            found.append(Prefix(prefix, self.config.pad_id))
        if min_length is not None or self.decoding.min_length:
            least = self.decoding.min_length if min_length is None else min_length
            found.append(MinLength(ops.minimum(least, limits - 1)))  # there is room for the end
        if self.decoding.no_repeat_ngram_size:
            found.append(NoRepeatedNGrams(self.decoding.no_repeat_ngram_size))
        return found

    def _with_first(self, limits: Tensor, prefix: Tensor | None) -> Tensor:
        """Prefixes that begin with the first token of all translations. Tokenizers put it before what is not empty."""
        firsts = ops.full((ops.shape(limits)[0], 1), self.decoding.first_id, dtype="int32")
        if prefix is None:
            return firsts
        prefix = ops.pad(prefix, [[0, 0], [0, 1]], constant_values=self.config.pad_id)
        is_empty = ops.equal(prefix[:, :1], self.config.pad_id)
        return ops.concatenate([ops.where(is_empty, firsts, prefix[:, :1]), prefix[:, 1:]], axis=1)

    def _buffer_length(self, source: Tensor) -> int | Tensor:
        """The length of the longest translation. It is computed from the shape of `source` alone, as XLA needs it."""
        length = ops.shape(source)[1] - 1 + self.decoding.max_extra_length
        longest = longest_translation(self.config, self.decoding)
        if longest is None:
            return length
        return min(length, longest) if isinstance(length, int) else ops.minimum(length, longest)


def compiled_search(searcher: Searcher) -> Callable[..., SearchResult]:
    """Compiles `searcher.find` with the current backend. Each call uses the weights that the model has at that time.

    JAX compiles once for every shape of the arguments.

    Returns:
        A function of the first three arguments of `Searcher.find`, of which the last may be left out.
    """
    find = _compiled(searcher)

    def search(source: np.ndarray, limits: np.ndarray, starts: np.ndarray | None = None) -> SearchResult:
        return find(
            source, limits, np.full(len(limits), searcher.config.start_id, "int32") if starts is None else starts
        )

    return search


def _compiled(searcher: Searcher) -> Callable[..., SearchResult]:
    if keras.backend.backend() == "jax":
        return _compiled_by_jax(searcher)
    import tensorflow as tf

    signature = [tf.TensorSpec([None] * rank, tf.int32) for rank in (2, 1, 1)]
    return tf.function(lambda *given: searcher.find(*given), signature, autograph=False)


def _compiled_by_jax(searcher: Searcher) -> Callable[..., SearchResult]:
    import jax

    variables = searcher.model.variables

    @jax.jit
    def find(weights: list[Tensor], *given: Tensor) -> SearchResult:
        with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
            return searcher.find(*given)

    return lambda *given: find(own_values(variables), *given)


def own_values(variables: list[keras.Variable]) -> list[Tensor]:
    """The values of `variables` on one device of this process.

    JAX may keep a copy of each variable on many devices. A computation with these values uses one device, and does not
    wait for other processes.
    """
    if keras.backend.backend() != "jax":
        return [variable.value for variable in variables]
    return [variable.value.addressable_data(0) for variable in variables]
