"""What a model is asked for each line, with a model that notes what it is asked."""

import numpy as np

from kformer.jobs.asking import AskedScores


class Noting:
    """A translator whose sources are all cut."""

    def __init__(self):
        self.asked, self.cut = [], []
        self.on_cut = self.cut.append

    def run(self, signature, inputs):
        self.asked.append((signature, *(list(texts) for texts in inputs.values())))
        ones = np.ones(len(inputs["text"]))
        return {"log_probability": -ones, "tokens": 3 * ones, "truncated": ones > 0}


def test_a_tag_stands_before_each_source():
    model = Noting()
    [[one], [blank]] = AskedScores(tag="<2es>").of_model(model)([b"one\tuno", b" "])
    assert model.asked == [("score", [b"<2es> one"], [b"uno"])]
    assert (one.text, one.score, one.tokens, blank.tokens) == ("uno", -1, 3, 0)
    assert model.cut == [b"one\tuno"]  # the line as it was given


def test_a_language_model_has_texts_alone():
    model = Noting()
    AskedScores("language-model").of_model(model)([b"one\ttwo"])
    assert model.asked == [("score", [b"one\ttwo"])]
    assert (AskedScores("language-model").columns, AskedScores().columns) == (None, 2)
