"""Word alignments: read beside their pairs, kept with them, and told of their tokens."""

import copy
import gzip
import itertools
import pickle
import random

import numpy as np
import pytest
import tensorflow as tf

from kformer.config import TrainingConfig
from kformer.data import (
    AlignedFile,
    AlignedPair,
    BatchPlan,
    Cleaning,
    Corpus,
    JoinedFiles,
    ParallelFiles,
    TsvFile,
    corpus_from_pairs,
    encode_pairs,
    join_corpora,
    make_dataset,
    prepare_corpus,
    train_tokenizers,
)
from kformer.data.arrangements import AlignedTarget, ShiftedTarget
from kformer.data.encoded_ids import MemoryIds
from kformer.data.prepared.shards import FILES, LINK_FILES, ShardedIds
from kformer.data.token_links import token_links
from kformer.files.checksums import DamagedFileError
from kformer.tokenizers import SymbolTokenizer, WordTokenizer
from kformer.tokenizers.offsets import Spans

pytestmark = pytest.mark.tensorflow_only


def numbers(count=211, blank=(), longest=5):
    """Pairs of number words, each with its own words: the source in the order 0 1 2, the target reversed; and links."""
    drawn = random.Random(3)
    pairs = []
    for number in range(count):
        words = [f"{drawn.randrange(30)}" for _ in range(drawn.randint(1, longest))]
        text = "" if number in blank else " ".join(words)
        links = [] if number in blank else [(place, len(words) - 1 - place) for place in range(len(words))]
        pairs.append(AlignedPair(text, " ".join(f"n{word}" for word in reversed(text.split())), links))
    return pairs


def written(folder, pairs, name="pairs"):
    """The files of pairs, of which the lines of the alignments are as fast_align writes them."""
    tsv, align = folder / f"{name}.tsv", folder / f"{name}.align"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    align.write_text("".join(" ".join(f"{s}-{t}" for s, t in pair.links) + "\n" for pair in pairs))
    return AlignedFile(TsvFile(tsv), align)


def tokens_in_links(encoded, tokenizers):
    """The tokens that links join, pair by pair, in words."""
    source, target = (np.array(tokenizer.tokens()) for tokenizer in tokenizers)
    found = []
    for first, second, start, end in zip(
        encoded.source_offsets[:-1], encoded.target_offsets[:-1], *pairwise(encoded.link_offsets), strict=True
    ):
        links = encoded.links[start:end].reshape(-1, 2).astype(int)
        found.append(
            [(source[encoded.source_ids[first + s]], target[encoded.target_ids[second + t]]) for s, t in links]
        )
    return found


def pairwise(offsets):
    return zip(*itertools.pairwise(offsets), strict=True)


@pytest.fixture(scope="module")
def words():
    return SymbolTokenizer([f"{n}" for n in range(30)]), SymbolTokenizer([f"n{n}" for n in range(30)])


# ---- pairs and files


def test_a_pair_with_links_is_a_pair_like_any_other():
    pair = AlignedPair("a b", "c", [(0, 0), (1, 0)])
    assert pair == ("a b", "c")
    for same in (copy.copy(pair), pickle.loads(pickle.dumps(pair))):
        assert (same, same.links) == (("a b", "c"), ((0, 0), (1, 0)))


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_again_and_again_as_aligners_write_it(tmp_path, packed):
    (tmp_path / "a.en").write_text("the white house\n\nyes\n")
    (tmp_path / "a.es").write_text("la casa blanca\n\nsí\n")
    text = "0-0  1-2\t2-1 \n\n\n"
    (tmp_path / "a.align").write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = AlignedFile(ParallelFiles(tmp_path / "a.en", tmp_path / "a.es"), tmp_path / "a.align")
    expected = [("the white house", "la casa blanca"), ("", ""), ("yes", "sí")]
    for _ in range(2):
        assert list(found) == expected
        assert [pair.links for pair in found] == [((0, 0), (1, 2), (2, 1)), (), ()]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("0-0 1:1", "line 2: '1:1' is no link. Expected links such as 0-0 1-2"),
        ("0-0 1", "line 2: '1' is no link"),
        ("0--1", "line 2: '0--1' is no link"),
        ("٠-0", "line 2: '٠-0' is no link"),
        ("0-0 2-0", r"line 2: the link 2-0 names a word that is not there. .* 2 source words and 1 target word "),
        ("0-1", "line 2: the link 0-1 names a word that is not there"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, told):
    (tmp_path / "p.tsv").write_text("a\tb\none two\tuno\n")
    (tmp_path / "p.align").write_text(f"0-0\n{line}\n")
    with pytest.raises(ValueError, match=rf"p\.align, {told}"):
        list(AlignedFile(TsvFile(tmp_path / "p.tsv"), tmp_path / "p.align"))


@pytest.mark.parametrize(("lines", "told"), [(1, "with 1 line, for .*p.tsv with 2 pairs"), (3, "with 3 lines, for ")])
def test_there_must_be_a_line_for_each_pair(tmp_path, lines, told):
    (tmp_path / "p.tsv").write_text("a\tb\na\tb\n")
    (tmp_path / "p.align").write_text("0-0\n" * lines)
    with pytest.raises(ValueError, match=rf"a line of alignments for each pair. Received: .*p\.align {told}"):
        list(AlignedFile(TsvFile(tmp_path / "p.tsv"), tmp_path / "p.align"))


def test_lines_that_are_left_out_would_move_the_alignments():
    pairs = TsvFile("p.tsv")
    pairs.skip_bad_lines = True
    with pytest.raises(ValueError, match="must all be read. Received: skip_bad_lines=True"):
        AlignedFile(pairs, "p.align")


# ---- from words to tokens


MAKERS = {
    "bpe": lambda pairs: train_tokenizers(pairs, TrainingConfig(vocab_size=320)),
    "unigram": lambda pairs: train_tokenizers(pairs, TrainingConfig(vocab_size=300, tokenizer="unigram")),
    "words": lambda pairs: train_tokenizers(pairs, TrainingConfig(tokenizer="words")),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_links_join_exactly_the_tokens_of_the_two_words(kind):
    """Texts with other blanks, letters of several bytes, decomposed and unknown ones: each token is in its word."""
    texts = ["Añó  de\u00a0luz,", "e\u0301l 日本 x\u200b y", " día  ", "😀 vi-vo \u3000 fin."]
    pairs = [(text, text) for text in ["año de luz, él x y", "día vivo fin."]] * 5
    tokenizer, _ = MAKERS[kind](pairs)
    for text in texts:
        words = text.split()
        for number, word in enumerate(words):
            links = token_links([AlignedPair(text, text, [(number, number)])], tokenizer, tokenizer)
            found = list(map(tuple, links.ids.reshape(-1, 2).tolist()))
            places = sorted({source for source, _ in found})
            ids = tokenizer.tokenize([text]).to_list()[0]
            before = tokenizer.tokenize([" ".join(words[:number])]).to_list()[0]
            until = tokenizer.tokenize([" ".join(words[: number + 1])]).to_list()[0]
            assert ids[: len(until)] == until, (text, word)  # of these texts, a word has the same tokens in any text
            assert places == list(range(len(before), len(until))), (text, word)
            assert sorted(found) == list(itertools.product(places, places))
            assert links.counts.tolist() == [2 * len(found)]


class Spanned(SymbolTokenizer):
    """A tokenizer of which the bytes of each token are given, text by text; some tokens have the start id."""

    spans: dict[bytes, list[tuple[int, int]]]
    starts: tuple[bytes, ...] = ()

    def tokenize_with_offsets(self, text):
        texts = text.numpy().tolist()
        ids = [[4] * len(self.spans[one]) for one in texts]
        for row, one in zip(ids, texts, strict=True):
            row[0] = self.start_id if one in self.starts else 4
        start, end = ([[span[side] for span in self.spans[one]] for one in texts] for side in (0, 1))
        return Spans(tf.ragged.constant(ids, tf.int32), *(tf.ragged.constant(s, tf.int64) for s in (start, end)))


def test_blanks_and_tokens_without_bytes_belong_to_the_words_where_they_are():
    tokenizer = Spanned(["a"])
    tokenizer.spans = {
        # é has two bytes: 0 and 1. That of the last word: 6 and 7.
        "é ab é".encode(): [(0, 0), (0, 2), (2, 2), (2, 5), (5, 6), (6, 8), (8, 8)],
        b"ab ": [(0, 0), (0, 2), (2, 3)],
        b"c": [(0, 1)],
        b"a b c": [(0, 3), (3, 5)],
    }
    tokenizer.starts = (b"ab ",)

    def places(*pairs):
        links = token_links(pairs, tokenizer, tokenizer)
        ends = np.cumsum(links.counts)
        of_pairs = [links.ids[end - number : end] for number, end in zip(links.counts, ends, strict=True)]
        return [sorted(set(one.reshape(-1, 2)[:, 0].tolist())) for one in of_pairs]

    # A blank alone begins the word behind it; bytes of a letter lie where it begins or where it ends.
    assert places(*(AlignedPair("é ab é", "c", [(word, 0)]) for word in range(3))) == [[0, 1, 2], [3], [4, 5, 6]]
    # A blank at the end is a part of the last word, not of the next text; a special token is none of any.
    assert places(AlignedPair("ab ", "c", [(0, 0)]), AlignedPair("c", "c", [(0, 0)])) == [[1, 2], [0]]
    # A token of two words has the links of both.
    assert places(*(AlignedPair("a b c", "c", [(word, 0)]) for word in range(3))) == [[0], [0], [1]]


def test_pairs_without_links_and_those_with_them_may_be_neighbours(words):
    pairs = [("1 2", "n2 n1"), AlignedPair("3 4", "n4 n3", [(0, 1)]), AlignedPair("5", "n5", [])]
    links = token_links(pairs, *words)
    assert (links.ids.tolist(), links.counts.tolist()) == ([0, 1], [0, 2, 0])


# ---- ids, in memory and on the disk


def test_links_are_kept_of_those_pairs_that_are_kept(words):
    pairs = numbers(blank={0, 7, 8}, longest=9)
    encoded = encode_pairs(pairs, *words, max_length=7, store=MemoryIds(aligned=True))
    assert encoded.skipped_blank == 3
    assert encoded.skipped_long > 10
    short = [pair for pair in pairs if 0 < len(pair[0].split()) < 7]
    assert f" target tokens, {len(encoded.links) // 2} links between them); skipped: 3 blank" in encoded.report()
    assert tokens_in_links(encoded, words) == [[(word, f"n{word}") for word in pair[0].split()] for pair in short]
    assert encode_pairs(pairs, *words, max_length=7).links is None


def test_links_on_the_disk_are_those_in_memory_and_are_checked(words, tmp_path):
    pairs = numbers(5003, blank={5})
    expected = encode_pairs(pairs, *words, max_length=5, store=MemoryIds(aligned=True))
    folder = tmp_path / "ids"

    def on_disk(pairs):
        return encode_pairs(pairs, *words, max_length=5, store=ShardedIds(folder, shard_pairs=1009, aligned=True))

    def stopped():
        yield from pairs[:4500]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_disk(stopped())
    assert (folder / "journal").is_file()
    on_disk(pairs)
    found = on_disk(iter(()))  # from the disk alone
    assert isinstance(found.links, np.memmap)
    for name in ("source_ids", "target_offsets", "links", "link_offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.links.dtype == expected.links.dtype == np.uint16
    assert {path.name for path in folder.iterdir()} == {*FILES, *LINK_FILES, "shards.json", "SHA256SUMS"}
    with open(folder / "links.ids", "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    with pytest.raises(DamagedFileError, match=r"links.ids, shard 1 of 3 .* does not match its checksum"):
        on_disk(pairs)


def all_rows(plan, seed=7):
    """(source ids, target ids, links) of each row of all batches, without padding."""
    found = []
    for inputs, labels in make_dataset(plan, shuffle_seed=seed, repeat=False):
        for source, target, aligned in zip(inputs["source"].numpy(), labels.numpy(), inputs["alignment"], strict=True):
            links = tuple(map(tuple, np.argwhere(aligned.numpy()).tolist()))
            found.append((tuple(source[source > 0].tolist()), tuple(target[target > 0].tolist()), links))
    return found


def test_alignments_stay_with_their_pairs_in_shuffled_batches(words):
    encoded = encode_pairs(numbers(), *words, max_length=9, store=MemoryIds(aligned=True))
    rows = all_rows(BatchPlan(encoded, 64, arrangement=AlignedTarget()))
    rows = [row for row in rows if row[0]]
    assert len(rows) == 211
    assert rows != sorted(rows)
    for source, target, links in rows:
        assert [source[s] for t, s in sorted(links)] == list(target[:-1])
        assert all(t != len(target) - 1 and s != len(source) - 1 for t, s in links)  # the end has no link


def test_each_process_gets_the_alignments_of_its_rows(words):
    encoded = encode_pairs(numbers(), *words, max_length=9, store=MemoryIds(aligned=True))
    plan = BatchPlan(encoded, 64, row_multiple=2, arrangement=AlignedTarget())

    def batches(**options):
        return [
            inputs["alignment"].numpy() for inputs, _ in make_dataset(plan, shuffle_seed=3, repeat=False, **options)
        ]

    for whole, *halves in zip(batches(), batches(part=(0, 2)), batches(part=(1, 2)), strict=True):
        np.testing.assert_array_equal(np.concatenate(halves), whole)


def test_a_batch_that_a_resumed_run_begins_with_is_that_of_the_whole_run(words):
    encoded = encode_pairs(numbers(), *words, max_length=9, store=MemoryIds(aligned=True))
    plan = BatchPlan(encoded, 64, arrangement=AlignedTarget())
    whole, rest = (make_dataset(plan, shuffle_seed=3, repeat=True, start_step=step) for step in (0, 5))
    for (ours, _), (theirs, _) in zip(whole.skip(5).take(3), rest.take(3), strict=True):
        np.testing.assert_array_equal(ours["alignment"], theirs["alignment"])


def test_validations_have_no_alignments(words):
    encoded = encode_pairs(numbers(), *words, max_length=9)
    plan = BatchPlan(encoded, 64, arrangement=ShiftedTarget())
    inputs, _ = next(iter(make_dataset(plan, shuffle_seed=None, repeat=False)))
    assert set(inputs) == {"source", "target_in"}


# ---- corpora


def linked_words(pairs):
    """The words that links join."""
    return [[(pair[0].split()[s], pair[1].split()[t]) for s, t in pair.links] for pair in pairs]


def test_cleaning_and_holding_out_take_the_alignments_with_their_pairs(tmp_path):
    pairs = numbers()
    corpus = prepare_corpus(
        "numbers",
        written(tmp_path, pairs),
        cleaning=Cleaning(duplicates="sources", max_characters=12),
        cache=tmp_path / "cache",
        tell=print,
    )
    kept = list(corpus.train)
    assert corpus.left_out.left_out > 0
    assert 20 < len(kept) < len(pairs) - corpus.left_out.left_out
    assert linked_words(kept) == [[(word, f"n{word}") for word in source.split()] for source, _ in kept]
    assert corpus.facts().aligned == len(kept) == corpus.facts().train


def test_pairs_of_a_list_are_held_out_with_theirs():
    corpus = corpus_from_pairs("numbers", numbers())
    assert len(corpus.train) < 211
    assert linked_words(corpus.train) == [[(word, f"n{word}") for word in source.split()] for source, _ in corpus.train]


def test_a_tag_moves_the_words_of_its_corpus_and_a_corpus_may_have_no_alignments(tmp_path):
    aligned, other = numbers(31), [tuple(pair) for pair in numbers(17)]
    (tmp_path / "other.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in other))
    both = JoinedFiles([written(tmp_path, aligned), TsvFile(tmp_path / "other.tsv")], ["<2es>", "<2en>"])
    found = list(both)
    assert linked_words(found[:31]) == linked_words(aligned)
    assert found[0][0].startswith("<2es> ")
    assert not any(isinstance(pair, AlignedPair) for pair in found[31:])
    corpora = [Corpus("a", aligned, [("x", "y")], []), Corpus("b", other, [("x", "y")], [])]
    joined = join_corpora(corpora, ["<2es>", ""])
    assert linked_words(list(joined.train)[:31]) == linked_words(aligned)
    assert joined.facts().aligned == 31


def test_other_alignments_are_another_corpus(tmp_path):
    pairs = numbers(41)
    sums, folders = [], set()
    for links in ([(0, 0)], []):
        changed = [AlignedPair(*pair, links if number == 3 else pair.links) for number, pair in enumerate(pairs)]
        corpus = prepare_corpus("n", written(tmp_path, changed), cache=tmp_path / "cache", tell=print)
        sums.append(corpus.facts().sha256)
        folders.add(corpus.key)
    assert len(set(sums)) == len(folders) == 2


def test_words_of_a_symbol_tokenizer_are_its_symbols():
    tokenizer = WordTokenizer(["uno", "dos"])
    links = token_links([AlignedPair("uno dos", "dos", [(1, 0)])], tokenizer, tokenizer)
    assert links.ids.tolist() == [1, 0]
