"""A server in this process, over a model that has learned number words."""

import pytest
import toy
from servers import running


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
