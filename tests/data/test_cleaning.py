"""What pairs are left out of a corpus, and what is said of them."""

import pytest

from kformer.data import Cleaning, TsvFile, prepare_corpus
from kformer.data.cleaning import clean
from kformer.data.corpus_facts import CorpusFacts
from kformer.data.overlap import Unseen

RULES = [
    ({"max_ratio": 3}, ("abc", "a"), None),
    ({"max_ratio": 3}, (" a ", "abcd"), "a side has more than 3 times the characters of the other"),
    ({"max_ratio": 3}, ("abcd", " "), None),  # blank pairs are counted as such later
    ({"max_characters": 3}, ("abc", "a"), None),
    ({"max_characters": 3}, ("a", " abcd"), "a side has more than 3 characters"),
    ({"drop_copies": True}, ("one ", " one"), "source and target are the same"),
    ({"drop_copies": True}, ("one", "One"), None),
    ({"drop_copies": True}, ("", ""), None),
    ({"min_letters": 0.5}, ("ab 12", "c"), None),
    ({"min_letters": 0.5}, ("a 12", "c"), "less than 50% of the source are letters"),
    ({"min_letters": 0.5}, ("c", "..."), "less than 50% of the target are letters"),
    ({"min_letters": 1}, ("हिन्दी", "ไทยดี"), None),  # vowel signs belong to letters
    ({"min_letters": 0.5}, ("text", ""), None),  # plain text has no targets
    ({"source_script": "Latin"}, ("abяя", "я"), None),
    ({"source_script": "Latin"}, ("aяя", "b"), "the source is not written in Latin"),
    ({"source_script": "Latin"}, ("12:30", "b"), None),
    ({"target_script": "Han"}, ("a", "市场"), None),
    ({"target_script": "Han"}, ("a", "カタ市"), "the target is not written in Han"),
]


@pytest.mark.parametrize(("rule", "pair", "reason"), RULES)
def test_a_rule_leaves_out_what_it_names(rule, pair, reason):
    kept, report = clean([pair], Cleaning(**rule))
    assert (list(kept), report.read, dict(report.counts)) == (
        [reason is None],
        1,
        {} if reason is None else {reason: 1},
    )
    assert list(clean([pair], Cleaning())[0]) == [1]


PAIRS = [("a", "b"), ("a", "c"), (" a", "b "), ("d", "b"), ("a\u00a0", "b"), ("d", "d"), ("d", "b")]


@pytest.mark.parametrize(
    ("duplicates", "kept"), [("keep", [1] * 7), ("pairs", [1, 1, 0, 1, 0, 1, 0]), ("sources", [1, 0, 0, 1, 0, 0, 0])]
)
def test_of_what_is_there_twice_the_first_is_kept(duplicates, kept):
    found, report = clean(PAIRS, Cleaning(duplicates=duplicates))
    assert list(found) == kept
    assert report.left_out == 7 - sum(kept)


def test_texts_of_another_unicode_form_or_other_blanks_are_the_same(tmp_path):
    composed, combined = ("caf\u00e9 con leche", "x"), ("cafe\u0301  con leche", "x")
    assert list(clean([composed, combined], Cleaning(duplicates="pairs"))[0]) == [1, 0]
    assert Unseen.of("test", [composed]).reason(*combined) is not None
    assert CorpusFacts.of([composed, ("a", "b")], [combined]).overlap == 1


def test_a_pair_that_a_rule_leaves_out_is_no_first_one():
    kept, report = clean([("a", "b" * 9), ("a", "b"), ("a", "c")], Cleaning(max_ratio=2, duplicates="sources"))
    assert list(kept) == [0, 1, 0]
    assert report.examples["the same source is there before"] == [("a", "c")]


def test_the_report_counts_and_shows_the_first_ones_of_each_reason():
    pairs = [(f"{number}", f"{number}") for number in range(5)] + [("x" * 99, "y" * 9)] + [("one", "uno")] * 4
    _, report = clean(pairs, Cleaning(max_ratio=2, drop_copies=True, duplicates="pairs"))
    assert report.lines() == [
        "9 of 10 pairs are left out",
        "           5  50.00%  source and target are the same",
        "           3  30.00%  the same pair is there before",
        "           1  10.00%  a side has more than 2 times the characters of the other",
    ]
    shown = "\n".join(report.lines(examples=True))
    assert [f"'{number}' - '{number}'" in shown for number in range(5)] == [True, True, True, False, False]
    assert f"'{'x' * 67}...' - 'yyyyyyyyy'" in shown
    assert shown.count("'one' - 'uno'") == 3


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"max_ratio": 0.5}, "max_ratio must be at least 1. Received: 0.5"),
        ({"max_characters": 0}, "max_characters must be at least 1"),
        ({"min_letters": 50}, "min_letters must be a share from 0 to 1. Received: 50"),
        ({"duplicates": "none"}, "duplicates must be one of keep, pairs, sources. Received: 'none'"),
    ],
)
def test_values_that_mean_nothing_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        Cleaning(**rule)


@pytest.mark.parametrize("own_validation", [False, True])
def test_a_prepared_corpus_is_cleaned_once_and_says_so_each_time(tmp_path, own_validation):
    pairs = [(f"source {number}", f"target {number}") for number in range(100)]
    file, others = tmp_path / "pairs.tsv", tmp_path / "valid.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in [*pairs, *pairs, ("same", "same")]))
    others.write_text("source 3\tother\n")
    cleaning = Cleaning(drop_copies=True, duplicates="pairs")
    for _ in range(2):
        valid = TsvFile(others) if own_validation else None
        corpus = prepare_corpus("numbers", TsvFile(file), valid, cleaning=cleaning, cache=tmp_path / "cache")
        assert dict(corpus.left_out.counts) == {
            "the same pair is there before": 100,
            "source and target are the same": 1,
        }
        learned = [*corpus.train] if own_validation else [*corpus.train, *corpus.valid]
        assert sorted(learned) == sorted(pairs)
        assert corpus.facts().train == len(corpus.train) == len(list(corpus.train))
        assert corpus.facts().overlap == (1 if own_validation else 0)
    other = prepare_corpus("numbers", TsvFile(file), cache=tmp_path / "cache")
    assert len(other.train) + len(other.valid) == 201


@pytest.mark.parametrize("script", ["latin", "Klingon"])
def test_a_script_that_is_none_is_refused(script):
    with pytest.raises(ValueError, match=f"There is no script '{script}'. Name one as Unicode does, such as Latin"):
        Cleaning(target_script=script)


def test_rules_that_leave_nothing_are_told_with_their_counts(tmp_path):
    (tmp_path / "pairs.tsv").write_text("one\tuno\ntwo\tdos\n")
    with pytest.raises(ValueError, match=r"(?s)The rules leave no pair of pairs.tsv.*2 of 2 pairs are left out"):
        prepare_corpus(
            "pairs.tsv", TsvFile(tmp_path / "pairs.tsv"), cleaning=Cleaning(source_script="Han"), cache=tmp_path
        )


def test_pairs_of_a_test_set_are_left_out_by_their_source():
    unseen = Unseen.of("test.tsv", [("one", "uno"), ("two  three", "dos tres"), (" ", "nada")])
    pairs = [("one", "uno"), (" two three", "2 3"), ("uno", "one"), ("", "nada"), ("three", "uno"), ("one\t", " uno")]
    kept, report = clean(pairs, Cleaning(without=(unseen,)))
    assert list(kept) == [0, 0, 1, 1, 1, 0]
    assert report.counts == {"the pair is also in test.tsv": 2, "the source is also in test.tsv": 1}


def test_a_tag_is_no_part_of_the_source_that_a_test_set_has():
    unseen = Unseen.of("test.tsv", [("one", "uno")])
    assert list(clean([("<2es> one", "uno"), ("<2es> two", "dos")], Cleaning(without=(unseen,)), ["<2es>"])[0]) == [
        0,
        1,
    ]


def test_each_of_several_test_sets_is_named():
    unseen = [Unseen.of(name, [(name, "x")]) for name in ("a", "b")]
    report = clean([("a", "x"), ("b", "y"), ("c", "x")], Cleaning(without=tuple(unseen)))[1]
    assert report.counts == {"the pair is also in a": 1, "the source is also in b": 1}


def test_other_test_sets_are_other_rules():
    found = [
        Cleaning(without=tuple(Unseen.of(name, pairs) for name, pairs in some)).fingerprint
        for some in ([], [("a", [("x", "y")])], [("b", [("x", "y")])], [("a", [("x", "z")])], [("a", [("z", "y")])])
    ]
    assert len({str(one) for one in found}) == 5
    assert found[1] == Cleaning(without=(Unseen.of("a", [("x ", "y"), ("x", " y")]),)).fingerprint
