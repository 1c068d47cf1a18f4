"""Lists of addresses: what becomes entries of a map, and which lists are rejected."""

from ipaddress import ip_network

import pytest

from haptic_trio.templating.filters.address_lists import address_list
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.text import Emitted


def test_each_network_becomes_one_entry() -> None:
    text = "# list\r\n192.0.2.7\r\n192.0.2.7/32 # again\n 192.0.2.9/24;x\n\n2001:DB8::1\n::ffff:192.0.2.1\n"

    found = address_list(text)

    entries = [line.split() for line in found.splitlines()]
    assert entries == [
        # Versions of Python write the last one differently.
        [network, "yes"]
        for network in ("192.0.2.7/32", "192.0.2.0/24", "2001:db8::1/128", str(ip_network("::ffff:192.0.2.1")))
    ]
    assert type(found) is Emitted
    assert address_list("; nothing\n") == ""


@pytest.mark.parametrize(
    "line",
    [
        *("<html>", "192.0.2", "192.0.2.256", "192.0.02.1", "192.0.2.1 yes", "192.0.2.1,192.0.2.2", "fe80::1%eth0"),
        *("192.0.2.1/33", "10.0.0.1-10.0.0.9", "127.1", "0.0.0.0/0", "::/0", "x" * 10_000),
    ],
)
def test_any_other_line_rejects_the_list_with_its_number(line: str) -> None:
    with pytest.raises(EmitError, match="line 2 is ") as caught:
        address_list(f"192.0.2.1\n{line}\n")
    assert len(str(caught.value)) < 400


def test_a_list_that_is_too_long_is_rejected() -> None:
    assert address_list("192.0.2.1\n192.0.2.1/32\n", 1) == "192.0.2.1/32 yes\n"
    with pytest.raises(EmitError, match="line 2: the list has more than 1 networks"):
        address_list("192.0.2.1\n192.0.2.2\n", 1)


def test_anything_but_text_is_rejected() -> None:
    with pytest.raises(TemplateFaultError):
        address_list(None)
