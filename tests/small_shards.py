"""kformer with shards so small that the corpora of tests have many: `python tests/small_shards.py train ...`.

2,000 pairs at least are written as a shard. In an epoch 23 pairs lie together, and those of two such shards are mixed.
So a few updates lead through many groups of shards, as otherwise those of millions of pairs do.
"""

import contextlib
import functools
import unittest.mock
from collections.abc import Iterator

LONGEST = 5  # words of `toy.corpus`, which then has 9,130 training pairs, in five shards


@contextlib.contextmanager
def small_shards() -> Iterator[None]:
    """For the block, in this process."""
    import kformer.data.prepared.shards
    import kformer.training.plan

    with (
        unittest.mock.patch(
            "kformer.data.prepared.shards.ShardedIds",
            functools.partial(kformer.data.prepared.shards.ShardedIds, shard_pairs=1009),
        ),
        unittest.mock.patch(
            "kformer.training.plan.BatchPlan",
            functools.partial(kformer.training.plan.BatchPlan, shard_size=23, shards_together=2),
        ),
    ):
        yield


if __name__ == "__main__":
    from kformer.cli.main import main  # first, so that TensorFlow starts without its messages

    with small_shards():
        main()
