from haptic_trio.config.decode import decode_config
from haptic_trio.config.templates import OutputTemplate, template_set
from haptic_trio.haproxy.model import FileKind

TEXT = """
dataplane: {mapsDir: a/maps, sslCertsDir: ./certs/, generalStorageDir: .}
haproxyConfig: {template: main}
maps: {host.map: {template: m}}
files: {503.http: {template: f}}
sslCertificates: {site.pem: {template: s}}
crtLists: {list.txt: {template: c}}
templateSnippets: {part: {template: p, priority: 7}}
"""


def test_each_template_becomes_a_file_below_the_directory_of_its_kind() -> None:
    templates = template_set(decode_config(TEXT, source="x"))

    assert templates.outputs == (
        OutputTemplate(name="maps/host.map", kind=FileKind.MAP, path="a/maps/host.map"),
        OutputTemplate(name="files/503.http", kind=FileKind.FILE, path="503.http"),
        OutputTemplate(name="ssl/site.pem", kind=FileKind.CERT, path="certs/site.pem", secret=True),
        OutputTemplate(name="crt-lists/list.txt", kind=FileKind.CRT_LIST, path="certs/list.txt"),
    )


def test_sources_and_snippets_are_kept_apart() -> None:
    templates = template_set(decode_config(TEXT, source="x"))

    assert templates.sources == {
        "haproxy.cfg": "main",
        "maps/host.map": "m",
        "files/503.http": "f",
        "ssl/site.pem": "s",
        "crt-lists/list.txt": "c",
    }
    assert {name: snippet.priority for name, snippet in templates.snippets.items()} == {"part": 7}


def test_every_template_leads_back_to_the_configuration() -> None:
    templates = template_set(decode_config(TEXT, source="x"))

    assert templates.config_paths["haproxy.cfg"] == "haproxyConfig.template"
    assert templates.config_paths["maps/host.map"] == 'maps["host.map"].template'
    assert templates.config_paths["part"] == "templateSnippets.part.template"
    assert templates.config_paths.keys() == templates.sources.keys() | templates.snippets.keys()


def test_configuration_without_main_template_has_no_main_source() -> None:
    assert template_set(decode_config("", source="x")).sources == {}
