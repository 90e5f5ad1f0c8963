"""Buckets, shapes and padding."""

import pytest

from kformer.data import BatchPlan, default_bucket_lengths


def test_default_lengths() -> None:
    assert default_bucket_lengths(100) == (4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 100)
    assert default_bucket_lengths(8) == (4, 8)
    assert default_bucket_lengths(3) == (3,)
    assert default_bucket_lengths(512)[-5:] == (256, 320, 384, 448, 512)


def test_shapes_by_the_longer_side(make_encoded) -> None:
    # Bucket 4: two pairs; bucket 8: three, one because of its target, one because of its source.
    encoded = make_encoded([(4, 2), (2, 5), (3, 3), (8, 2), (7, 7)])
    plan = BatchPlan(encoded, tokens_per_batch=17, bucket_lengths=[4, 8, 16])
    assert plan.bucket_lengths == (4, 8)  # nothing is long enough for 16
    assert plan.shapes == ((4, 4, 4), (2, 8, 8))
    assert plan.steps_per_epoch == 1 + 2
    # Targets: 2 + 5 + 3 + 2 + 7 tokens in 16 + 2 * 16 positions.
    assert plan.padding_share == pytest.approx(1 - 19 / 48)


def test_a_batch_has_at_least_one_row(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(9, 9), (9, 9)]), tokens_per_batch=5, bucket_lengths=[9])
    assert (plan.shapes, plan.steps_per_epoch) == (((1, 9, 9),), 2)


def test_small_buckets_join_the_next_larger(make_encoded) -> None:
    # 32 tokens: 8 rows of 4, 4 rows of 8, 2 rows of 16. Seven pairs do not fill a batch of 8 rows.
    lengths = [(4, 4)] * 7 + [(7, 7)] + [(16, 16)]
    plan = BatchPlan(make_encoded(lengths, max_length=16), tokens_per_batch=32)
    assert plan.shapes == ((4, 8, 8), (2, 16, 16))
    assert plan.steps_per_epoch == 2 + 1
    lengths.append((2, 3))  # now eight
    plan = BatchPlan(make_encoded(lengths, max_length=16), tokens_per_batch=32)
    assert plan.shapes == ((8, 4, 4), (2, 16, 16))  # the lone pair of 7 joins the 16


def test_at_most_ten_shapes(make_encoded) -> None:
    lengths = [(length, length) for length in range(1, 300) for _ in range(13)]
    plan = BatchPlan(make_encoded(lengths, max_length=300), tokens_per_batch=300)
    assert len(plan.shapes) == 10
    assert plan.bucket_lengths[-1] == 300
    assert all(rows * length <= 300 for rows, length, _ in plan.shapes)


def test_buckets_end_at_the_longest_pair(make_encoded) -> None:
    plan = BatchPlan(make_encoded([(18, 5)], max_length=1000), tokens_per_batch=1000)
    assert plan.shapes == ((41, 24, 24),)


@pytest.mark.parametrize(
    ("bucket_lengths", "message"),
    [
        ([4], "end at 4, but the longest pair has 9 tokens. Add a bucket of 9 or more"),
        ([16, 8], "must ascend from 1 or more. Received: bucket_lengths=.16, 8."),
        ([8, 8], "must ascend"),
        ([0, 16], "must ascend"),
        ([], "must ascend"),
    ],
)
def test_unusable_bucket_lengths(bucket_lengths: list[int], message: str, make_encoded) -> None:
    with pytest.raises(ValueError, match=message):
        BatchPlan(make_encoded([(9, 3)]), tokens_per_batch=64, bucket_lengths=bucket_lengths)


def test_tokens_per_batch_below_one(make_encoded) -> None:
    with pytest.raises(ValueError, match=r"tokens_per_batch must be at least 1. Received: tokens_per_batch=0"):
        BatchPlan(make_encoded([(9, 3)]), tokens_per_batch=0)
