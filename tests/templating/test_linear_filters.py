"""No filter takes time that grows with the square of a text: nothing can interrupt one that does."""

import time
from contextlib import suppress

import pytest
from jinja2 import Environment

from haptic_trio.errors import HapticError
from haptic_trio.templating.filters.registry import FILTERS
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.incremental.run import RenderRun

ARGUMENTS = {
    "auth_target": ("default",),
    "choice": (["a"],),
    "password": ("user",),
    "pem": ("x",),
    "replace": ("a", "b"),
    "rewrite_target": (2,),
    "split": (",",),
    "strip_prefix": ("a",),
    "strip_suffix": ("a",),
    "under": ("a",),
}
# Those that choose among items and have nothing to do with what is in a text.
OTHERS = {"batch", "slice", "groupby", "group_by", "sort_by", "map", "select", "reject", "selectattr", "rejectattr"}
OTHERS |= {"attr", "d", "default", "dig", "format", "glob_match", "truncate"}
UNITS = {
    "blanks": " ",
    "lines": "\n",
    "certificates": "-----BEGIN CERTIFICATE-----\n",
    "groups": "(a*)*",
    "items": "a,",
}
SIZE = 50_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILTERS.keys() - OTHERS))
def test_filter_takes_time_that_grows_with_the_text(name: str) -> None:
    function = FILTERS[name]
    before = (Environment(autoescape=False),) if getattr(function, "jinja_pass_arg", None) else ()
    token = CURRENT.set(RenderRun())
    try:
        for unit in UNITS.values():
            for start in ("", "a", "/", "https://"):
                text = f"{start}{unit * (SIZE // len(unit))}x"
                began = time.process_time()
                # Most texts mean nothing to most filters.
                with suppress(HapticError, TypeError, ValueError, AttributeError):
                    function(*before, text, *ARGUMENTS.get(name, ()))
                assert time.process_time() - began < 3
    finally:
        CURRENT.reset(token)
