import pytest

from groundmetric.transport import remote as elsewhere


@pytest.fixture
def eager(monkeypatch):
    """Everything is worth sending away, in many messages."""
    monkeypatch.setattr(elsewhere, "BATCH", 1e-9)
    monkeypatch.setattr(elsewhere, "LEAST", 1e-9)
