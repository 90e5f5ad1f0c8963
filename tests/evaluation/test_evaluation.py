import importlib
import json
import math
import urllib.error

import numpy as np
import pytest
import sacrebleu

from kformer.config import BLEU_TOKENIZERS
from kformer.evaluation.evaluate import score, score_labels, score_texts, sentences, translated
from kformer.evaluation.metrics import (
    bleu_and_chrf,
    edit_distance,
    edits,
    label_scores,
    phoneme_error_rate,
    translation_edit_rate,
    word_error_rate,
)
from kformer.text.batches import Hypothesis
from kformer.wording import count

# PROJECT and READ have two pronunciations each, LEAD one.
PRONUNCIATIONS = [["P R AA JH EH K T", "P R AH JH EH K T"], ["R EH D", "R IY D"], ["L EH D"]]


def test_bleu_of_a_hand_counted_sentence():
    # "a b c d e" against "a b c d f": n-gram precisions 4/5, 3/4, 2/3, 1/2; same length, so no brevity penalty.
    scores = bleu_and_chrf(["a b c d e"], [["a b c d f"]])
    assert scores["bleu"] == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert scores["sentences"] == 1


def test_a_short_translation_pays_the_brevity_penalty():
    # All n-grams are right; 4 words for 5: exp(1 - 5 / 4).
    assert bleu_and_chrf(["a b c d"], [["a b c d e"]])["bleu"] == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_chrf_of_a_hand_counted_sentence():
    # Characters without blanks, "ab" against "ac": 1-grams 1 of 2 right, 2-grams 0 of 1; longer n-grams exist in
    # neither and are left out. Precision = recall = (1/2 + 0) / 2, so F2 is 1/4.
    assert bleu_and_chrf(["ab"], [["ac"]])["chrf"] == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("hypothesis", "edits"),
    [
        ("a b c d e", 0),
        ("a b x d e", 1),
        ("a b d e", 1),
        ("a b c d e f", 1),
        ("d e a b c", 1),  # a sequence of words is moved
        ("", 5),
        ("v w x y z v w x", 8),
    ],
)
def test_ter_of_hand_counted_edits(hypothesis, edits):
    scores = translation_edit_rate([hypothesis], [["a b c d e"]])
    assert scores["ter"] == pytest.approx(100 * edits / 5)
    assert "case:lc" in scores["ter_signature"].split("|")


def test_ter_counts_the_edits_of_all_sentences_to_the_nearest_references():
    """Snover et al. (2006): the words of several references are their mean number, here (2 + 4) / 2."""
    hypotheses, references = ["a b", "x"], [["a c", "a b d e"], ["x y"]]
    assert translation_edit_rate(hypotheses, references)["ter"] == pytest.approx(100 * (1 + 1) / (3 + 2))
    blank = translation_edit_rate([*hypotheses, "z"], [*references, [" "]])
    assert blank == translation_edit_rate(hypotheses, references)


def test_a_sentence_may_have_more_references_than_another():
    hypotheses = ["the cat sat on the mat", "no one is here today"]
    references = [["a dog ran", "the cat sat on the mat"], ["no one is here today"]]
    scores = bleu_and_chrf(hypotheses, references)
    assert scores["bleu"] == pytest.approx(100.0)
    assert scores["chrf"] == pytest.approx(100.0)
    assert "nrefs:var" in scores["bleu_signature"].split("|")
    assert bleu_and_chrf(hypotheses, [texts[:1] for texts in references])["bleu"] < 60


def test_signatures_name_the_settings():
    scores = bleu_and_chrf(["a b"], [["a b"]])
    bleu, chrf = scores["bleu_signature"].split("|"), scores["chrf_signature"].split("|")
    assert {"nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp"} < set(bleu)
    assert {"nrefs:1", "case:mixed", "eff:yes", "nc:6", "nw:0", "space:no"} < set(chrf)
    assert bleu[-1].startswith("version:")
    assert json.loads(json.dumps(scores)) == scores


def test_bleu_of_chinese_counts_characters():
    scores = bleu_and_chrf(["他去了城里的市场。"], [["他去了城市的市场。"]])
    assert "tok:zh" in scores["bleu_signature"].split("|")
    # 8 of 9 characters, 6 of 8 pairs, 4 of 7 triples and 2 of 6 fours are right.
    assert scores["bleu"] == pytest.approx(100 * (8 / 9 * 6 / 8 * 4 / 7 * 2 / 6) ** 0.25)
    assert scores["bleu"] == pytest.approx(59.69, abs=0.005)


THIRTEEN = {  # characters, without a blank
    "zh": "人人生而自由在尊严权利平等",
    "char": "すべての人間は自由で平等だ",
}


@pytest.mark.parametrize("tokenizer", THIRTEEN)
def test_a_perfect_translation_without_blanks_has_all_of_bleu(tokenizer):
    characters = THIRTEEN[tokenizer]
    assert len(characters) == 13
    texts = [characters[place:] + characters[:place] for place in range(13)] * 16  # 208 sentences
    scores = bleu_and_chrf(texts, [[text] for text in texts])
    assert scores["bleu"] == pytest.approx(100.0)
    assert f"tok:{tokenizer}" in scores["bleu_signature"].split("|")
    assert bleu_and_chrf(texts, [[text] for text in texts], "13a")["bleu"] == 0.0


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("他在2024年用 Python 写了这本书。", "zh"),
        ("香港の市場へ行きました。", "char"),
        ("コンピューター", "char"),
        ("日本国憲法の前文", "char"),  # 7 of 8 are Chinese characters
        ("มนุษย์ทั้งหลายเกิดมามีอิสระ", "char"),
        ("ມະນຸດທຸກຄົນເກີດມາ", "char"),
        ("មនុស្សទាំងអស់កើតមក", "char"),
        ("လူတိုင်းသည်တူညီလွတ်လပ်သော", "char"),
        ("འགྲོ་བ་མིའི་རིགས་རྒྱུད", "char"),
        ("모든 인간은 태어날 때부터 자유롭다.", "13a"),
        ("Все люди рождаются свободными.", "13a"),
        ("सभी मनुष्यों को गौरव", "13a"),
        ("He said 你好 and left for the market.", "13a"),
        ("1, 2, 3!", "13a"),
        ("他 2024 2025 2026", "zh"),  # digits are no letters
        ("abc 你好", "13a"),  # 2 of 5 letters
        ("ab 你好", "13a"),  # just half of them
    ],
)
def test_the_script_of_the_references_decides_how_bleu_finds_words(text, tokenizer):
    # The hypotheses do not matter.
    assert f"tok:{tokenizer}" in bleu_and_chrf(["a b c"], [[text, text]])["bleu_signature"].split("|")


def test_a_tokenizer_of_bleu_can_be_named():
    assert set(BLEU_TOKENIZERS) <= set(sacrebleu.BLEU.TOKENIZERS)
    pair = ["the cat sat on a mat"], [["the cat sat on the mat"]]
    for name in ("13a", "intl", "zh", "char", "none"):
        scores = bleu_and_chrf(*pair, name)
        assert scores["bleu"] == pytest.approx(sacrebleu.BLEU(tokenize=name).corpus_score(pair[0], [pair[1][0]]).score)
        assert f"tok:{name}" in scores["bleu_signature"].split("|")


def test_an_unknown_tokenizer_of_bleu_is_refused():
    with pytest.raises(ValueError, match="must be one of 13a, .*, none. Received: '13b'. Did you mean '13a'?"):
        bleu_and_chrf(["a"], [["a"]], "13b")


@pytest.mark.parametrize(("name", "language"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_a_tokenizer_of_bleu_without_its_packages_names_them(name, language, monkeypatch):
    module = importlib.import_module(f"sacrebleu.tokenizers.tokenizer_{name.replace('-', '_')}")
    monkeypatch.setattr(module, "MeCab", None)  # as sacreBLEU leaves it where the packages are missing
    with pytest.raises(ValueError, match=rf'{name} cannot be used here. .* pip install "sacrebleu\[{language}\]"'):
        bleu_and_chrf(["a"], [["a"]], name)


def test_a_tokenizer_of_bleu_that_cannot_be_downloaded_is_refused(tmp_path, monkeypatch):
    def offline(url):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(ValueError, match="flores200 cannot be used here. sacreBLEU downloads it .*Name or service not"):
        bleu_and_chrf(["a"], [["a"]], "flores200")


@pytest.mark.parametrize(
    ("hypotheses", "wrong"),
    [
        (["P R AH JH EH K T", "R IY D", "L EH D"], 0),
        (["P R AH JH EH K T", "R  IY D ", "L IY D"], 1),
        (["P R AH JH EH K", "", "L EH D Z"], 3),
    ],
)
def test_a_word_is_wrong_if_it_is_none_of_its_references(hypotheses, wrong):
    expected = {"word_error_rate": wrong / 3, "wrong_words": wrong, "words": 3}
    assert word_error_rate(hypotheses, PRONUNCIATIONS) == expected


def test_phoneme_errors_count_to_the_nearest_reference():
    # 1 deletion of 7, 1 substitution of 3 ("R AE D" is as near to both), 2 insertions to 3.
    scores = phoneme_error_rate(["P R AH JH EH K", "R AE D", "L EH D AH Z"], PRONUNCIATIONS)
    assert scores == {"phoneme_error_rate": 4 / 13, "phoneme_errors": 4, "phonemes": 13}


def test_the_nearest_reference_gives_the_length():
    # "AA" is 3 edits from the first reference and 1 from the second, which has 2 phonemes.
    scores = phoneme_error_rate(["AA"], [["AA B K D", "AA B"]])
    assert scores == {"phoneme_error_rate": 1 / 2, "phoneme_errors": 1, "phonemes": 2}
    # "A" is 1 edit from both: the first counts.
    assert phoneme_error_rate(["A"], [["B", "A B"]])["phonemes"] == 1
    assert phoneme_error_rate(["A"], [["A B", "B"]])["phonemes"] == 2


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),  # k -> s, e -> i, + g
        ("flaw", "lawn", 2),  # - f, + n
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("intention", "execution", 5),  # Jurafsky and Martin, chapter 2, with substitutions at 1
    ],
)
def test_edit_distance(first, second, distance):
    assert edit_distance(first, second) == distance
    assert edit_distance(list(second), list(first)) == distance


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("abc", "axc", [("a", "a"), ("b", "x"), ("c", "c")]),
        ("abc", "ac", [("a", "a"), ("b", None), ("c", "c")]),
        ("ac", "abc", [("a", "a"), (None, "b"), ("c", "c")]),
        ("a", "bc", [(None, "b"), ("a", "c")]),  # two edits in any case: at the end, a substitution
        ("aba", "bab", [(None, "b"), ("a", "a"), ("b", "b"), ("a", None)]),  # and a deletion before an insertion
        ("", "", []),
    ],
)
def test_edits_align_the_symbols_of_two_sequences(first, second, pairs):
    assert edits(first, second) == pairs


def test_a_label_that_only_the_model_chose_counts_in_the_macro_f1():
    # F1 of a: 1; of b: 2 * 1 / (2 * 1 + 1 missed); of c: 0. The default of scikit-learn's f1_score gives the same.
    scores = label_scores(["a", "b", "c"], ["a", "b", "b"])
    assert scores == {"accuracy": 2 / 3, "macro_f1": pytest.approx((1 + 2 / 3 + 0) / 3), "labels": 3}
    assert label_scores(["a", "b", "b"], ["a", "b", "c"])["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)


@pytest.mark.parametrize("score", [bleu_and_chrf, translation_edit_rate, word_error_rate, phoneme_error_rate])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "at least one hypothesis to score. Received: none"),
        (["a", "b"], [["a"]], "Received: 2 hypotheses and 1 lists of references"),
        (["a", "b"], [["a"], []], r"list of at least one text. Received: references\[1\]=\[\]"),
        (["a"], ["a"], r"Received: references\[0\]='a'. Pass \[text\]"),
    ],
)
def test_input_that_cannot_be_scored_is_refused(score, hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        score(hypotheses, references)


def test_the_limit_counts_words_and_not_pronunciations():
    """Two words of three: "a", which has two pronunciations, and "b"."""
    pairs = [("a", "x"), ("a", "y"), ("b", "z"), ("c", "z")]
    asked, done = [], []

    def translate(texts):
        asked.extend(texts)
        return [[Hypothesis({b"a": "y", b"b": "z"}[text], 0.0)] for text in texts]

    scores = score(translate, pairs, symbols=True, limit=2, on_batch=done.append)
    assert (sorted(asked), done) == ([b"a", b"b"], [2])
    assert (scores["words"], scores["wrong_words"]) == (2, 0)


def test_of_sentences_every_pair_counts_also_with_the_same_source():
    pairs = [("a", "one two three four"), ("a", "five six seven eight"), ("b", "x")]
    scores = score(lambda texts: [[Hypothesis("one two three four", 0.0)] for _ in texts], pairs, limit=2)
    assert scores["sentences"] == 2
    assert scores["bleu"] == pytest.approx(50)  # 4 of 8 words are right, 3 of 6 pairs of words, and so on


@pytest.mark.parametrize(("limit", "sizes"), [(None, [3, 4]), (7, [3, 3]), (5, [2, 2]), (1, [1, 1])])
def test_several_test_sets_share_a_limit_and_each_has_a_text_at_least(limit, sizes):
    parts = [[(f"{name}{number}", "x") for number in range(size)] for name, size in (("a", 3), ("b", 4))]
    found = translated(several("x"), parts, limit=limit)
    assert found.sizes == sizes
    assert found.sources == [
        f"{name}{number}" for name, size in zip("ab", sizes, strict=True) for number in range(size)
    ]


def test_the_limit_counts_texts_with_labels():
    pairs = [("a b", "X Y"), ("c", "X"), ("d", "Y")]
    answers = {b"a b": "X X", b"c": "X", b"d": "X"}
    done = []
    scores = score_labels(
        lambda texts: [[Hypothesis(answers[text], 0.0)] for text in texts], pairs, limit=2, on_batch=done.append
    )
    assert (scores["texts"], scores["whole"], done) == (2, 0.5, [2])


def test_an_empty_pronunciation_is_no_reference():
    with pytest.raises(ValueError, match=r"at least one phoneme. Received: references\[0\]=\['A', ' '\]"):
        phoneme_error_rate(["A"], [["A", " "]])


@pytest.mark.parametrize("symbols", [False, True])
def test_blank_pairs_are_not_scored(symbols):
    pairs = [("", ""), ("a b", "X"), (" ", "\t"), ("c", "")]
    assert sentences(pairs, symbols) == [("a b", ["X"])]


def test_a_blank_reference_is_none_but_an_empty_translation_counts():
    whole = bleu_and_chrf(["a b c d e", ""], [["a b c d e"], ["f g"]])
    assert bleu_and_chrf(["a b c d e", "", "x"], [["a b c d e", " "], ["f g"], [""]]) == whole
    assert (whole["sentences"], whole["bleu"] < 100) == (2, True)
    with pytest.raises(ValueError, match="a reference to score by. Received: blank ones only"):
        bleu_and_chrf(["a"], [[" "]])


def test_scores_of_texts_by_hand():
    asked = []

    def read(texts):
        """Each letter and each end has the probability 1/2."""
        asked.extend(texts)
        tokens = np.array([len(text) + 1 for text in texts])
        return {"log_probability": (tokens * np.log(0.5)).astype("float32"), "tokens": tokens}

    found = score_texts(read, ["abc", " ", "d", "not asked"], limit=2)
    assert asked == ["abc", "d"]
    assert found == {
        "perplexity": pytest.approx(2.0),
        "bits_per_character": pytest.approx(6 / 4),  # 4 letters and 2 ends, of a bit each
        "tokens": 6,
        "characters": 4,
        "texts": 2,
    }


def test_there_must_be_texts_to_score():
    with pytest.raises(ValueError, match="the test set has no texts. Name another split or file"):
        score_texts(lambda texts: {}, ["", " "])


def several(*texts):
    """A model whose best answer is the first one."""
    return lambda sources: [[Hypothesis(text, -1.0 * place) for place, text in enumerate(texts)] for _ in sources]


def test_the_best_hypothesis_alone_is_scored():
    assert score(several("x y", "z"), [("a", "x y")], symbols=True)["word_error_rate"] == 0.0
    assert score_labels(several("X", "Y"), [("a", "X")])["accuracy"] == 1.0


def test_the_tokenizer_of_bleu_that_was_asked_for_scores_the_translations():
    scores = score(several("a b c d"), [("x", "a b c d")], bleu_tokenizer="char")
    assert "tok:char" in scores["bleu_signature"].split("|")


@pytest.mark.parametrize("labels", ["X", "X Y Z"])
def test_another_number_of_labels_than_the_model_gives_is_refused(labels):
    told = f"Received: {count(len(labels.split()), 'label')} where the model gives 2, for the text 'a b'. Correct the"
    with pytest.raises(ValueError, match=told):
        score_labels(several("X Y"), [("a b", labels)])


@pytest.mark.parametrize("scored", [score, score_labels])
def test_there_must_be_pairs_to_score(scored):
    with pytest.raises(ValueError, match="the test set has no pairs with a target. Name another split or file"):
        scored(several("x"), [("a", " "), ("b", "")])


def test_many_small_probabilities_are_summed_up_exactly():
    """In float32 numbers, the texts of a whole book would lose their last digits."""
    texts, each = ["a"] * 100_000, np.float32(-20.1)

    def read(texts):
        return {"log_probability": np.full(len(texts), each), "tokens": np.full(len(texts), 2)}

    assert score_texts(read, texts)["bits_per_character"] == pytest.approx(-float(each) / math.log(2), rel=1e-12)
