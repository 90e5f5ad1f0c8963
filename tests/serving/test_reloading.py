"""Models that are changed while a server runs: by clients that may, or by the file."""

import os
import pathlib
import time

import pytest
from servers import wait

from kformer.runtime.status_codes import Code
from kformer.serving.config_files import ModelConfigFile
from kformer.serving.errors import ServingError
from kformer.serving.model_settings import ModelSettings
from kformer.serving.reloading import ConfigWatch, reload_within
from kformer.serving.settings import ReloadSettings

pytestmark = pytest.mark.tensorflow_only


class Manager:
    """Remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def reload(self, models):
        self.asked.append([(model.name, str(model.base_path)) for model in models])


@pytest.fixture
def manager():
    return Manager()


def test_nobody_may_change_the_models_unless_it_is_allowed(manager, tmp_path):
    with pytest.raises(ServingError, match="Start it with --allow-reload") as refused:
        reload_within(manager, [ModelSettings("m", tmp_path)], None)
    assert refused.value.code == Code.PERMISSION_DENIED
    assert manager.asked == []


def test_only_models_in_the_allowed_folders_are_taken(manager, tmp_path):
    allowed = tmp_path / "allowed"
    (allowed / "m").mkdir(parents=True)
    (allowed / "link").symlink_to(tmp_path)
    settings = ReloadSettings([allowed], "token")
    for path in (tmp_path, tmp_path / "allowed-not", allowed / ".." / "m", allowed / "link" / "other"):
        with pytest.raises(ServingError, match="The base_path of m must lie in .*allowed. Received") as refused:
            reload_within(manager, [ModelSettings("m", path)], settings)
        assert refused.value.code == Code.PERMISSION_DENIED
    assert manager.asked == []
    reload_within(manager, [ModelSettings("m", allowed / "m")], settings)
    reload_within(manager, [ModelSettings("m", allowed)], settings)
    assert manager.asked == [[("m", str(allowed / "m"))], [("m", str(allowed))]]


def test_bases_may_be_several_and_relative(manager, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name / "m").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    settings = ReloadSettings([pathlib.Path("one"), pathlib.Path("two")], "token")
    for name in ("one", "two"):
        reload_within(manager, [ModelSettings("m", tmp_path / name / "m")], settings)
    assert manager.asked == [[("m", str(tmp_path / name / "m"))] for name in ("one", "two")]


def test_a_link_that_is_exchanged_after_the_check_does_not_lead_elsewhere(manager, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "inner").symlink_to(tmp_path / "m")
    reload_within(manager, [ModelSettings("m", tmp_path / "inner")], ReloadSettings([tmp_path], "token"))
    assert manager.asked == [[("m", str(tmp_path / "m"))]]


def test_the_file_is_looked_at_from_time_to_time(manager, tmp_path):
    file = tmp_path / "models.config"
    watch = ConfigWatch(manager, ModelConfigFile(file), 0.01)
    watch.start()
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')
    wait(lambda: manager.asked == [[("b", "/b")]])
    watch.close()
    time.sleep(0.05)
    file.write_text('model_config_list { config { name: "c" base_path: "/c" } }')
    time.sleep(0.1)
    assert len(manager.asked) == 1


def started(manager, file):
    """A watch of a file whose models have been read."""
    read = ModelConfigFile(file)
    read.models()
    return ConfigWatch(manager, read, 1.0)


def test_a_change_while_the_server_starts_is_followed(manager, tmp_path):
    file = tmp_path / "models.config"
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    read = ModelConfigFile(file)
    assert [model.name for model in read.models()] == ["a"]
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')  # before the ports are open
    watch = ConfigWatch(manager, read, 1.0)
    watch.look()
    assert manager.asked == [[("b", "/b")]]


def test_the_file_is_followed_when_it_changes(manager, tmp_path, caplog):
    file = tmp_path / "models.config"
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    watch = started(manager, file)
    watch.look()
    assert manager.asked == []  # the server has it already
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')
    watch.look()
    watch.look()
    assert manager.asked == [[("b", "/b")]]
    file.write_text("model_config_list {")
    watch.look()
    watch.look()
    assert len(manager.asked) == 1
    (record,) = caplog.records
    assert "cannot be read as a ModelServerConfig" in record.fields["error"]
    file.unlink()  # while it is replaced
    watch.look()
    file.write_text('model_config_list { config { name: "c" base_path: "/c" } }')
    watch.look()
    assert manager.asked[1:] == [[("c", "/c")]]


def test_a_file_that_is_touched_is_read_again_and_so_is_one_that_keeps_its_time(manager, tmp_path):
    file = tmp_path / "models.config"
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    os.utime(file, (1000, 1000))
    watch = started(manager, file)
    os.utime(file, (2000, 2000))
    watch.look()
    assert manager.asked == [[("a", "/a")]]
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')
    os.utime(file, (2000, 2000))
    watch.look()
    assert manager.asked[1:] == [[("b", "/b")]]


def test_a_pipe_in_the_place_of_the_file_stops_nothing(manager, tmp_path, caplog):
    file = tmp_path / "models.config"
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    watch = started(manager, file)
    file.unlink()
    os.mkfifo(file)  # whose reader would wait for ever
    watch.look()
    watch.look()
    (record,) = caplog.records
    assert record.fields["error"] == f"{file} is no regular file any more. Write a file of this name."
    file.unlink()
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')
    watch.look()
    assert manager.asked == [[("b", "/b")]]


def test_no_error_ends_the_watching_of_the_file(manager, tmp_path, caplog):
    file = tmp_path / "models.config"
    watch = ConfigWatch(manager, ModelConfigFile(file), 1.0)
    reload, manager.reload = manager.reload, _fail
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    watch.look()
    (record,) = caplog.records
    assert record.fields["error"] == "Symlink loop from '/a'"
    manager.reload = reload
    file.write_text('model_config_list { config { name: "b" base_path: "/b" } }')
    watch.look()
    assert manager.asked == [[("b", "/b")]]


def test_a_folder_that_does_not_answer_is_waited_for(manager, tmp_path, caplog):
    file = tmp_path / "models.config"
    watch = ConfigWatch(manager, ModelConfigFile(file), 1.0)
    reload, manager.reload = manager.reload, _hang
    file.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    watch.look()
    watch.look()
    (record,) = caplog.records  # it is told once
    assert record.fields["error"] == "/a does not answer."
    manager.reload = reload
    watch.look()
    watch.look()
    assert manager.asked == [[("a", "/a")]]


def _hang(models):
    raise ServingError(Code.FAILED_PRECONDITION, "/a does not answer.") from TimeoutError()


def _fail(models):
    raise RuntimeError("Symlink loop from '/a'")


def test_every_error_of_a_change_over_grpc_has_its_code(manager, tmp_path, caplog):
    import asyncio

    from tensorflow_serving.apis import model_management_pb2

    from kformer.serving.grpc_service import ModelService

    def told(**config):
        request = model_management_pb2.ReloadConfigRequest()
        request.config.model_config_list.config.add(**config)
        answer = asyncio.run(
            ModelService(manager, ReloadSettings([tmp_path], "token")).HandleReloadConfigRequest(request, None)
        )
        return answer.status.error_code, answer.status.error_message

    assert told(name="m", base_path=str(tmp_path / "m")) == (0, "")
    assert told(name="m", base_path="/elsewhere")[0] == Code.PERMISSION_DENIED.number
    assert told(name="m")[0] == Code.INVALID_ARGUMENT.number
    assert not caplog.records
    manager.reload = _fail
    expected = (Code.INTERNAL.number, "The server failed. Its log says why.")
    assert told(name="m", base_path=str(tmp_path / "m")) == expected
    assert "Symlink loop" in caplog.text


def test_the_token_of_translating_does_not_change_models():
    import asyncio
    import types

    from kformer.serving.access import TokenForGrpc

    async def taken(method, token):
        """Whether a call with this token reaches the service."""
        reached = []

        async def continuation(details):
            reached.append(details)

        metadata = (("authorization", f"Bearer {token}"),)
        details = types.SimpleNamespace(method=method, invocation_metadata=metadata)
        await interceptor.intercept_service(continuation, details)
        return bool(reached)

    reload, predict = "/tensorflow.serving.ModelService/HandleReloadConfigRequest", "/x/Predict"
    interceptor = TokenForGrpc("translate")  # nobody may change them
    assert not asyncio.run(taken(reload, "another"))
    interceptor = TokenForGrpc(None, "reload")  # everybody may ask for translations
    assert asyncio.run(taken(predict, "another"))
    assert not asyncio.run(taken(reload, "another"))
    interceptor = TokenForGrpc("translate", "reload")
    assert not asyncio.run(taken(reload, "translate"))
    assert asyncio.run(taken(reload, "reload"))
    assert not asyncio.run(taken(predict, "reload"))
    assert asyncio.run(taken(predict, "translate"))
