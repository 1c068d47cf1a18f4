"""Values that look like flags of HAProxy (`-u`, `-f`, `--`) are compared as they are, in every library."""

import re
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.config.libraries import library_names
from haptic_trio.haproxy.config.parser import parse_config
from tests.libraries.conftest import Cluster
from tests.libraries.ingress.test_annotations import ALL, BESIDE, VENDORS, annotated, rendered
from tests.support.components.rendering import Rendered
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.traffic.servers import ask, serving

FLAGS = ("-u", "-i", "-n", "-M", "-f", "-m", "--")
LIBRARY_FILES = Path(__file__).parents[3] / "haptic_trio" / "libraries"
NGINX = "nginx.ingress.kubernetes.io"
# What templates write in a condition, with the last filter of the value in it.
_PATTERN = re.compile(r"-m (?:str|beg|end|sub|dir|dom|reg)(?: -i)? (\{\{.*?\}\}|\S+)")
_EMITS_PATTERN = re.compile(r"(?:\| (?:pattern|origin_pattern|common_name)|\.pattern) \}\}$")


def written_patterns() -> list[tuple[str, str, str]]:
    return [
        (str(file.relative_to(LIBRARY_FILES)), match[0], match[1])
        for file in sorted(LIBRARY_FILES.glob("*/*.j2"))
        for match in _PATTERN.finditer(file.read_text("utf-8"))
    ]


def becoming(flag: str) -> dict[str, tuple[Any, str]]:
    """Return by library and annotation an object with *flag* in a pattern, and what stands behind `--`."""
    escaped = flag.replace("-", "\\-")
    origin, origins = f"https://a{flag}b.example.com", f"^https://a{escaped.lower()}b\\.example\\.com$"
    cors = {"cors-enable": "true", "cors-allow-origin": origin}
    named = {"auth-tls-secret": "authority", "auth-tls-match-cn": f"CN={flag}"}
    rewrite = {"rewrite-target": "/b"}
    return {
        "nginx auth-tls-match-cn": (annotated("evil", "nginx", named), flag),
        "nginx from-to-www-redirect": (
            annotated("evil", "nginx", {"from-to-www-redirect": "true"}),
            "www.evil.example.com",
        ),
        "nginx path": (annotated("evil", "nginx", rewrite, at=f"/{flag}(/|$)(.*)"), f"^/{escaped}(/|$)(.*)$"),
        "nginx cors-allow-origin": (
            annotated("evil", "nginx", {"enable-cors": "true", "cors-allow-origin": origin}),
            origins,
        ),
        "haproxy.org cors-allow-origin": (annotated("evil", "haproxyOrg", cors), origins),
        "haproxy-ingress cors-allow-origin": (annotated("evil", "haproxyIngress", cors), origins),
        "haproxy-ingress path": (annotated("evil", "haproxyIngress", rewrite, at=f"/{flag}"), f"^/{escaped}(/|$)(.*)$"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("name", becoming("-u"))
def test_what_becomes_a_pattern_is_the_literal_behind_two_dashes(cluster: Cluster, name: str, flag: str) -> None:
    evil, literal = becoming(flag)[name]
    result = rendered(evil)

    assert result.rejected == {}
    assert f" -- '{literal}' }}" in result.text


@pytest.mark.slow
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("flag", FLAGS)
def test_no_annotation_makes_a_flag(vendor: str, flag: str) -> None:
    evil = [
        annotated(f"evil-{number}", vendor, {**BESIDE[vendor], name: flag}, at="/api(/|$)(.*)")
        for number, (of, name) in enumerate(ALL)
        if of == vendor
    ]
    result = rendered(*evil)

    # Phase 1 rejects a quoted word where HAProxy reads flags.
    parse_config(result.text)
    for line in without_patterns(result):
        assert not re.search(rf"\{{ [^}}]*'{re.escape(flag)}'", line), line


def without_patterns(result: Rendered) -> list[str]:
    return [re.sub(r" -- (?:'(?:[^']|'\\'')*' )+\}", " }", line) for line in result.text.splitlines()]


def test_every_pattern_that_is_data_is_written_by_an_emitter_for_patterns() -> None:
    found = written_patterns()
    forgotten = [(file, text) for file, text, value in found if value[:2] == "{{" and not _EMITS_PATTERN.search(value)]

    assert forgotten == []
    assert {file.split("/")[0] for file, _, value in found if value[:2] == "{{"} == {
        "haproxy-ingress-annotations", "haptic-annotations", "ingress", "nginx-annotations",
    }  # fmt: skip
    assert {file.split("/")[0] for file, *_ in found} <= set(library_names())


@pytest.mark.haproxy
def test_haproxy_compares_a_flag_as_text(cluster: Cluster) -> None:
    with serving("web", "next") as running:
        objects = []
        for number, flag in enumerate(FLAGS):
            host = f"h{number}.example.com"
            annotations = {
                f"{NGINX}/canary": "true",
                f"{NGINX}/canary-by-header": "X-Group",
                f"{NGINX}/canary-by-header-value": flag,
            }
            objects += [
                ingress(f"main-{number}", rule(host, path("/", "web"))),
                ingress(f"canary-{number}", rule(host, path("/", "next")), annotations=annotations),
            ]
        for name, port in running.items():
            objects += [service(name), endpoint_slice(name, endpoint("127.0.0.1"), ports=port)]
        libraries = ("base", "ssl", "ingress", "nginx-annotations")
        assert cluster.serve(*objects, libraries=libraries).rejected == {}

        for number, flag in enumerate(FLAGS):
            answers = {
                value: ask(cluster.http_port, f"h{number}.example.com", headers={"X-Group": value} if value else {})
                for value in (*FLAGS, "", "always", flag.upper() + "x")
            }
            assert {value for value, answer in answers.items() if answer.body.startswith("next\n")} == {flag}
