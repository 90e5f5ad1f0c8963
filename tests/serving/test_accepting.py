"""How many connections there is room for, by the descriptors that the system allows."""

import resource

import pytest

from kformer.serving import accepting

pytestmark = pytest.mark.tensorflow_only  # that is: once


@pytest.mark.parametrize(
    ("descriptors", "room"),
    [(1128, 500), (130, 1), (100, 1), (1_000_000, 1000), (resource.RLIM_INFINITY, 1000)],
)
def test_rest_may_have_half_of_the_descriptors_beside_those_of_everything_else(descriptors, room, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (descriptors, descriptors))
    assert accepting.room_for(1000) == room


def test_a_process_takes_as_many_descriptors_as_it_may_have(monkeypatch):
    taken = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: taken.append((kind, limits)))
    accepting.raise_descriptor_limit()
    assert taken == [(resource.RLIMIT_NOFILE, (4096, 4096))]
