"""Several corpora as one, with tags before the sources."""

import pytest
import toy

from kformer.data import Cleaning, Corpus, ParallelFiles, TsvFile, corpus_from_pairs, hold_out, prepare_corpus, read_tsv
from kformer.data.cleaning import clean
from kformer.data.corpus import CorpusPart, part_names
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.joined import JoinedFiles, JoinedPairs, join_corpora
from kformer.data.tags import check_tags, has_tag, tagged, without_tag

THERE = toy.corpus().train[:301]
BACK = [(target, source) for source, target in THERE]


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return TsvFile(path)


@pytest.fixture
def both(tmp_path):
    """Both directions, of 301 and of 97 pairs, and a tag for each."""
    return JoinedFiles([write(tmp_path / "there", THERE), write(tmp_path / "back", BACK[200:297])], ["<2es>", "<2en>"])


def prepared(files, tmp_path, valid=None, **options):
    return prepare_corpus("both", files, valid, cache=tmp_path / "cache", tell=pytest.fail, **options)


@pytest.mark.parametrize("tag", ["two words", " a", "a\n", "\u200b", "a\x00"])
def test_a_tag_is_one_word(tag):
    with pytest.raises(ValueError, match="A tag is one word without white space, such as <2es>. Received: "):
        check_tags(["<2es>", tag])


def test_a_tag_is_the_first_word_and_no_other():
    assert [without_tag(text, ["<a>"]) for text in ("<a> b", "<a>", "b <a>", "<a>b", "")] == [
        "b",
        "",
        "b <a>",
        "<a>b",
        "",
    ]
    assert [tagged(text, "<a>") for text in ("b", "", " \t")] == ["<a> b", "", " \t"]


def test_pairs_follow_one_another_each_time(both):
    expected = [
        *(("<2es> " + source, target) for source, target in THERE),
        *(("<2en> " + source, target) for source, target in BACK[200:297]),
    ]
    assert list(both) == list(both) == expected
    assert (both.sizes, len(both)) == ((301, 97), 398)


def test_what_is_read_of_which_file_with_which_tag_is_told(tmp_path, both):
    there, back = both.parts
    ways = [
        both,
        JoinedFiles([there, back]),
        JoinedFiles([there, back], ["<2en>", "<2es>"]),
        JoinedFiles([back, there], ["<2es>", "<2en>"]),
        JoinedFiles([there, TsvFile(back.path, ("target", "source"))], ["<2es>", "<2en>"]),
        JoinedFiles([ParallelFiles(there.path, back.path)], ["<2es>"]),
    ]
    assert len({(way.reading, way.files) for way in ways}) == len(ways)
    assert both.files == (there.path, back.path)


def test_each_corpus_needs_a_tag_or_none_has_one():
    with pytest.raises(ValueError, match="There must be a tag for each corpus. Received: 1 tags for 2 corpora."):
        JoinedPairs([THERE, BACK], ["<2es>"])


def test_corpora_in_memory_are_joined_part_by_part():
    there = Corpus("there", THERE[:5], THERE[5:8], THERE[8:9])
    back = Corpus("back", BACK[:4], BACK[5:6], [])
    joined = join_corpora([there, back], ["<2es>", ""])
    assert joined.parts == (CorpusPart("there", "<2es>", 5, 3), CorpusPart("back", "", 4, 1))
    assert [source for source, _ in joined.valid] == [f"<2es> {source}" for source, _ in THERE[5:8]] + [BACK[5][0]]
    assert (len(joined.train), len(joined.test), joined.tags) == (9, 1, ("<2es>",))


def test_corpora_of_two_kinds_are_not_joined():
    with pytest.raises(ValueError, match=r"must be of one kind. Received: a \(symbols=False.*b \(symbols=True"):
        join_corpora([Corpus("a", THERE, THERE, []), Corpus("b", THERE, THERE, [], symbols=True)])


def test_names_of_parts_differ():
    same = [CorpusPart("a", "", 1, 1), CorpusPart("a", "", 1, 1)]
    assert part_names(same) == ["1 a", "2 a"]
    assert part_names([]) == []


# ---- what is held out


def test_what_is_held_out_is_learned_in_no_direction(both):
    learned, held_out = hold_out("both", both, both.tags)
    sources = {without_tag(source, both.tags) for source, _ in held_out}
    for source, target in learned:
        assert not {without_tag(source, both.tags), target} & sources
    assert len(list(learned)) + len(held_out) == 398


def test_a_tag_does_not_decide_what_is_held_out(tmp_path):
    plain, _ = hold_out("there", THERE)
    of_two = JoinedFiles([write(tmp_path / "there", THERE), write(tmp_path / "again", THERE)], ["<2es>", "<2fr>"])
    learned, held_out = hold_out("both", of_two, of_two.tags)
    assert [without_tag(source, of_two.tags) for source, _ in learned] == [source for source, _ in plain * 2]
    assert len(held_out) == 2 * (301 - len(plain))


def _mixed(tmp_path, synthetic):
    """Real pairs without a tag before or behind synthetic ones with a tag."""
    files = write(tmp_path / "real", THERE), write(tmp_path / "synthetic", synthetic)
    return JoinedFiles(files, ["", "<bt>"]), JoinedFiles(files[::-1], ["<bt>", ""])


def test_beside_corpora_with_a_tag_what_is_held_out_is_of_those_without(tmp_path):
    _, alone = hold_out("real", THERE)
    synthetic = [(f"made {number}", f"text {number}") for number in range(500)]
    for both in _mixed(tmp_path, synthetic):
        learned, held_out = hold_out("both", both, both.tags)
        assert held_out == alone
        assert sorted(learned) == sorted(
            [pair for pair in THERE if pair not in alone] + [(f"<bt> {source}", target) for source, target in synthetic]
        )


def test_a_synthetic_pair_with_a_side_of_a_held_out_pair_is_in_no_part(tmp_path):
    _, alone = hold_out("real", THERE)
    (source, target), (other_source, other_target) = alone[:2]
    shared = [("made", target), (source, "made"), (other_target, other_source)]
    kept = [("made too", "text"), ("made", ""), *((f"made {number}", f"text {number}") for number in range(5))]
    for both in _mixed(tmp_path, shared + kept):
        learned, held_out = hold_out("both", both, both.tags)
        assert held_out == alone
        assert [pair for pair in learned if has_tag(pair[0], both.tags)] == [
            (f"<bt> {one}", other) for one, other in kept
        ]
        for _ in range(2):  # read, and known
            corpus = prepared(both, tmp_path)
            parts = {part.tag: (part.train, part.valid) for part in corpus.parts}
            assert parts == {"": (301 - len(alone), len(alone)), "<bt>": (len(kept), 0)}
            assert (list(corpus.train), corpus.valid) == (list(learned), alone)
            assert corpus.facts().train == len(corpus.train)


def test_synthetic_pairs_with_rules_are_told_in_numbers(tmp_path):
    both, _ = _mixed(tmp_path, [("same", "same"), ("made", "text"), ("made", THERE[0][1])])
    _, alone = hold_out("real", THERE)
    corpus = prepared(both, tmp_path, cleaning=Cleaning(drop_copies=True))
    made = 1 + (THERE[0] not in alone)
    assert [(part.train, part.valid) for part in corpus.parts] == [(301 - len(alone), len(alone)), (made, 0)]
    assert (corpus.left_out.read, corpus.left_out.left_out) == (304, 1)


def test_the_last_corpora_may_have_no_validation_file(tmp_path, both):
    for tags in (["<2es>", "<2en>"], None):
        files = JoinedFiles(both.parts, tags)
        valid = JoinedFiles([write(tmp_path / "valid", THERE[:3])], tags and tags[:1])
        corpus = prepared(files, tmp_path, valid)
        assert [(part.train, part.valid) for part in corpus.parts] == [(301, 3), (97, 0)]


@pytest.mark.parametrize(
    ("tags", "untagged"),
    [(["", "<bt>"], True), (["<bt>", ""], True), (["<a>", "<b>"], False), (None, False), (["", ""], False)],
)
def test_a_corpus_knows_whether_it_has_texts_with_and_without_tags(tags, untagged):
    joined = join_corpora([Corpus("a", THERE, THERE, []), Corpus("b", BACK, BACK, [])], tags)
    assert joined.untagged is untagged


def test_tags_do_not_count_for_rules_and_lengths():
    pairs = [("<2es> a", "a"), ("<2en> a", "a"), ("<2en> a", "a")]
    kept, report = clean(pairs, Cleaning(drop_copies=True), ("<2es>", "<2en>"))
    assert (list(kept), report.left_out) == ([0, 0, 0], 3)
    kept, _ = clean(pairs, Cleaning(duplicates="pairs"), ("<2es>", "<2en>"))
    assert list(kept) == [1, 1, 0]
    assert CorpusFacts.of(pairs, [], ("<2es>", "<2en>")).short_ratio == 1.0


# ---- prepared


def test_prepared_parts_are_told_in_numbers(tmp_path, both):
    for _ in range(2):  # read, and known
        corpus = prepared(both, tmp_path)
        assert corpus.tags == ("<2es>", "<2en>")
        there, back = corpus.parts
        assert (there.tag, back.tag) == corpus.tags
        assert (there.name, back.name) == tuple(part.path.stem for part in both.parts)
        begins = [source.split()[0] for source, _ in corpus.train], [source.split()[0] for source, _ in corpus.valid]
        assert begins[0] == ["<2es>"] * there.train + ["<2en>"] * back.train
        assert begins[1] == ["<2es>"] * there.valid + ["<2en>"] * back.valid
        assert there.train + there.valid == 301


def test_prepared_parts_without_what_the_rules_leave_out(tmp_path):
    files = JoinedFiles([write(tmp_path / "a", [*THERE[:50], ("same", "same")]), write(tmp_path / "b", THERE[50:90])])
    corpus = prepared(files, tmp_path, cleaning=Cleaning(drop_copies=True))
    (first, second), held_out = corpus.parts, len(corpus.valid)
    assert (first.train + first.valid, second.train + second.valid) == (50, 40)
    assert first.valid + second.valid == held_out
    assert [pair for pair in THERE[:50] if pair not in corpus.valid] == list(corpus.train)[: first.train]


def test_validation_files_are_those_of_their_corpora(tmp_path, both):
    valid = JoinedFiles([write(tmp_path / "v1", THERE[:3]), write(tmp_path / "v2", BACK[:2])], both.tags)
    corpus = prepared(both, tmp_path, valid)
    assert [(part.train, part.valid) for part in corpus.parts] == [(301, 3), (97, 2)]
    assert corpus.valid[3] == (f"<2en> {BACK[0][0]}", BACK[0][1])


def test_one_file_has_no_parts(tmp_path):
    assert prepared(write(tmp_path / "there", THERE), tmp_path).parts == ()
    assert corpus_from_pairs("there", read_tsv(tmp_path / "there")).parts == ()


def test_a_tag_makes_another_corpus(tmp_path, both):
    keys = {prepared(JoinedFiles(both.parts, tags), tmp_path).key for tags in (both.tags, both.tags[::-1], None)}
    assert len(keys) == 3
    assert len([*(tmp_path / "cache").glob("texts-*/")]) == 3
