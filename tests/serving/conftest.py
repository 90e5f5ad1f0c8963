"""A server in this process, over a model that has learned number words."""

import shutil

import pytest
import toy
from servers import running


@pytest.fixture(scope="session")
def cold_export_folder(numbers_export, tmp_path_factory):
    """The same without a warm-up, which takes longer than most tests."""
    folder = tmp_path_factory.mktemp("cold") / "numbers"
    shutil.copytree(numbers_export, folder, ignore=shutil.ignore_patterns("assets.extra"))
    return folder


@pytest.fixture(scope="session")
def plain_export_folder(made_once, numbers_translator):
    """That model with `serving_default` alone, which a server loads in a fraction of the time."""
    from kformer.export.saved_model import export_saved_model

    def make(folder):
        version = export_saved_model(numbers_translator, folder / "numbers")
        shutil.rmtree(version / "assets.extra")

    return made_once("plain", make) / "numbers"


@pytest.fixture(scope="session")
def served(cold_export_folder):
    """A server with the defaults, but ports that are free."""
    from kformer.serving.config_files import read_batching
    from kformer.serving.model_settings import ModelSettings
    from kformer.serving.settings import ServerSettings

    settings = ServerSettings(
        [ModelSettings("numbers", cold_export_folder)],
        rest_port=0,
        grpc_port=0,
        batching=read_batching(cold_export_folder / "batching.config"),
    )
    with running(settings) as server:
        yield server


@pytest.fixture(scope="session")
def pairs():
    """Sources and what the model makes of them."""
    return [(source, toy.translation(source)) for source, _ in toy.corpus().test[:40]]


@pytest.fixture
def clock(monkeypatch):
    """The time of versions and of the log, which a test moves on."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now
