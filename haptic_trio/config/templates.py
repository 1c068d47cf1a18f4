"""Templates of a configuration: their names, and the file that each produces."""

import posixpath
from collections.abc import Iterator, Mapping

import msgspec

from haptic_trio.config.model import Config, Snippet, Template
from haptic_trio.haproxy.model import FileKind
from haptic_trio.yaml.paths import key_path

MAIN_TEMPLATE = "haproxy.cfg"
"""Name of the template that becomes the HAProxy configuration, whatever file it is deployed to."""


class OutputTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template that becomes an auxiliary file."""

    name: str
    """As the engine knows it, such as `maps/host.map`."""
    kind: FileKind
    path: str
    """As haproxy.cfg names the file: `dataplane`'s directory for the kind and the file name."""
    secret: bool = False


class TemplateSet(msgspec.Struct, frozen=True, kw_only=True):
    """Templates of a configuration, as the template engine takes them."""

    sources: Mapping[str, str]
    """Templates that become files, the main one included, by name."""
    snippets: Mapping[str, Snippet]
    outputs: tuple[OutputTemplate, ...]
    """One for each of `sources` but the main one."""
    config_paths: Mapping[str, str]
    """By name of a template or snippet: where the configuration holds its text."""

    @property
    def texts(self) -> dict[str, str]:
        """All sources by name, snippets included."""
        return {**{name: snippet.template for name, snippet in self.snippets.items()}, **self.sources}

    @property
    def priorities(self) -> dict[str, int]:
        """Priorities of the snippets by name."""
        return {name: snippet.priority for name, snippet in self.snippets.items()}


def template_set(config: Config) -> TemplateSet:
    """Return the templates of *config*, names stable across renders and independent of directories."""
    sources: dict[str, str] = {}
    paths: dict[str, str] = {}
    outputs = []
    if config.haproxy_config is not None:
        sources[MAIN_TEMPLATE] = config.haproxy_config.template
        paths[MAIN_TEMPLATE] = "haproxyConfig.template"
    for output, template, path in _outputs(config):
        outputs.append(output)
        sources[output.name] = template.template
        paths[output.name] = f"{path}.template"
    for name in config.template_snippets:
        paths[name] = f"{key_path('templateSnippets', name)}.template"
    return TemplateSet(sources=sources, snippets=config.template_snippets, outputs=tuple(outputs), config_paths=paths)


def _outputs(config: Config) -> Iterator[tuple[OutputTemplate, Template, str]]:
    dataplane = config.dataplane
    groups = (
        ("maps", "maps", config.maps, FileKind.MAP, dataplane.maps_dir),
        ("files", "files", config.files, FileKind.FILE, dataplane.general_storage_dir),
        ("sslCertificates", "ssl", config.ssl_certificates, FileKind.CERT, dataplane.ssl_certs_dir),
        ("crtLists", "crt-lists", config.crt_lists, FileKind.CRT_LIST, dataplane.ssl_certs_dir),
    )
    for field, prefix, templates, kind, directory in groups:
        for name, template in templates.items():
            output = OutputTemplate(
                name=f"{prefix}/{name}",
                kind=kind,
                path=posixpath.normpath(posixpath.join(directory, name)),
                secret=kind is FileKind.CERT,
            )
            yield output, template, key_path(field, name)
