"""Costs of a fragment: weights of what HAProxy loads for it, in proportion to measured times."""

import pytest

from haptic_trio.templating.values.costs import Costs, weight_of_tls_server
from haptic_trio.templating.values.paths import FileKind

BLOCK = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def test_each_reference_to_a_certificate_counts() -> None:
    costs = Costs()
    for lines in (1, 1, 3):
        costs.add_file(FileKind.CERT, 3 * BLOCK, lines)

    assert costs.certificates == 5


@pytest.mark.parametrize("kind", [FileKind.CERT, FileKind.GENERAL])
def test_the_blocks_of_long_files_count_as_further_lines(kind: FileKind) -> None:
    costs = Costs()
    costs.add_file(kind, 81 * BLOCK, 0)

    assert costs.certificates == 10


@pytest.mark.parametrize(("authorities", "lines", "servers"), [(1, 1, 10), (100, 3, 26), (1000, 141, 1676)])
def test_a_list_of_authorities_counts_for_each_line_and_each_server(authorities: int, lines: int, servers: int) -> None:
    costs = Costs()
    costs.add_file(FileKind.GENERAL, BLOCK, 0)
    costs.add_file(FileKind.GENERAL, authorities * BLOCK, 0)
    costs.add_file(FileKind.CERT, BLOCK, 2)

    assert costs.certificates - authorities // 8 == 2 * lines
    assert weight_of_tls_server(costs.authorities) == servers
