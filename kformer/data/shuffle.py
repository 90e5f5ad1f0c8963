"""Random orders that depend on nothing but a key, and epochs in which a large corpus is read shard by shard.

Shapes: N pairs, H shards, K buckets.
"""

import hashlib

import numpy as np

SHARD_SIZE = 1 << 20  # pairs that lie together
# Shards whose pairs are mixed. Some hundred million tokens, which take about a GB: so much stays in the memory of the
# system while it is read at random, also if the whole corpus does not.
SHARDS_TOGETHER = 8


def permutation(count: int, *key: int | None) -> np.ndarray:
    """(count,) int64: the numbers from 0 up in a random order. It is the same for the same key, with every NumPy.

    NumPy's own permutations may change from version to version. The bits of its generators never do, see
    https://numpy.org/neps/nep-0019-rng-policy.html.

    Examples:
        >>> permutation(5, 7).tolist()
        [3, 1, 2, 0, 4]
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    drawn = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(count)
    return np.argsort(drawn, kind="stable")


class ShardedOrder:
    """In which order the pairs of each bucket come, epoch after epoch.

    In an epoch, the shards come in a random order, some together. The pairs of those are mixed: `SHARDS_TOGETHER` of
    `SHARD_SIZE` pairs. So a corpus of up to 8 million pairs is mixed as a whole, and of a larger one only a part is
    read at a time.

    Args:
        buckets: (N,) the number of the bucket of each pair, from 0 up.
        number: K, how many buckets there are.
        seed: None: nothing is mixed.
        shard_size: pairs of a shard; the last may have fewer.
        together: shards that are mixed.

    Attributes:
        groups: how many groups of shards an epoch has.
    """

    def __init__(
        self,
        buckets: np.ndarray,
        number: int,
        seed: int | None,
        shard_size: int = SHARD_SIZE,
        together: int = SHARDS_TOGETHER,
    ) -> None:
        self._buckets = buckets
        self.seed = seed
        self._size = shard_size
        self._together = together
        shards = range(0, len(buckets), shard_size)
        self._counts = np.stack([np.bincount(buckets[start:][:shard_size], minlength=number) for start in shards])
        self._totals = self._counts.sum(axis=0)  # (K,)
        self.groups = -(-len(shards) // together)
        self._orders: dict[int, list[np.ndarray]] = {}
        self._members: dict[int, dict[tuple[int, int], np.ndarray]] = {}

    def ends(self, epoch: int) -> np.ndarray:
        """(groups, K) int64: the pairs of each bucket in the epoch up to the end of each group."""
        return np.cumsum([self._counts[shards].sum(axis=0) for shards in self._shards(epoch)], axis=0)

    def take(self, bucket: int, start: int, count: int) -> np.ndarray:
        """(count,) int64: pairs of a bucket, from number `start` of the endless sequence of its pairs on."""
        found: list[np.ndarray] = []
        while count:
            epoch, place = divmod(start, int(self._totals[bucket]))
            ends = self.ends(epoch)[:, bucket]
            group = int(np.searchsorted(ends, place, side="right"))
            begin = int(ends[group - 1]) if group else 0
            found.append(self._pairs(bucket, epoch, group)[place - begin : place - begin + count])
            start, count = start + len(found[-1]), count - len(found[-1])
        return np.concatenate(found)

    def of_batches(self, count: int, epoch: int, group: int) -> np.ndarray:
        """(count,) int64: the order of the batches that become full in a group of shards."""
        return np.arange(count) if self.seed is None else permutation(count, self.seed, epoch, group)

    def _shards(self, epoch: int) -> list[np.ndarray]:
        """The shards of each group."""
        if epoch not in self._orders:
            number = len(self._counts)
            order = np.arange(number) if self.seed is None else permutation(number, self.seed, epoch)
            groups = [order[start : start + self._together] for start in range(0, number, self._together)]
            near = {known: order for known, order in self._orders.items() if abs(known - epoch) == 1}
            self._orders = {**near, epoch: groups}
        return self._orders[epoch]

    def _pairs(self, bucket: int, epoch: int, group: int) -> np.ndarray:
        """The pairs of a bucket in a group, in their order. The group before is kept, too: a batch may need both."""
        known = self._members.setdefault(bucket, {})
        if (epoch, group) not in known:
            starts = self._shards(epoch)[group] * self._size
            found = [start + np.flatnonzero(self._buckets[start : start + self._size] == bucket) for start in starts]
            members = np.concatenate(found)
            if self.seed is not None:
                members = members[permutation(len(members), self.seed, epoch, group, bucket)]
            self._members[bucket] = {**dict(list(known.items())[-1:]), (epoch, group): members}
        return self._members[bucket][epoch, group]
