"""Converts pairs of texts to pairs of token ids.

Shapes: N pairs, I ids in all, L links in all.
"""

import bisect
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kformer.data.encoded_ids import LARGEST_PLACE, EncodedChunk, IdStore, MemoryIds, Sequences, id_type
from kformer.data.pairs import Pair, check_pairs
from kformer.data.token_links import token_links
from kformer.process.threads import in_threads
from kformer.tokenizers.base import Tokenizer, is_surely_longer
from kformer.wording import count

_PAIRS_PER_CALL = 2000
_IDS_AT_ONCE = 1 << 24

# From some pairs to the ids of their sources and of their targets, and to their links if the store keeps these.
Encode = Callable[[Sequence[Pair]], tuple[Sequences, ...]]


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """The token ids of pairs. All sequences of a side are joined in one array, each with its end id.

    Attributes:
        source_ids, target_ids: (I,) unsigned integers of 16 bits, or int32 for a vocabulary of more than 65,536 tokens.
        source_offsets, target_offsets: (N + 1,) int64. The ids of pair n are `ids[offsets[n]:offsets[n + 1]]`.
        source_pad_id, target_pad_id: the ids that fill up the rows of a batch.
        start_id: the id before the first target token.
        max_length: the largest number of tokens of a sequence, the end id included.
        skipped_blank: the number of pairs that were left out because a side is blank.
        skipped_long: the number of other pairs that were left out because a side is longer than `max_length`.
        parts: the number of pairs of each of several corpora, one after another; nothing for one corpus.
        part_start_ids: for each of them, the id before the first target token; nothing: it is `start_id`.
        links: (2 L,) unsigned integers of 16 bits: the places of a source token and of a target token that translate
            each other, one link after another. None: the pairs are not aligned.
        link_offsets: (N + 1,) int64. The links of pair n are `links[offsets[n]:offsets[n + 1]]`.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])  # with the ids 4 and 5; 2 is the end
        >>> encoded = encode_pairs([("a b", "b"), ("a", "a b")], tokenizer, tokenizer, max_length=8)
        >>> encoded.source_ids.tolist(), encoded.source_offsets.tolist()
        ([4, 5, 2, 4, 2], [0, 3, 5])
    """

    source_ids: np.ndarray
    source_offsets: np.ndarray
    target_ids: np.ndarray
    target_offsets: np.ndarray
    source_pad_id: int
    target_pad_id: int
    start_id: int
    max_length: int
    skipped_blank: int
    skipped_long: int
    parts: tuple[int, ...] = ()
    part_start_ids: tuple[int, ...] = ()
    links: np.ndarray | None = None
    link_offsets: np.ndarray | None = None

    @property
    def kept(self) -> int:
        """The number of pairs, N."""
        return len(self.source_offsets) - 1

    def apart(self) -> list["EncodedPairs"]:
        """The pairs of each of several corpora, in their order. What was skipped is not known of each.

        Examples:
            >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])
            >>> both = encode_pairs([("a b", "b"), ("a", "a b")], tokenizer, tokenizer, max_length=8)
            >>> [one.source_ids.tolist() for one in dataclasses.replace(both, parts=(1, 1)).apart()]
            [[4, 5, 2], [4, 2]]
        """
        ends = itertools.accumulate(self.parts)
        starts = self.part_start_ids or [self.start_id] * len(self.parts)
        return [
            self._slice(end - number, end, start) for number, end, start in zip(self.parts, ends, starts, strict=True)
        ]

    def starts_of(self, pairs: np.ndarray) -> np.ndarray:
        """(B,) int32: the id before the first target token of each pair, by the pairs' numbers.

        Examples:
            >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])
            >>> both = encode_pairs([("a b", "b"), ("a", "a b"), ("b", "b")], tokenizer, tokenizer, max_length=8)
            >>> both = dataclasses.replace(both, parts=(1, 2), part_start_ids=(4, 5))
            >>> both.starts_of(np.array([2, 0, 1])).tolist()
            [5, 4, 5]
        """
        if not self.part_start_ids:
            return np.full(len(pairs), self.start_id, np.int32)
        part = np.searchsorted(np.cumsum(self.parts), pairs, side="right")
        return np.array(self.part_start_ids, np.int32)[part]

    def _slice(self, first: int, end: int, start_id: int) -> "EncodedPairs":
        def sliced(ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            some = offsets[first : end + 1]
            return ids[some[0] : some[-1]], some - some[0]

        source_ids, source_offsets = sliced(self.source_ids, self.source_offsets)
        target_ids, target_offsets = sliced(self.target_ids, self.target_offsets)
        links, link_offsets = self.links, self.link_offsets
        if links is not None and link_offsets is not None:
            links, link_offsets = sliced(links, link_offsets)
        return dataclasses.replace(
            self,
            source_ids=source_ids,
            source_offsets=source_offsets,
            target_ids=target_ids,
            target_offsets=target_offsets,
            start_id=start_id,
            skipped_blank=0,
            skipped_long=0,
            parts=(),
            part_start_ids=(),
            links=links,
            link_offsets=link_offsets,
        )

    def report(self) -> str:
        """One line that says how many pairs were kept and how many were skipped."""
        links = "" if self.links is None else f", {count(len(self.links) // 2, 'link')} between them"
        return (
            f"{count(self.kept, 'pair')} kept "
            f"({len(self.source_ids):,} source and {len(self.target_ids):,} target tokens{links}); "
            f"skipped: {self.skipped_blank:,} blank, {self.skipped_long:,} longer than {self.max_length} tokens"
        )


def encode_pairs(
    pairs: Iterable[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_length: int,
    store: IdStore | None = None,
) -> EncodedPairs:
    """The token ids of (source, target) pairs, with the end id on both sides.

    No texts are held, so the pairs may be those of a part of a corpus that is larger than the memory. The ids are held,
    unless a `store` keeps them (see `kformer.data.encoded_ids`). A store that is `aligned` gets the alignments, too: an
    alignment of words becomes one of all their tokens.

    A pair is skipped if one of its sides is blank, or has more than `max_length` tokens together with the end id. A
    text with more than 1,000 characters for each of these tokens, white space not counted, is too long in any case (see
    `is_surely_longer`). It is not tokenized, because a line of 100 MB would take 10 GB of memory.

    Raises:
        ValueError: No pair is left, or a tokenizer cannot tell the places of its tokens for an alignment.

    Examples:
        >>> tokenizer = kformer.tokenizers.SymbolTokenizer(["a", "b"])
        >>> encode_pairs([("a b", "b"), ("a", " "), ("a b a b", "b")], tokenizer, tokenizer, max_length=4).report()
        '1 pair kept (3 source and 2 target tokens); skipped: 1 blank, 1 longer than 4 tokens'
    """
    check_pairs(pairs)

    aligned = store is not None and store.aligned

    def encode(pairs: Sequence[Pair]) -> tuple[Sequences, ...]:
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        both = ended(sources, source_tokenizer, source_tokenizer.closing_ids), ended(targets, target_tokenizer)
        return (*both, token_links(pairs, source_tokenizer, target_tokenizer)) if aligned else both

    return encode_with(encode, pairs, source_tokenizer, target_tokenizer, max_length, store)


def encode_with(
    encode: Encode,
    pairs: Iterable[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_length: int,
    store: IdStore | None = None,
) -> EncodedPairs:
    """The ids of pairs, as `encode` makes them of texts. Pairs are skipped as by `encode_pairs`.

    Args:
        encode: From up to 2,000 pairs, without blank or very long texts, to the sequences of both sides, and of the
            links if the `store` is aligned. A sequence without a token before its end id, and one of more than
            `max_length` ids, is skipped. Several threads call it at the same time.
        pairs: The texts.
        source_tokenizer, target_tokenizer: Their pad ids fill up batches; the start id is that of the target.
        max_length: The largest number of ids of a sequence.
        store: Where the ids are kept; None: in memory. Of pairs whose ids it has already, no new ones are made.

    Raises:
        ValueError: No pair is left, or an id is none of its vocabulary and cannot be kept.
    """
    store = MemoryIds() if store is None else store
    sizes = source_tokenizer.vocab_size, target_tokenizer.vocab_size
    known = store.open(*sizes)
    if known is not None:
        chunks = _chunks(pairs, known, store.sizes)
        for chunk in in_threads(functools.partial(_encoded, encode, max_length, sizes, store.aligned), chunks):
            store.add(chunk)
    kept = store.close()
    (source_ids, source_offsets), (target_ids, target_offsets), *aligned = kept.sides
    links, link_offsets = aligned[0] if aligned else (None, None)
    encoded = EncodedPairs(
        source_ids,
        source_offsets,
        target_ids,
        target_offsets,
        source_pad_id=source_tokenizer.pad_id,
        target_pad_id=target_tokenizer.pad_id,
        start_id=target_tokenizer.start_id,
        max_length=max_length,
        skipped_blank=kept.counts["blank"],
        skipped_long=kept.counts["long"],
        parts=tuple(kept.counts[f"part {number}"] for number in range(len(store.sizes))),
        links=links,
        link_offsets=link_offsets,
    )
    if not encoded.kept:
        read = kept.counts["read"]
        raise ValueError(f"No pair of {read:,} is left: {encoded.report()}. Check the texts or raise max_length.")
    return encoded


def rows_of(ragged: tf.RaggedTensor) -> Sequences:
    """The rows of ids of a (N, None) int32 tensor."""
    return Sequences(ragged.flat_values.numpy(), ragged.row_lengths().numpy())


def ended(texts: Sequence[str], tokenizer: Tokenizer, ends: Sequence[int] | None = None) -> Sequences:
    """The ids of each text, with the end id, or with other ids at its end."""
    ends = (tokenizer.end_id,) if ends is None else ends
    ids, counts = tokenizer.ids_of(texts)
    texts_before = np.repeat(np.arange(len(counts)), counts)  # the number of texts before each token
    is_end = np.ones(len(ids) + len(counts) * len(ends), bool)
    is_end[np.arange(len(ids)) + texts_before * len(ends)] = False
    with_ends = np.empty(len(is_end), np.int32)
    with_ends[~is_end], with_ends[is_end] = ids, np.tile(ends, len(counts))
    return Sequences(with_ends, counts + len(ends))


def count_tokens(ids: np.ndarray) -> Counter[int]:
    """How often each id is in an array, which may lie on the disk."""
    counts: Counter[int] = Counter()
    for start in range(0, len(ids), _IDS_AT_ONCE):
        found, numbers = np.unique(ids[start : start + _IDS_AT_ONCE], return_counts=True)
        counts.update(dict(zip(found.tolist(), numbers.tolist(), strict=True)))
    return counts


def token_share(ids: np.ndarray, some: Iterable[int]) -> float:
    """The share of some ids in an array.

    Examples:
        >>> token_share(np.array([1, 2, 2, 3]), [2, 7])
        0.5
    """
    counts = count_tokens(ids)
    return sum(counts[token] for token in {*map(int, some)}) / max(1, counts.total())


class _Chunk(NamedTuple):
    """Some pairs, and the number of the corpus that they are of; None if there is one corpus."""

    pairs: list[Pair]
    part: int | None


class Continued(tuple[str, str]):
    """A pair with a further piece of the text of the pair before it, with which it counts as one pair of a corpus."""


def _chunks(pairs: Iterable[Pair], known: int, sizes: Sequence[int]) -> Iterator[_Chunk]:
    """The pairs behind so many that are known already. A chunk has pairs of one corpus only."""
    ends = list(itertools.accumulate(sizes))
    chunk: list[Pair] = []
    chunk_part, whole = None, -1  # the number of the last pair, without counting those that are continued
    for number, pair in enumerate(pairs):
        whole += not isinstance(pair, Continued)
        if number < known:
            continue
        part = bisect.bisect_right(ends, whole) if ends else None
        if chunk and (part != chunk_part or len(chunk) == _PAIRS_PER_CALL):
            yield _Chunk(chunk, chunk_part)
            chunk = []
        chunk.append(pair)
        chunk_part = part
    if chunk:
        yield _Chunk(chunk, chunk_part)


def _encoded(encode: Encode, max_length: int, sizes: tuple[int, int], aligned: bool, chunk: _Chunk) -> EncodedChunk:
    """The ids of some pairs, without those that are blank or too long."""
    counts = Counter(read=len(chunk.pairs))
    readable = list(_readable(chunk.pairs, max_length, counts))
    nothing = Sequences(np.empty(0, np.int32), np.empty(0, np.int64))
    sources, targets, *links = encode(readable) if readable else [nothing] * (3 if aligned else 2)
    full = (sources.counts > 1) & (targets.counts > 1)  # (B,), of the readable pairs
    fits = np.maximum(sources.counts, targets.counts) <= max_length
    counts["blank"] += int(np.sum(~full))
    counts["long"] += int(np.sum(full & ~fits))
    kept = full & fits
    if chunk.part is not None:
        counts[f"part {chunk.part}"] = int(np.sum(kept))
    kept_links = _kept(links[0], kept, LARGEST_PLACE + 1) if links else None
    return EncodedChunk(_kept(sources, kept, sizes[0]), _kept(targets, kept, sizes[1]), counts, kept_links)


def _kept(sequences: Sequences, keep: np.ndarray, vocab_size: int) -> Sequences:
    """The sequences to keep, (B,) booleans, with ids of the type for this number of tokens."""
    ids, dtype = sequences.ids[np.repeat(keep, sequences.counts)], id_type(vocab_size)
    most = np.iinfo(dtype)
    if ids.size and not most.min <= ids.min() <= ids.max() <= most.max:
        raise ValueError(
            f"A tokenizer gave ids from {ids.min()} to {ids.max()}. Expected: ids from 0 up and below its "
            f"vocab_size, {vocab_size:,}. Correct the tokenizer's vocab_size."
        )
    return Sequences(ids.astype(dtype), sequences.counts[keep])


def _readable(pairs: Iterable[Pair], max_length: int, counts: Counter[str]) -> Iterator[Pair]:
    """The pairs without a blank or a very long text; `counts` gets the numbers of those left out."""
    for pair in pairs:
        if not all(text.strip() for text in pair):
            counts["blank"] += 1
        elif any(is_surely_longer(text, max_length) for text in pair):
            counts["long"] += 1
        else:
            yield pair
