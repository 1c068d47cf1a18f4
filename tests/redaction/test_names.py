"""Names of credentials."""

import pytest

from haptic_trio.redaction.names import is_secret_name


@pytest.mark.parametrize("name", ["X-Api-Key", "x-key", "access_key", "apiToken", "DB_PASSWORD", "authorization"])
def test_the_name_of_a_credential(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "monkey", "host", "path"])
def test_another_name(name: str) -> None:
    assert not is_secret_name(name)
