"""The fast reader returns what the complete parser returns, or gives up."""

import random

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from haptic_trio.yaml.plain import read_plain
from haptic_trio.yaml.reader import DocumentError, read_document_by_events

INGRESS = """
# An Ingress as `kubectl get -o yaml` writes it.
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  annotations:
    nginx.ingress.kubernetes.io/rewrite-target: /$2
    nginx.ingress.kubernetes.io/limit-rps: "10"
  name: shop
  creationTimestamp: 2026-01-02T03:04:05Z
  labels: {}
spec:
  ingressClassName: haptic
  rules:
  - host: shop.example.com
    http:
      paths:
      - path: /items(/|$)(.*)
        pathType: ImplementationSpecific
        backend:
          service:
            name: shop
            port:
              number: 80
  tls:
    - hosts:
        - shop.example.com
        - 'www.shop.example.com'
      secretName: shop-tls
status:
"""

LIST = """\
apiVersion: v1
items:

- apiVersion: v1
  kind: Service
  metadata: {}
- kind: Service
  count: 012
kind: List
"""

PIECES = [
    *("a", "b", "key", "y", "null", "'q'", '"d"', "80", "-5", "1_0", "0x1f", "1.5e3", "~", "x y", "a:b", "2026-01-02"),
    *(
        ":",
        ": ",
        "- ",
        "-",
        "  ",
        " ",
        "\n",
        "\n  ",
        "\n    ",
        "\n- ",
        "\n  - ",
        " #",
        "# c",
        "{}",
        "[]",
        "|",
        "&a",
        "*a",
    ),
    *("---", "...", "<<", "!t", "?", "%", "\t", "é", "\\", ",", "[", "}"),
]


def assert_same_or_none(text: str) -> bool:
    """Compare the two readers; return whether the fast one has read *text*."""
    plain = read_plain(text)
    if plain is None:
        return False
    document = read_document_by_events(text)
    # Equal numbers of different types differ as well.
    assert repr(plain) == f"Plain(data={document.data!r}, line={document.line}, item_lines={document.item_lines!r})"
    return True


@pytest.mark.parametrize("text", [INGRESS, LIST, "a:\n", "a: 1", "- a\n- b: 2\n  c:\n  - d\n", "a:\n  - b:\n    - c\n"])
def test_common_manifests_are_read(text: str) -> None:
    assert assert_same_or_none(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a: 1\na: 2\n",
            "a: b: c\n",
            "a: b\n c: d\n",
            "a: b\n  c\n",
            "a: |\n  b\n",
            "a: &b c\n",
            "a: *b\n",
            "a: b # c\n",
        ),
        *(
            "a: é\n",
            "a:\tb\n",
            "yes: no\n",
            "a: 'b\n",
            "a: [b]\n",
            "a\n",
            "- - a\n",
            "-\n",
            "a:\n  b: 1\n c: 2\n",
            "\ta: b",
        ),
        *(
            "a: \x01\n",
            "? a\n: b\n",
            "<<: {}\n",
            "a: !!str 1\n",
            "a: >\n b\n",
            '"a": b\n',
            "a: \ud800\n",
            "a: b:\n",
            "",
        ),
        "".join(f"{' ' * depth}a:\n" for depth in range(200)),
    ],
)
def test_everything_else_is_left_to_the_complete_parser(text: str) -> None:
    assert read_plain(text) is None


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example("a:\n- b\n  - c")
@example("- a:\n  - b\n  c: d\n- e")
@example("a: b\n\n\n  # c\nd:\n# e\n  f: g\n")
def test_no_text_is_read_differently(text: str) -> None:
    try:
        assert_same_or_none(text)
    except DocumentError as error:
        raise AssertionError(f"read although it is wrong: {text!r}") from error


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet="abyno.-_/: '\"#{}[],&*!|>%@~01é\\", max_size=8),
)
KEYS = st.text(alphabet="abyn./-_", max_size=4)
OBJECTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


@given(OBJECTS, st.booleans(), st.randoms(use_true_random=False))
def test_dumped_objects_are_read_alike_also_with_a_line_too_few(
    data: object, is_flow: bool, chance: random.Random
) -> None:
    text = yaml.safe_dump(data, default_flow_style=is_flow or None)
    assert_same_or_none(text)
    lines = text.splitlines(keepends=True)
    lines.pop(chance.randrange(len(lines)))
    try:
        assert_same_or_none("".join(lines))
    except DocumentError as error:
        raise AssertionError(f"read although it is wrong: {''.join(lines)!r}") from error
