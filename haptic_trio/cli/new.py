"""`new`: writes a working configuration with an example application and a test."""

import re
from importlib.resources import files as resources_of
from pathlib import Path
from shlex import quote

import click
import msgspec

from haptic_trio.cli.inputs.choices import output_option
from haptic_trio.cli.inputs.files import replace_file
from haptic_trio.errors import HapticError

CONFIG = """\
# The configuration of haptic-trio. Check it with `haptic-trio validate --manifests {directory}`, run its tests with
# `haptic-trio test --manifests {directory}`, and serve it with `haptic-trio serve --manifests {directory}`.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: {namespace}
data:
  config: |
    templating:
      # Templates that ship with haptic-trio; omit the list to write the complete haproxy.cfg yourself.
      libraries: [{libraries}]
      # Variables of templates. The page of each library lists the variables that it reads.
      extraContext:
        bindAddress: 127.0.0.1
        httpPort: {http_port}
        httpsPort: {https_port}{class_setting}
    templateSnippets:
      # The library `base` includes every snippet whose name begins with `frontend-rules-` in its frontends.
      frontend-rules-served-by:
        template: |
          http-response set-header X-Served-By haptic-trio
    validationTests:
      example-is-served:
        description: The example Ingress routes to the endpoints of its Service.
        fixtures:
          ingresses:
            - kind: Ingress
              metadata: {{name: example}}
              spec:
                ingressClassName: {ingress_class}
                rules:
                  - host: example.localhost
                    http:
                      paths:
                        - path: /
                          pathType: Prefix
                          backend: {{service: {{name: example, port: {{number: 80}}}}}}
          services:
            - kind: Service
              metadata: {{name: example}}
              spec: {{ports: [{{port: 80}}]}}
          endpointSlices:
            - kind: EndpointSlice
              metadata: {{name: example-1, labels: {{kubernetes.io/service-name: example}}}}
              addressType: IPv4
              ports: [{{name: "", port: 8000}}]
              endpoints: [{{addresses: [127.0.0.1]}}]
        assertions:
          - type: haproxy_valid
          - {{type: contains, target: haproxy.cfg, pattern: X-Served-By}}
          - {{type: map_entry, map: path-prefix.map, key: example.localhost|/, value: default_example_80}}
"""
EXAMPLE = """\
# An example application: start `python3 -m http.server 8000 --bind 127.0.0.1`, and send a request with
# `curl -H 'Host: example.localhost' http://127.0.0.1:{http_port}/`.
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {ingress_class}}}
spec: {{controller: haptic-trio/ingress-controller}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: example, namespace: default}}
spec:
  ingressClassName: {ingress_class}
  rules:
    - host: example.localhost
      http:
        paths:
          - path: /
            pathType: Prefix
            backend: {{service: {{name: example, port: {{number: 80}}}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: example, namespace: default}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: example-1
  namespace: default
  labels: {{kubernetes.io/service-name: example}}
addressType: IPv4
ports: [{{name: "", port: 8000}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""
USUAL_LIBRARIES = ("base", "ssl", "ingress")
USUAL_CLASS = "haptic"
_NAME = re.compile(r"[a-z](?:[a-z0-9.-]*[a-z0-9])?")


class NotEmptyError(HapticError):
    """The files exist already; use another directory."""


def check_libraries(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return *names* if all are shipped libraries."""
    root = resources_of("haptic_trio") / "libraries"
    known = sorted(one.name for one in root.iterdir() if (one / "library.yaml").is_file())
    for name in names:
        if name not in known:
            raise click.BadParameter(f"unknown library {name!r} (libraries: {', '.join(known)})")
    return names


def check_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Return *name* if it is a valid name of a Kubernetes object."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r}: expected lower-case letters, digits, - and ., starting with a letter")
    return name


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", default="haptic-trio", show_default=True, callback=check_name, help="Name of the ConfigMap.")
@click.option(
    "--namespace", default="default", show_default=True, callback=check_name, help="Namespace of the ConfigMap."
)
@click.option("--http-port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port for HTTP.")
@click.option("--https-port", type=click.IntRange(1, 65535), default=8443, show_default=True, help="Port for HTTPS.")
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    callback=check_libraries,
    help="Additional library beside base, ssl and ingress, such as `nginx-annotations`; may be repeated.",
)
@click.option(
    "--ingress-class",
    default=USUAL_CLASS,
    show_default=True,
    metavar="NAME",
    callback=check_name,
    help="IngressClass of the Ingresses to serve.",
)
@click.option("--no-example", is_flag=True, help="Write only the configuration.")
@output_option
def new(
    *,
    directory: Path,
    name: str,
    namespace: str,
    http_port: int,
    https_port: int,
    libraries: tuple[str, ...],
    ingress_class: str,
    no_example: bool,
    output_format: str,
) -> None:
    """Write a starting configuration to DIRECTORY: libraries, a custom snippet, a test and an example application.

    Existing files are not overwritten.

    \b
      haptic-trio new site
      haptic-trio test --manifests site
      haptic-trio serve --manifests site

    \b
      haptic-trio new export --no-example --library nginx-annotations --ingress-class nginx
    """
    values = {
        "directory": quote(str(directory)),
        "name": name,
        "namespace": namespace,
        "http_port": http_port,
        "https_port": https_port,
        "libraries": ", ".join(dict.fromkeys((*USUAL_LIBRARIES, *libraries))),
        "ingress_class": ingress_class,
        "class_setting": "" if ingress_class == USUAL_CLASS else f"\n        ingressClass: {ingress_class}",
    }
    files = {"config.yaml": CONFIG} | ({} if no_example else {"example.yaml": EXAMPLE})
    taken = [str(directory / file) for file in files if (directory / file).exists()]
    if taken:
        raise NotEmptyError(f"{', '.join(taken)}: already exists; use another directory")
    directory.mkdir(parents=True, exist_ok=True)
    for file, template in files.items():
        replace_file(directory / file, template.format(**values))
    written = [str(directory / file) for file in files]
    options = "" if (name, namespace) == ("haptic-trio", "default") else f" --namespace {namespace} --config-map {name}"
    advice = f"haptic-trio test --manifests {quote(str(directory))}{options}"
    if output_format == "json":
        click.echo(msgspec.json.format(msgspec.json.encode({"files": written, "next": advice}), indent=2))
        return
    for path in written:
        click.echo(path, err=True)
    click.echo(f"next: {advice}", err=True)
