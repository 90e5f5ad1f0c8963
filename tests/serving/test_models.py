"""Versions that come and go, with models that are only names."""

import shutil

import pytest

from kformer.serving.config_files import ModelSettings
from kformer.serving.errors import Code, ServingError
from kformer.serving.models import ModelManager

pytestmark = pytest.mark.tensorflow_only


class Loaded:
    def __init__(self, name, version):
        self.name, self.version, self.closed = name, version, False

    def close(self):
        self.closed = True

    def waiting(self):
        return 0


class World:
    """A folder of versions and a manager over it. A version whose file says "broken" cannot be loaded."""

    def __init__(self, folder, **settings):
        self.folder, self.changes, self.loaded = folder, [], []
        self.settings = ModelSettings("m", folder, **settings)
        self.manager = ModelManager([self.settings], self.load, lambda *change: self.changes.append(change))

    def load(self, name, version, path):
        if (path / "model").read_text() == "broken":
            raise ValueError("the model is broken")
        self.loaded.append(Loaded(name, version))
        return self.loaded[-1]

    def add(self, version, content="fine"):
        (self.folder / str(version)).mkdir(exist_ok=True)
        (self.folder / str(version) / "model").write_text(content)

    def remove(self, version):
        shutil.rmtree(self.folder / str(version))

    def states(self):
        return {entry.number: entry.state.name for entry in self.manager.status("m")}

    def seen(self):
        return [(version, state.name) for _, version, state, _ in self.changes]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_newest_version_is_served_and_a_newer_one_takes_its_place(world):
    world.add(1)
    world.add(2)
    world.manager.update()
    assert world.manager.servable("m").version == 2
    world.add(11)  # numbers, not names: 11 is more than 2
    world.manager.update()
    assert world.manager.servable("m").version == 11
    assert [model.closed for model in world.loaded] == [True, False]
    assert world.states() == {11: "AVAILABLE", 2: "END"}


def test_the_new_version_is_available_before_the_old_one_goes(world):
    world.add(1)
    world.manager.update()
    world.add(2)
    world.manager.update()
    assert world.seen()[2:] == [(2, "LOADING"), (2, "AVAILABLE"), (1, "UNLOADING"), (1, "END")]


def test_a_broken_version_leaves_the_good_one_at_work_and_is_told(world):
    world.add(1)
    world.manager.update()
    world.add(2, "broken")
    world.manager.update()
    world.manager.update()
    assert world.manager.servable("m").version == 1
    broken, _ = world.manager.status("m")
    assert (broken.state.name, broken.error) == ("END", "the model is broken")
    assert world.seen().count((2, "LOADING")) == 1  # it is not tried again and again


def test_after_a_start_beside_a_broken_version_the_newest_one_that_works_is_served(world):
    world.add(1)
    world.add(2)
    world.add(3, "broken")
    world.add(4, "broken")
    world.manager.update()
    world.manager.update()
    assert world.manager.servable("m").version == 2
    assert world.states() == {4: "END", 3: "END", 2: "AVAILABLE"}
    assert [world.seen().count((number, "LOADING")) for number in (3, 4)] == [1, 1]
    world.add(4, "it is mended")
    world.manager.update()
    assert world.states() == {4: "AVAILABLE", 3: "END", 2: "END"}


def test_a_version_that_nobody_asked_for_is_not_served_in_place_of_a_broken_one(tmp_path):
    world = World(tmp_path, specific=(2,))
    world.add(1)
    world.add(2, "broken")
    world.manager.update()
    assert not world.manager.is_ready()


def test_a_broken_version_is_tried_again_when_its_files_change(world):
    world.add(1, "broken")
    world.manager.update()
    assert not world.manager.is_ready()
    world.add(1, "mended")  # as many bytes as before
    world.manager.update()
    assert world.manager.is_ready()
    assert world.states() == {1: "AVAILABLE"}


def test_where_the_newest_version_is_removed_the_one_before_it_returns(world):
    world.add(1)
    world.add(2)
    world.manager.update()
    world.remove(2)
    world.manager.update()
    assert world.manager.servable("m").version == 1
    assert world.states() == {2: "END", 1: "AVAILABLE"}


def test_a_folder_that_is_empty_for_a_while_takes_nothing_away(world):
    world.add(1)
    world.manager.update()
    world.remove(1)
    world.manager.update()
    assert world.manager.servable("m").version == 1


def test_several_versions_are_served_where_the_policy_asks_for_them(tmp_path):
    world = World(tmp_path, latest=None, labels={"stable": 1})
    for version in (1, 2, 3):
        world.add(version)
    world.manager.update()
    assert world.states() == {3: "AVAILABLE", 2: "AVAILABLE", 1: "AVAILABLE"}
    assert world.manager.servable("m", version=2).version == 2
    assert world.manager.servable("m", label="stable").version == 1
    with pytest.raises(ServingError, match="Unrecognized servable version label: 'canary'"):
        world.manager.servable("m", label="canary")
    specific = World(tmp_path, specific=(2,))
    specific.manager.update()
    assert specific.states() == {2: "AVAILABLE"}


def test_what_is_not_there_is_not_found(world):
    world.add(1)
    world.manager.update()
    for name, version in (("m", 7), ("other", None)):
        with pytest.raises(ServingError, match="Servable not found for request") as missing:
            world.manager.servable(name, version)
        assert missing.value.code == Code.NOT_FOUND
    with pytest.raises(ServingError, match="Could not find any versions of model m, version 7"):
        world.manager.status("m", 7)


def test_before_the_first_version_is_loaded_a_client_is_told_to_come_back(world):
    world.add(1)
    with pytest.raises(ServingError, match="The model m is being loaded") as early:
        world.manager.servable("m")
    assert early.value.code == Code.UNAVAILABLE


def test_other_models_can_be_asked_for_while_it_runs(world, tmp_path):
    world.add(1)
    world.manager.update()
    (tmp_path / "more").mkdir()
    other = ModelSettings("other", tmp_path / "more")
    with pytest.raises(ServingError, match="No version could be loaded of: other"):
        world.manager.reload([world.settings, other])
    assert world.manager.servable("m").version == 1
    world.folder = tmp_path / "more"
    world.add(5)
    world.manager.reload([other])
    assert world.manager.names() == ["other"]
    assert world.manager.servable("other").version == 5
    assert world.loaded[0].closed
    with pytest.raises(ServingError, match="not found"):
        world.manager.servable("m")


def test_a_model_that_is_asked_for_again_while_it_is_let_go_stays(world):
    other = ModelSettings("other", world.folder)
    world.add(1)
    world.manager.update()
    load = world.load

    def load_meanwhile(name, version, path):
        """While the second model is loaded, the first one, which was to go, is asked for again."""
        world.manager._load = load
        world.manager._settings = {"m": world.settings, "other": other}
        return load(name, version, path)

    world.manager._load = load_meanwhile
    world.manager.reload([other])
    world.manager.reload([world.settings, other])
    assert world.manager.servable("m").version == world.manager.servable("other").version == 1


def test_a_folder_that_cannot_be_read_does_not_stop_the_others_and_is_told_once(tmp_path, caplog):
    world = World(tmp_path / "m")
    world.folder.mkdir()
    world.add(1)
    missing = ModelSettings("a", tmp_path / "nothing")
    manager = ModelManager([missing, world.settings], world.load, lambda *change: None)
    manager.update()
    manager.update()
    assert manager.servable("m").version == 1
    assert not manager.is_ready()
    with pytest.raises(ServingError, match="Servable not found"):
        manager.servable("a")
    assert [record.fields["error"] for record in caplog.records] == [f"{tmp_path / 'nothing'} is no folder."]


def test_a_number_that_is_no_version_is_left_alone(world):
    world.add(1)
    world.add(2**63)
    world.manager.update()
    assert world.manager.servable("m").version == 1
    assert world.states() == {1: "AVAILABLE"}


def test_closing_lets_all_versions_go(world):
    world.add(1)
    world.manager.start(poll_seconds=0.01)
    for _ in range(1000):
        if world.manager.is_ready():
            break
        world.manager._stop.wait(0.01)
    world.manager.close()
    assert [model.closed for model in world.loaded] == [True]


def test_as_many_of_the_newest_versions_are_served_as_are_asked_for(tmp_path):
    world = World(tmp_path, latest=2)
    for number in (1, 2, 3):
        world.add(number)
    world.manager.update()
    assert world.states() == {3: "AVAILABLE", 2: "AVAILABLE"}
