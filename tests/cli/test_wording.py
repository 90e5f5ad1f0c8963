from kformer.wording import count


def test_numbers_and_nouns():
    assert count(1, "step") == "1 step"
    assert count(0, "step") == "0 steps"
    assert count(1200, "pair") == "1,200 pairs"
    assert [count(minutes, "minute") for minutes in (1.0, 2.5, 90.0)] == ["1 minute", "2.5 minutes", "90 minutes"]
