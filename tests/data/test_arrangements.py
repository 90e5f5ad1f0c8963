"""What a model reads and predicts, from the ids of a batch."""

import numpy as np
import pytest

from kformer.data.arrangements import MaskedTokens, NextToken, Rows, ShiftedTarget, SourceToLabels

PAD, START, END, MASK = 0, 1, 2, 3
ORDINARY = np.arange(200) > MASK


def rows(source, target):
    return Rows(np.array(source, "int32"), np.array(target, "int32"), PAD, PAD, START)


def arranged(arrangement, source, target, seed=0):
    inputs, labels = arrangement.arrange(rows(source, target), np.random.default_rng(seed))
    assert tuple(inputs) == arrangement.inputs
    assert all(values.dtype == np.int32 for values in (*inputs.values(), labels))
    return inputs, labels


class TestShifted:
    SOURCE, TARGET = [[7, 2], [0, 0]], [[8, 9, 2], [0, 0, 0]]

    def test_a_translator_reads_the_start_and_the_target_without_its_end(self):
        inputs, labels = arranged(ShiftedTarget(), self.SOURCE, self.TARGET)
        assert inputs["source"].tolist() == self.SOURCE
        assert inputs["target_in"].tolist() == [[1, 8, 9], [0, 0, 0]]
        assert labels.tolist() == self.TARGET

    def test_a_language_model_reads_no_source(self):
        inputs, labels = arranged(NextToken(), self.SOURCE, self.TARGET)
        assert [*inputs] == ["target_in"]
        assert inputs["target_in"].tolist() == [[1, 8, 9], [0, 0, 0]]
        assert labels.tolist() == self.TARGET

    def test_a_language_model_without_a_start_predicts_what_follows_the_first_token(self):
        inputs, labels = arranged(NextToken(has_start=False), self.SOURCE, [[8, 9, 2], [2, 0, 0]])
        assert inputs["target_in"].tolist() == [[8, 9, 0], [0, 0, 0]]
        assert labels.tolist() == [[9, 2, 0], [0, 0, 0]]


class TestLabels:
    def test_a_classifier_predicts_the_first_target_id_alone(self):
        inputs, labels = arranged(SourceToLabels(for_each_token=False), [[1, 7, 2]], [[5, 2]])
        assert inputs["source"].tolist() == [[1, 7, 2]]
        assert labels.tolist() == [[5]]

    @pytest.mark.parametrize(("source", "target"), [([[1, 7, 2]], [[0, 5, 0, 0, 0]]), ([[1, 7, 2, 0, 0]], [[0, 5, 0]])])
    def test_a_tagger_has_as_many_labels_as_tokens(self, source, target):
        inputs, labels = arranged(SourceToLabels(for_each_token=True), source, target)
        assert inputs["source"].tolist() == [[1, 7, 2, 0, 0]]
        assert labels.tolist() == [[0, 5, 0, 0, 0]]


class TestMasked:
    LINE = (START, *range(10, 110), END, PAD)

    def test_labels_stand_where_tokens_were_chosen_and_the_rest_is_unchanged(self):
        arrangement = MaskedTokens(ORDINARY, mask_id=MASK)
        inputs, labels = arranged(arrangement, [self.LINE], [[0]])
        chosen = labels != PAD
        np.testing.assert_array_equal(labels[chosen], np.array([self.LINE])[chosen])
        np.testing.assert_array_equal(inputs["source"][~chosen], np.array([self.LINE])[~chosen])
        assert not chosen[0, [0, -2, -1]].any()  # start, end and padding are never chosen

    def test_the_shares_are_those_of_bert(self):
        lines = np.tile(self.LINE, (400, 1))  # 40,000 tokens: the shares below are exact to about 0.01
        inputs, labels = arranged(MaskedTokens(ORDINARY, MASK), lines, lines)
        chosen = labels != PAD
        assert chosen.sum() / (400 * 100) == pytest.approx(0.15, abs=0.01)
        found = inputs["source"][chosen]
        kept = found == lines[chosen]
        assert np.mean(found == MASK) == pytest.approx(0.8, abs=0.02)
        assert np.mean(kept) == pytest.approx(0.1, abs=0.02)
        others = found[(found != MASK) & ~kept]
        assert others.min() >= 4
        assert others.max() > 150  # any token of the vocabulary

    def test_special_ids_may_be_any(self):
        ordinary = ~np.isin(np.arange(200), [0, 100, 101, 102, 103])
        lines = np.tile([101, *range(20, 60), 102, 0], (200, 1))
        inputs, labels = arranged(MaskedTokens(ordinary, mask_id=103), lines, lines)
        chosen = labels != PAD
        assert not chosen[:, [0, -2, -1]].any()
        found = inputs["source"][chosen]
        assert ordinary[found[found != 103]].all()
        assert found.min() < 4  # low ids stand for text here

    def test_the_random_numbers_decide(self):
        arrangement = MaskedTokens(ORDINARY, MASK)
        first, again, other = (arranged(arrangement, [self.LINE], [[0]], seed)[1] for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_a_short_text_has_one_hidden_token_and_an_empty_row_none(self):
        _, labels = arranged(MaskedTokens(ORDINARY, MASK), [[START, 9, END], [PAD, PAD, PAD]], [[0], [0]])
        assert labels.tolist() == [[0, 9, 0], [0, 0, 0]]

    def test_whole_words_are_chosen_with_all_their_tokens(self):
        starts = np.zeros(200, bool)
        starts[np.arange(10, 110, 2)] = True  # words of two tokens: 10 11, 12 13, ...
        _, labels = arranged(MaskedTokens(ORDINARY, MASK, word_starts=starts), [self.LINE] * 5, [[0]] * 5)
        chosen = (labels != PAD)[:, 1:101].reshape(5, 50, 2)
        assert 0 < chosen.sum() < 250
        np.testing.assert_array_equal(chosen[..., 0], chosen[..., 1])

    def test_a_row_that_begins_within_a_word_has_a_draw_for_it(self):
        # Words of two tokens: 11 12, which no token begins, 10 11, and 13 12.
        starts = np.isin(np.arange(200), [10, 13])
        _, labels = arranged(MaskedTokens(ORDINARY, MASK, starts), [[11, 12, 10, 11, 13, 12]] * 400, [[0]] * 400)
        chosen = (labels != PAD).reshape(400, 3, 2)
        np.testing.assert_array_equal(chosen[..., 0], chosen[..., 1])
        together = chosen[:, 0, 0] & chosen[:, 1, 0]
        assert together.mean() < 0.1  # 0.15 squared, where one draw for both would give more than 0.15
        assert 0.2 < chosen[:, 0].mean() < 0.5  # 15 %, or the lowest of three draws


SOURCE, TARGET = [[7, 2], [0, 0], [0, 0]], [[8, 9, 2], [8, 2, 6], [6, 6, 6]]


class TestPaddingOfItsOwn:
    """Sources are filled up with 0 and targets with 6."""

    @staticmethod
    def arranged(arrangement, source, target):
        given = Rows(np.array(source, "int32"), np.array(target, "int32"), 0, 6, START)
        inputs, labels = arrangement.arrange(given, np.random.default_rng(0))
        return {name: ids.tolist() for name, ids in inputs.items()}, labels.tolist()

    def test_a_translator_reads_no_start_where_there_is_no_target(self):
        inputs, labels = self.arranged(ShiftedTarget(), SOURCE, TARGET)
        assert inputs == {"source": SOURCE, "target_in": [[1, 8, 9], [1, 8, 6], [6, 6, 6]]}
        assert labels == TARGET

    def test_a_language_model_without_a_start_predicts_nothing_of_the_padding(self):
        inputs, labels = self.arranged(NextToken(has_start=False), SOURCE, TARGET)
        assert inputs == {"target_in": [[8, 9, 6], [8, 6, 6], [6, 6, 6]]}
        assert labels == [[9, 2, 6], [2, 6, 6], [6, 6, 6]]

    @pytest.mark.parametrize(("length", "labels"), [(2, [5]), (2, [5, 6, 6, 6]), (4, [5, 6])])
    def test_a_tagger_fills_up_sources_and_labels_each_with_their_own(self, length, labels):
        inputs, found = self.arranged(SourceToLabels(for_each_token=True), [[7] * length], [labels])
        most = max(length, len(labels))
        assert inputs == {"source": [[7] * length + [0] * (most - length)]}
        assert found == [[5] + [6] * (most - 1)]

    def test_a_masked_language_model_predicts_nothing_where_it_hides_nothing(self):
        _, labels = self.arranged(MaskedTokens(ORDINARY, MASK), [[START, 9, END, 0]], [[6]])
        assert labels == [[6, 9, 6, 6]]
