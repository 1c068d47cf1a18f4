"""Number and form of the arguments of HAProxy's keywords, found by trying lines with fewer, more, and other words.

Only the line itself is measured: a rejection counts only if HAProxy names
the line.
"""

import itertools
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from haptic_trio.haproxy.grammar.conditions import CONDITIONAL
from haptic_trio.haproxy.grammar.keywords import key_of
from tests.haproxy.corpus_lines import PLACES, SURROUNDINGS, lines_of

PREAMBLE: Final = "global\n  expose-experimental-directives\n"
UNLIMITED: Final = -1
_NEVER_VALUES: Final = (
    "5x",
    "2048x",
    "65536x",
    "x5",
    "auto",
    "on",
    "none",
    "all",
    "int(7)",
    "1,2",
    "1-2",
    "0x5",
    "infinite",
)
_FORMS: Final = (
    ("t", ("7s", "7ms", "7"), ()),
    ("s", ("7000k", "7000000"), ("7s",)),
    ("n", ("7",), ("7s", "7k", "7m", "7ms", "7us")),
)
# What takes options in any number, or a list, although one more word of another kind is rejected.
_OPEN: Final = re.compile(
    r"(http|tcp)-check (comment|connect|expect|send|send-binary|send-lf|send-binary-lf)|filter .*|"
    r".* (capture|return|deny|tarpit|redirect|wait-for-body|silent-drop|set-bandwidth-limit|[a-z]+-headers-bin|do-log)|"
    r"table|log|default-server|default-bind|server|peer|ssl-default-.*-options|cpu-map|group|user|dgram-bind|bind|load|"
    r"declare capture|mode"
)
_VALUE: Final = re.compile(r"\d+[a-z]{0,2}")


class Measured(NamedTuple):
    """What one line shows about its keyword."""

    least: int
    most: int
    forms: str
    """For each argument a letter: t time, s size, n number, - anything."""


def measure_shapes(binary: Path, folder: Path) -> Iterator[str]:
    """Yield for each keyword of the corpus that *binary* knows: place, keyword, least, most, and forms."""
    numbers = itertools.count()

    def is_accepted(place: str, words: Iterable[str]) -> bool:
        path = folder / f"shape-{next(numbers)}.cfg"
        text = f"{PREAMBLE}{SURROUNDINGS.lstrip()}{PLACES[place].head}  {' '.join(words)}\n"
        if place == "global":
            text = f"{PREAMBLE}  {' '.join(words)}\n{SURROUNDINGS.lstrip()}"
        path.write_text(text)
        line = (PREAMBLE if place == "global" else text[:-1]).count("\n") + 1
        run = subprocess.run(
            [binary, "-c", "-f", path], capture_output=True, check=False, text=True, timeout=30, env={}, cwd=folder
        )
        path.unlink()
        said = run.stdout + run.stderr
        return not any("[ALERT]" in one and re.search(rf":{line}\] ?:", one) for one in said.splitlines())

    def measure(seed: tuple[str, str]) -> Measured | None:
        place, line = seed
        words = line.replace("\\ ", "\\_").split()
        start = len(key_of(tuple(words)))
        if words[0] in {"no", "default", "quiet"} or not is_accepted(place, words):
            return None
        least = next(count for count in range(len(words)) if is_accepted(place, words[: start + count]))
        additions = [["extra"], ["extra", "words"], ["1"]]
        if words[0] not in CONDITIONAL:
            additions.append(["if", "TRUE"])
        more = bool(_OPEN.fullmatch(" ".join(key_of(tuple(words)))))
        more = more or any(is_accepted(place, [*words, *added]) for added in additions)

        def is_accepted_with(at: int, value: str) -> bool:
            return is_accepted(place, [*words[:at], value, *words[at + 1 :]])

        forms = "".join(
            _form(partial(is_accepted_with, at)) if _VALUE.fullmatch(words[at]) else "-"
            for at in range(start, len(words))
        )
        return Measured(least, UNLIMITED if more else len(words) - start, forms)

    seeds = [(place, line) for place in PLACES for line in lines_of(place)]
    found: dict[tuple[str, tuple[str, ...]], list[Measured]] = {}
    with ThreadPoolExecutor(2) as pool:
        for (place, line), measured in zip(seeds, pool.map(measure, seeds), strict=True):
            if measured is not None:
                found.setdefault((PLACES[place].kind, key_of(tuple(line.split()))), []).append(measured)
    for (kind, key), shapes in found.items():
        least = min(shape.least for shape in shapes)
        exact = len({(shape.least, shape.most) for shape in shapes}) == 1 and shapes[0].most - least in {
            0,
            shapes[0].most,
        }
        exact = exact and (least == shapes[0].most or shapes[0].most == 1)
        forms = "".join(column[0] if len(set(column)) == 1 else "-" for column in zip(*(s.forms for s in shapes)))  # noqa: B905
        # What takes a varying number of words may take them in many orders.
        forms = forms if exact else forms[:least].split("-")[0]
        # Also where anything goes: of several versions the widest shape counts.
        yield f"{kind} {' '.join(key)} {least} {shapes[0].most if exact else UNLIMITED} {forms.rstrip('-') or '-'}"


def _form(is_accepted: Callable[[str], bool]) -> str:
    if any(map(is_accepted, _NEVER_VALUES)):
        return "-"
    for form, right, wrong in _FORMS:
        if all(map(is_accepted, right)) and not any(map(is_accepted, wrong)):
            return form
    return "-"
