"""Versions that come and go, with models that are only names."""

import collections
import contextlib
import errno
import itertools
import os
import pathlib
import shutil
import threading
import time

import pytest
from servers import wait

from kformer.runtime.c_api import SavedModelError
from kformer.runtime.status_codes import Code
from kformer.serving import loading, model_manager, served_model
from kformer.serving import version as version_module
from kformer.serving.errors import ServingError
from kformer.serving.model_manager import ModelManager
from kformer.serving.model_settings import ModelSettings
from kformer.serving.served_model import ServedModel
from kformer.serving.version import State, Version

pytestmark = pytest.mark.tensorflow_only


class Loaded:
    def __init__(self, name, version):
        self.name, self.version, self.closed = name, version, False

    def close(self):
        self.closed = True

    def waiting(self):
        return 0


class World:
    """A folder of versions and a manager over it.

    A version whose file says "broken" cannot be loaded; one that says "slow" is loaded when `go_on` is set.
    """

    def __init__(self, folder, load_seconds=60.0, others=(), **settings):
        self.folder, self.changes, self.loaded, self.forgotten = folder, [], [], []
        self.error, self.go_on = None, threading.Event()
        self.settings = ModelSettings("m", folder, **settings)
        self.manager = ModelManager(
            [self.settings, *others],
            self.load,
            lambda *change: self.changes.append(change),
            lambda *version: self.forgotten.append(version),
            load_seconds,
        )

    def load(self, name, version, path):
        content = (path / "model").read_text()
        if self.error is not None:
            raise self.error
        if content == "broken":
            raise ValueError("the model is broken")
        if content == "slow":
            assert self.go_on.wait(60)
        self.loaded.append(Loaded(name, version))
        return self.loaded[-1]

    def add(self, version, content="fine"):
        folder = self.folder / str(version)
        if folder.exists():
            (folder / "model").write_text(content)
        else:  # with its file at once: the manager may be looking
            (self.folder / "new").mkdir()
            (self.folder / "new" / "model").write_text(content)
            (self.folder / "new").rename(folder)

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


def test_an_update_looks_again_where_a_version_was_loaded_before_the_look_ended(world, monkeypatch):
    look = ServedModel.look

    def look_slowly(model, unload):
        found = look(model, unload)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(ServedModel, "look", look_slowly)
    world.add(1)
    world.manager.update()
    world.add(2)
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "END"}


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


def test_a_broken_version_that_somebody_removes_leaves_the_status(world):
    world.add(1)
    world.add(2, "broken")
    world.manager.update()
    world.remove(2)
    world.manager.update()
    assert world.states() == {1: "AVAILABLE"}
    assert world.forgotten == [("m", 2)]


def test_a_broken_version_is_tried_again_when_its_files_change(world):
    world.add(1, "broken")
    world.manager.update()
    assert not world.manager.is_ready()
    world.add(1, "mended")  # as many bytes as before
    world.manager.update()
    assert world.manager.is_ready()
    assert world.states() == {1: "AVAILABLE"}


def test_a_broken_version_is_tried_again_in_another_folder_of_the_same_number(world):
    world.add(1)
    world.add(2, "broken")
    world.manager.update()
    assert world.states() == {1: "AVAILABLE", 2: "END"}
    world.remove(2)
    world.add("002")
    world.manager.update()
    world.manager.update()
    assert world.states() == {1: "END", 2: "AVAILABLE"}


def test_where_the_newest_version_is_removed_the_one_before_it_returns(world):
    world.add(1)
    world.add(2)
    world.manager.update()
    world.remove(2)
    world.manager.update()
    assert world.manager.servable("m").version == 1
    assert world.states() == {2: "END", 1: "AVAILABLE"}


def test_a_version_that_was_let_go_is_loaded_again_where_it_is_the_newest_again(world):
    for number in (1, 2):
        world.add(number)
        world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "END"}
    world.remove(2)
    world.manager.update()
    assert world.manager.servable("m").version == 1
    assert [model.version for model in world.loaded] == [1, 2, 1]


def test_all_versions_that_were_asked_for_stay_while_their_folder_is_empty(tmp_path):
    world = World(tmp_path, specific=(1, 2))
    for number in (1, 2):
        world.add(number)
    world.manager.update()
    for number in (1, 2):
        world.remove(number)
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "AVAILABLE"}


@pytest.mark.parametrize("policy", [{}, {"latest": None}, {"specific": (1,)}])
def test_a_folder_that_is_empty_for_a_while_takes_nothing_away(tmp_path, policy):
    world = World(tmp_path, **policy)
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


def test_who_asks_for_another_version_than_the_one_that_is_being_loaded_need_not_come_back(world):
    world.add(1, "slow")
    world.manager.start(poll_seconds=0.01)
    wait(lambda: (1, "LOADING") in world.seen())
    for version, code in ((None, Code.UNAVAILABLE), (1, Code.UNAVAILABLE), (7, Code.NOT_FOUND)):
        with pytest.raises(ServingError) as refused:
            world.manager.servable("m", version)
        assert refused.value.code == code
    world.go_on.set()
    world.manager.close()


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


def test_a_folder_that_cannot_be_read_once_more_is_told_once_more(tmp_path, caplog):
    manager = ModelManager([ModelSettings("m", tmp_path / "m")], None, lambda *change: None)
    for _ in range(2):
        manager.update()
        (tmp_path / "m").mkdir()
        manager.update()
        (tmp_path / "m").rmdir()
    assert [record.fields["error"] for record in caplog.records] == [f"{tmp_path / 'm'} is no folder."] * 2


def test_the_names_of_the_models_are_in_order(tmp_path):
    models = [ModelSettings(name, tmp_path) for name in ("b", "c", "a")]
    assert ModelManager(models, None, lambda *change: None).names() == ["a", "b", "c"]


def test_a_folder_that_does_not_answer_does_not_stop_the_others_and_is_told_once(tmp_path, caplog, monkeypatch):
    """As the folder of a network file system whose server is away."""

    def versions(folder):
        if folder == tmp_path / "away":
            asked.append(folder)
            assert world.go_on.wait(60)
        return find(folder)

    for name in ("away", "m"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model").write_text("fine")
    asked, find = [], served_model.versions
    monkeypatch.setattr(served_model, "versions", versions)
    monkeypatch.setattr(served_model, "SECONDS_TO_READ", 0.1)
    world = World(tmp_path / "m")
    manager = ModelManager([ModelSettings("away", tmp_path / "away"), world.settings], world.load, lambda *change: None)
    manager.update()
    manager.update()
    assert manager.servable("m").version == 1
    assert len(asked) == 1  # no second thread waits for the same folder
    (record,) = caplog.records
    assert f"{tmp_path / 'away'} does not answer within 0.1 seconds" in record.fields["error"]
    world.go_on.set()
    wait(lambda: manager.update() or manager.is_ready())
    assert manager.servable("away").version == 1


def test_a_number_that_is_no_version_is_left_alone(world):
    world.add(1)
    world.add(2**63)
    world.manager.update()
    assert world.manager.servable("m").version == 1
    assert world.states() == {1: "AVAILABLE"}


def test_closing_lets_all_versions_go(world):
    world.add(1)
    world.manager.start(poll_seconds=0.01)
    wait(world.manager.is_ready)
    world.manager.close()
    assert [model.closed for model in world.loaded] == [True]


def test_closing_does_not_wait_for_the_next_look(world):
    world.add(1)
    world.manager.start(poll_seconds=60)
    wait(world.manager.is_ready)
    closing = threading.Thread(target=world.manager.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()


def test_closing_waits_for_a_change_of_the_models_and_lets_its_versions_go(world, tmp_path_factory, monkeypatch):
    other = ModelSettings("other", tmp_path_factory.mktemp("other"))
    (other.base_path / "1").mkdir()
    (other.base_path / "1" / "model").write_text("fine")
    world.add(1)
    world.manager.update()
    looking, look, told = threading.Event(), ServedModel.look, []

    def look_slowly(model, unload):
        if model.settings is other:
            looking.set()
            assert world.go_on.wait(10)
        return look(model, unload)

    def reload():
        with contextlib.suppress(ServingError):  # it depends on the moment whether the version is loaded before the end
            world.manager.reload([world.settings, other])

    def close():
        world.manager.close()
        told.append(len(world.changes))

    monkeypatch.setattr(ServedModel, "look", look_slowly)
    threads = [threading.Thread(target=reload), threading.Thread(target=close)]
    threads[0].start()
    assert looking.wait(10)
    threads[1].start()
    threads[1].join(0.3)
    world.go_on.set()
    for thread in threads:
        thread.join(10)
    world.manager.close()  # which waits for what is under way
    assert told == [len(world.changes)]  # nothing has begun after the end
    assert all(model.closed for model in world.loaded)


def test_as_many_of_the_newest_versions_are_served_as_are_asked_for(tmp_path):
    world = World(tmp_path, latest=2)
    for number in (1, 2, 3):
        world.add(number)
    world.manager.update()
    assert world.states() == {3: "AVAILABLE", 2: "AVAILABLE"}


# Errors that pass, and loads that take too long


def test_a_load_that_failed_for_a_passing_reason_is_tried_again_each_minute_five_times(world, clock):
    world.add(1)
    world.error = PermissionError(13, "Permission denied", "model")
    for minute in range(8):
        clock[0] = 1000.0 + 61 * minute
        world.manager.update()
        world.manager.update()
    assert world.seen().count((1, "LOADING")) == 6
    (version,) = world.manager.status("m")
    assert version.error == "[Errno 13] Permission denied: 'model'"
    world.error = None
    os.chmod(world.folder / "1" / "model", 0o600)  # the rights have changed, not the content
    world.manager.update()
    assert world.states() == {1: "AVAILABLE"}


def test_it_works_as_soon_as_the_reason_has_passed(world, clock):
    world.add(1)
    world.error = SavedModelError("too many open files", code=8)
    world.manager.update()
    world.error = None
    clock[0] += 59
    world.manager.update()
    assert world.states() == {1: "END"}
    clock[0] += 2
    world.manager.update()
    assert world.states() == {1: "AVAILABLE"}


@pytest.mark.parametrize(
    "error",
    [ValueError("damaged"), SavedModelError("no such operation", code=5), SavedModelError("data loss", code=15)],
)
def test_what_is_wrong_with_the_model_itself_does_not_pass(world, clock, error):
    world.add(1)
    world.error = error
    for _ in range(4):
        clock[0] += 61
        world.manager.update()
    assert world.seen().count((1, "LOADING")) == 1


@pytest.mark.parametrize(
    ("codes", "passes"),
    [((3, 5, 9, 11, 12, 15), False), ((4, 7, 8, 10, 13, 14), True)],
    ids=["of the model", "of the machine"],
)
def test_errors_of_tensorflow_may_pass_where_they_do_not_tell_that_the_model_is_wrong(codes, passes):
    assert {version_module.may_pass(SavedModelError("refused", code)) for code in codes} == {passes}


def test_a_folder_that_cannot_be_read_is_no_reason_to_load_it_again(world, monkeypatch):
    def refuse(file):
        raise PermissionError(errno.EACCES, "Permission denied")

    world.add(1)
    readable = version_module.fingerprint(world.folder / "1")
    monkeypatch.setattr(version_module, "_facts", refuse)
    files = version_module.fingerprint(world.folder / "1")
    failed = version_module.Version(1, world.folder / "1", files=files)
    assert version_module.next_try(failed) is None
    monkeypatch.undo()
    assert version_module.next_try(failed).files == readable


def test_a_load_that_takes_too_long_does_not_stop_other_models(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "SECONDS_FOR_ITSELF", 0.0)
    slow = World(tmp_path / "m", load_seconds=0.1, others=[ModelSettings("other", tmp_path / "other")])
    for folder in ("m/1", "m/2", "other/1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "model").write_text("slow" if folder == "m/2" else "fine")
    slow.manager.update()
    assert slow.manager.servable("other").version == 1
    assert slow.manager.servable("m").version == 1  # the one before
    assert slow.manager.is_ready()
    late, _ = slow.manager.status("m")
    assert (late.state.name, late.error) == ("LOADING", "loading takes longer than 0.1 seconds; it goes on")
    slow.go_on.set()
    wait(lambda: slow.manager.update() or slow.states() == {2: "AVAILABLE", 1: "END"})
    assert slow.manager.servable("m").version == 2  # better late than never


@pytest.mark.parametrize(
    ("alone", "load_seconds"),
    [(0.0, 600.0), (60.0, 0.1)],
    ids=["it has been alone for long", "it takes too long"],
)
def test_another_model_does_not_wait_for_a_load_without_end(tmp_path, monkeypatch, alone, load_seconds):
    monkeypatch.setattr(loading, "SECONDS_FOR_ITSELF", alone)
    for name, content in (("m", "slow"), ("other", "fine")):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model").write_text(content)
    world = World(tmp_path / "m", load_seconds, others=[ModelSettings("other", tmp_path / "other")])
    world.manager.start(poll_seconds=0.01)
    wait(lambda: ("other", 1, "AVAILABLE") in [(name, number, state.name) for name, number, state, _ in world.changes])
    assert [model.name for model in world.loaded] == ["other"]
    assert world.states() == {1: "LOADING"}
    world.go_on.set()
    world.manager.close()


def test_two_versions_of_a_model_are_loaded_at_once_at_most(tmp_path, monkeypatch):
    """Where each takes longer than the next takes to come, each load would slow down the others."""
    monkeypatch.setattr(loading, "SECONDS_FOR_ITSELF", 0.0)
    world = World(tmp_path, load_seconds=600)
    world.manager.start(poll_seconds=0.01)

    def begun():
        return [number for number, state in world.seen() if state == "LOADING"]

    for number in (1, 2):
        world.add(number, "slow")
        wait(lambda number=number: number in begun())
    for number in (3, 4):
        world.add(number)
        time.sleep(0.2)  # it is looked at many times
    assert begun() == [1, 2]
    world.go_on.set()
    wait(lambda: world.states().get(4) == "AVAILABLE")
    world.manager.close()
    assert begun() == [1, 2, 4]
    assert 3 not in world.states()


def start_no_thread(monkeypatch, name):
    """The system has no thread for what has this name."""

    def start_others(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start_others)


def test_a_version_for_which_the_system_has_no_thread_is_loaded_a_minute_later(world, clock, monkeypatch):
    world.add(1)
    with monkeypatch.context() as scarce:
        start_no_thread(scarce, "m 1")
        world.manager.update()
    (version,) = world.manager.status("m")
    assert (version.state.name, version.error) == ("END", "can't start new thread")
    clock[0] += 61
    world.manager.update()
    assert world.states() == {1: "AVAILABLE"}


def test_a_version_is_let_go_also_where_the_system_has_no_thread_for_it(world, monkeypatch):
    world.add(1)
    world.manager.update()
    world.add(2)
    start_no_thread(monkeypatch, "m 1")
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "END"}
    assert [model.closed for model in world.loaded] == [True, False]


def test_a_version_that_waits_for_its_load_and_is_wanted_no_longer_ends(tmp_path):
    version = Version(1, tmp_path)
    loading.Loader(None, lambda *change: None, 60.0).let_go("m", version)
    assert version.state == State.END


def test_memory_is_given_back_when_a_version_is_loaded_or_let_go(world, monkeypatch):
    given = []
    monkeypatch.setattr(loading, "give_back", lambda: given.append([model.closed for model in world.loaded]))
    for number in (1, 2):
        world.add(number)
        world.manager.update()
    assert given == [[False], [False, False], [True, False]]  # the last one after the first version has been closed


def test_memory_is_given_back_again_and_again(world, monkeypatch):
    given = collections.defaultdict(list)  # by thread: servers of other tests may watch theirs, too

    def give_back():
        given[threading.get_ident()].append(time.monotonic())

    monkeypatch.setattr(model_manager, "give_back", give_back)
    monkeypatch.setattr(model_manager, "_SECONDS_OF_MEMORY", 0.05)
    world.manager.start(0.01)
    try:
        wait(lambda: any(len(times) > 2 for times in list(given.values())))
    finally:
        world.manager.close()
    for times in given.values():
        assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(times))


def test_a_model_in_a_list_that_takes_too_long_leaves_everything_as_it_was(tmp_path):
    world = World(tmp_path / "m", load_seconds=0.1)
    for folder, content in (("m/1", "fine"), ("slow/1", "slow"), ("m/2", "fine")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "model").write_text(content)
        if folder == "slow/1":
            world.manager.update()
            with pytest.raises(ServingError, match="No version could be loaded of: slow"):
                world.manager.reload([world.settings, ModelSettings("slow", tmp_path / "slow")])
    world.manager.update()  # while it is still being loaded
    assert world.manager.names() == ["m"]
    assert world.manager.servable("m").version == 2
    world.go_on.set()
    wait(lambda: [model.closed for model in world.loaded if model.name == "slow"] == [True])


def test_versions_are_loaded_one_after_the_other(tmp_path):
    world = World(tmp_path, latest=3)
    for number in (1, 2, 3):
        world.add(number)
    world.manager.update()
    assert world.seen() == [(number, state) for number in (1, 2, 3) for state in ("LOADING", "AVAILABLE")]


class StoodInLoader:
    """Notes what it is told to load and to let go. A load does not end by itself."""

    def __init__(self):
        self.changed, self.begun, self.let_gone = threading.Condition(), [], []

    def may_start(self, name):
        return True

    def start(self, name, version):
        self.begun.append(version.number)
        version.state = State.LOADING

    def let_go(self, name, version):
        self.let_gone.append(version.number)
        version.state = State.END

    def tell_overdue(self, name, version):
        pass


def test_a_load_that_ends_during_a_look_does_not_change_the_order(tmp_path):
    world = World(tmp_path, latest=3)
    for number in (1, 2, 3):
        world.add(number)

    class Loader(StoodInLoader):
        """The load of version 1 ends after version 2 was told to wait for it."""

        answers = iter([True, False, True, True])

        def may_start(self, name):
            return next(self.answers)

        def start(self, name, version):
            super().start(name, version)
            version.state = State.AVAILABLE

    loader = Loader()
    model = ServedModel(world.settings, loader)
    model.look()
    assert loader.begun == [1]
    model.look()
    assert loader.begun == [1, 2, 3]


@pytest.mark.parametrize(("latest", "gone"), [(1, [1, 2, 3, 4]), (2, [1, 2])])
def test_versions_that_come_faster_than_they_are_loaded_do_not_pile_up(tmp_path, latest, gone):
    world, loader = World(tmp_path, latest=latest), StoodInLoader()
    model = ServedModel(world.settings, loader)
    for number in range(1, 7):
        world.add(number)
        if number > latest:  # a version has been loaded when so many newer ones are there
            model.versions[number - latest].state = State.AVAILABLE
        model.look()
    assert loader.let_gone == gone
    assert len(model.available()) == latest


@pytest.mark.parametrize("way", ["files", "link", "weights", "weights of the same size"])
def test_files_that_are_replaced_under_a_version_that_answers_are_told_once(way, tmp_path):
    for color in ("blue", "green"):
        (tmp_path / color / "1").mkdir(parents=True)
        (tmp_path / color / "1" / "model").touch()
        (tmp_path / color / "1" / "saved_model.pb").write_text(color)
        (tmp_path / color / "1" / "variables").mkdir()
        (tmp_path / color / "1" / "variables" / "variables.index").write_text("weights")
    (tmp_path / "base").symlink_to("blue")
    world = World(tmp_path / "base")
    with contextlib.closing(world.manager):
        world.manager.update()
        (tmp_path / "blue" / "1" / "notes").touch()
        (tmp_path / "blue" / "1" / "saved_model.pb").chmod(0o600)
        world.manager.update()
        told = len(world.changes)
        if way == "link":
            (tmp_path / "base").unlink()
            (tmp_path / "base").symlink_to("green")
        elif way == "weights":
            (tmp_path / "blue" / "1" / "variables" / "variables.index").write_text("others")
        elif way == "weights of the same size":
            os.utime(tmp_path / "blue" / "1" / "variables" / "variables.index", (1000, 1000))
        else:
            shutil.rmtree(tmp_path / "blue" / "1")
            shutil.copytree(tmp_path / "green" / "1", tmp_path / "blue" / "1")
        for _ in range(3):
            world.manager.update()
        ((name, number, state, error),) = world.changes[told:]
        assert (name, number, state) == ("m", 1, State.AVAILABLE)
        assert "base/1 have changed since this version was loaded, and it answers as before; give a new model" in error
        assert world.manager.status("m")[0].error == ""


def test_a_version_that_answers_while_its_files_are_removed_is_not_told_to_have_others(world):
    world.add(1)
    (world.folder / "1" / "saved_model.pb").write_text("graph")
    world.manager.update()
    (world.folder / "1" / "saved_model.pb").unlink()
    world.manager.update()
    assert world.seen() == [(1, "LOADING"), (1, "AVAILABLE")]


def test_versions_that_are_long_gone_leave_the_status(world, clock):
    world.add(1)
    world.manager.update()
    world.add(2)
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "END"}
    clock[0] += 599  # for ten minutes one can see what happened
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "END"}
    clock[0] += 2
    world.manager.update()
    assert world.states() == {2: "AVAILABLE"}
    assert world.forgotten == [("m", 1)]


# Other models are asked for: all of them, or nothing changes


def test_a_bad_model_in_a_list_leaves_everything_as_it_was(world, tmp_path):
    world.add(1)
    world.manager.update()
    for name, content in (("good", "fine"), ("bad", "broken")):
        (tmp_path / "more" / name / "7").mkdir(parents=True)
        (tmp_path / "more" / name / "7" / "model").write_text(content)
    models = [ModelSettings(name, tmp_path / "more" / name) for name in ("good", "bad")]
    with pytest.raises(ServingError, match="No version could be loaded of: bad. The models stay as they were"):
        world.manager.reload(models)
    assert world.manager.names() == ["m"]
    assert world.manager.is_ready()
    assert not world.loaded[0].closed
    world.manager.update()
    assert world.loaded[1].closed  # the good one of the list
    assert sorted(world.forgotten) == [("bad", 7), ("good", 7)]


def test_a_refused_reload_takes_no_version_away(tmp_path):
    world = World(tmp_path / "m", latest=2)
    for number in (1, 2):
        (world.folder / str(number)).mkdir(parents=True)
        world.add(number)
    world.manager.update()
    (tmp_path / "bad").mkdir()
    with pytest.raises(ServingError, match="No version could be loaded of: bad"):
        world.manager.reload([ModelSettings("m", world.folder), ModelSettings("bad", tmp_path / "bad")])
    world.manager.update()
    assert world.states() == {2: "AVAILABLE", 1: "AVAILABLE"}
    assert "UNLOADING" not in [state for _, state in world.seen()]


def test_an_error_without_words_is_told_by_its_name_and_is_not_met_again_and_again(world):
    world.error = MemoryError()
    world.add(1)
    updating = threading.Thread(target=world.manager.update, daemon=True)
    updating.start()
    updating.join(5)
    assert not updating.is_alive()
    (broken,) = world.manager.status("m")
    assert (broken.state.name, broken.error) == ("END", "MemoryError")
    assert world.seen().count((1, "LOADING")) == 1


def test_a_wanted_version_that_is_not_there_does_not_stop_the_others(tmp_path, caplog):
    world = World(tmp_path, specific=(1, 5))
    world.add(1)
    world.manager.update()
    assert world.states() == {1: "AVAILABLE"}
    assert not [record for record in caplog.records if record.message == "unreadable"]


def test_a_broken_version_stays_in_the_status_and_is_not_loaded_again(world, clock):
    world.add(1, "broken")
    world.manager.update()
    clock[0] += 601
    world.manager.update()
    world.manager.update()
    assert world.states() == {1: "END"}
    assert world.seen().count((1, "LOADING")) == 1


def test_a_label_of_a_version_that_is_not_loaded_is_refused(world):
    world.add(1)
    world.manager.update()
    for number, refused in ((7, True), (1, False)):
        labelled = ModelSettings("m", world.folder, labels={"stable": number})
        if refused:
            with pytest.raises(ServingError, match="Labels name versions that are not loaded: stable of m") as error:
                world.manager.reload([labelled])
            assert error.value.code == Code.FAILED_PRECONDITION
            with pytest.raises(ServingError, match="Unrecognized servable version label"):
                world.manager.servable("m", label="stable")
        else:
            world.manager.reload([labelled])
            assert world.manager.servable("m", label="stable").version == 1
    assert len(world.loaded) == 1  # the version stays


def test_a_list_with_a_folder_that_cannot_be_read_leaves_everything_as_it_was(world, monkeypatch):
    def refuse(path, strict=False):
        raise OSError(errno.EIO, "Input/output error", str(path))

    world.add(1)
    world.manager.update()
    monkeypatch.setattr(pathlib.Path, "resolve", refuse)
    with pytest.raises(ServingError, match="Input/output error: .* The models stay as they were") as refused:
        world.manager.reload([ModelSettings("m", world.folder, latest=2)])
    assert refused.value.code == Code.FAILED_PRECONDITION
    assert world.manager.servable("m") is world.loaded[0]


def test_an_empty_list_is_refused(world):
    world.add(1)
    world.manager.update()
    with pytest.raises(ServingError, match="The list names no model") as error:
        world.manager.reload([])
    assert error.value.code == Code.INVALID_ARGUMENT
    assert world.manager.servable("m").version == 1
    assert not ModelManager([], world.load, lambda *change: None).is_ready()


def test_the_same_number_in_another_folder_is_another_version(world, tmp_path):
    world.add(1)
    world.manager.update()
    (tmp_path / "more" / "1").mkdir(parents=True)
    (tmp_path / "more" / "1" / "model").write_text("fine")
    world.manager.reload([ModelSettings("m", tmp_path / "more")])
    assert world.manager.servable("m") is world.loaded[1]
    assert [model.closed for model in world.loaded] == [True, False]
    world.manager.update()
    assert world.seen()[-1] == (1, "AVAILABLE")  # what the metrics show


@pytest.mark.parametrize("names", [("m", "link"), ("link", "m")])
def test_the_same_folder_by_another_name_is_not_loaded_again(tmp_path, names):
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to("m")
    first, second = (tmp_path / name for name in names)
    world = World(first)
    world.add(1)
    world.manager.update()
    world.manager.reload([ModelSettings("m", second)])
    assert len(world.loaded) == 1
    assert world.manager.servable("m") is world.loaded[0]


def test_a_policy_can_change_without_loading_anything_again(world):
    for number in (1, 2, 3):
        world.add(number)
    world.manager.update()
    world.manager.reload([ModelSettings("m", world.folder, latest=2)])
    assert world.states() == {3: "AVAILABLE", 2: "AVAILABLE"}
    world.manager.reload([world.settings])
    assert world.states() == {3: "AVAILABLE", 2: "END"}
    assert [model.version for model in world.loaded] == [3, 2]


def test_a_version_that_is_being_loaded_is_not_loaded_again_when_the_policy_changes(world):
    world.add(1, "slow")
    world.manager.start(poll_seconds=0.01)
    wait(lambda: (1, "LOADING") in world.seen())
    reloading = threading.Thread(target=world.manager.reload, args=[[ModelSettings("m", world.folder, latest=2)]])
    reloading.start()
    time.sleep(0.1)
    world.go_on.set()
    reloading.join(10)
    world.manager.close()
    assert [model.version for model in world.loaded] == [1]


def test_a_version_that_could_not_be_loaded_is_tried_again_with_another_list(world):
    world.add(1)
    world.add(2, "broken")
    world.manager.update()
    world.manager.reload([world.settings])
    assert world.states() == {2: "END", 1: "AVAILABLE"}
    assert world.seen().count((2, "LOADING")) == 2


def test_the_log_says_which_models_were_asked_for_and_why_they_were_refused(world, caplog):
    world.add(1)
    with caplog.at_level("INFO", "kformer.serving"):
        world.manager.reload([world.settings])
        with pytest.raises(ServingError):
            world.manager.reload([ModelSettings("other", world.folder, labels={"stable": 7})])
    told = "Labels name versions that are not loaded: stable of other. The models stay as they were."
    assert [(record.levelname, record.getMessage(), record.fields) for record in caplog.records] == [
        ("INFO", "reload", {"models": ["m"]}),
        ("INFO", "reload", {"models": ["other"]}),
        ("ERROR", "refused reload", {"error": told}),
    ]
