"""The form of answers as JSON: machines read it, so what is there stays."""

from typing import get_args

import msgspec

from haptic_trio.explain import answers
from haptic_trio.explain.answers import Answer

FIELDS = {
    "Named": "kind namespace name resource_version",
    "Source": "template line",
    "FragmentProblem": "object fragment message place hint excerpt has_fallback",
    "MadeBy": "output fragment template line object",
    "Lookup": "question found count",
    "Line": "path line text is_secret",
    "LineAnswer": "line section made_by sources depends_on problems",
    "Part": "first last made_by",
    "Entry": "line scope path match backend made_by",
    "SectionAnswer": "section first last parts routes routes_count depends_on problems",
    "FileAnswer": "path kind size digest is_secret lines output parts parts_count depends_on problems",
    "Step": "path key match found",
    "Certificate": "line path digest names made_by expires",
    "ServedCertificate": "path expires names objects",
    "GatewayRoute": "path line object conditions verdict outcomes",
    "GatewayVisit": "frontend front listener routes",
    "RouteAnswer": "host path status backend backend_made_by winner others others_count steps depends_on certificates"
    " notes problems reasons warnings gateways",
    "HostAnswer": "host entries entries_count certificates notes problems reasons warnings",
    "CertificateAnswer": "name certificates depends_on notes problems",
    "Product": "made_by lines lines_count sections files depends_on",
    "Use": "output fragment template line questions objects count",
    "ObjectAnswer": "object exists watched_as products idle used_by problems warnings notes",
    "Hit": "line made_by before after",
    "SearchAnswer": "text hits count offset",
}


def test_fields_of_json_answers_stay() -> None:
    known = {
        name: {field.encode_name for field in msgspec.structs.fields(value)}
        for name, value in vars(answers).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }

    # Fields may be added, here as well; none may be removed.
    assert {name: set(fields.split()) for name, fields in FIELDS.items()} == known


def test_each_answer_has_its_type() -> None:
    tags = {kind.__struct_config__.tag for kind in get_args(Answer)}

    assert tags == {"line", "section", "file", "route", "host", "certificate", "object", "search"}
    assert {kind.__struct_config__.tag_field for kind in get_args(Answer)} == {"answer"}
