import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from haptic_trio.config.credentials import Credentials, decode_credentials
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem

PASSWORD = "correct-horse"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(**data: Any) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"namespace": "demo", "name": "s"}, "data": data}


def problems_of(obj: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(ConfigInvalidError) as caught:
        decode_credentials(obj, source="Secret demo/s")
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value.problems


def test_credentials_are_read_from_base64() -> None:
    credentials = decode_credentials(
        secret(dataplane_username=encoded("admin"), dataplane_password=encoded(PASSWORD), other="!")
    )

    assert (credentials.dataplane_username, credentials.dataplane_password) == ("admin", PASSWORD)


def test_plain_text_goes_before_base64() -> None:
    obj = secret(dataplane_username=encoded("admin"), dataplane_password=encoded("old"))
    obj["stringData"] = {"dataplane_password": PASSWORD}

    assert decode_credentials(obj).dataplane_password == PASSWORD


@pytest.mark.parametrize("show", [repr, str, "{}".format, pretty_repr, lambda value: repr([value])])
def test_no_representation_shows_a_value(show: Any) -> None:
    text = show(Credentials(dataplane_username="admin-user", dataplane_password=PASSWORD))

    assert PASSWORD not in text
    assert "admin-user" not in text
    assert "redacted" in text


@pytest.mark.parametrize("obj", [{}, {"data": None}, {"data": "x"}, {"data": {}}])
def test_every_missing_key_is_named(obj: dict[str, Any]) -> None:
    assert [problem.path for problem in problems_of(obj)] == ["data.dataplane_username", "data.dataplane_password"]


@pytest.mark.parametrize(
    "value",
    [
        PASSWORD,
        f"{encoded(PASSWORD)}!",
        encoded(f"{PASSWORD}\n"),
        encoded(""),
        base64.b64encode(PASSWORD.encode() + b"\xff").decode(),
        12345,
        None,
        [PASSWORD],
    ],
)
def test_unusable_value_is_a_problem_without_the_value(value: object) -> None:
    (problem,) = problems_of(secret(dataplane_username=encoded("admin"), dataplane_password=value))

    assert problem.path == "data.dataplane_password"
    assert problem.source == "Secret demo/s"
    assert "12345" not in str(problem)


def test_user_name_with_a_colon_is_rejected() -> None:
    (problem,) = problems_of(secret(dataplane_username=encoded("a:b"), dataplane_password=encoded(PASSWORD)))

    assert "colon" in problem.message


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_any_printable_password_survives(password: str) -> None:
    obj = secret(dataplane_username=encoded("admin"), dataplane_password=encoded(password))

    credentials = decode_credentials(obj)

    assert credentials.dataplane_password == password
    assert msgspec.structs.replace(credentials) == credentials
