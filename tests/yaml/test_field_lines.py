"""Lines of fields."""

from haptic_trio.yaml.field_lines import line_of
from haptic_trio.yaml.reader import read_nodes


def test_line_of_a_missing_field_is_that_of_its_parent() -> None:
    node = read_nodes('data:\n  "tls.crt": x\nspec:\n  a:\n    - b: 1\n')
    assert node is not None

    assert [line_of(node, path) for path in ('data["tls.crt"]', "spec.a[0].c", "spec.a[7]", "nothing", "")] == [
        2,
        5,
        4,
        1,
        1,
    ]
