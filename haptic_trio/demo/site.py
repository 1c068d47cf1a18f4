"""Directory of the demo: manifests, certificate and state."""

from base64 import b64encode
from importlib.resources import files
from pathlib import Path
from string import Template

import msgspec
import yaml

from haptic_trio.cli.inputs.files import PRIVATE, replace_file
from haptic_trio.demo.certificate import make_certificate

HOST = "demo.localhost"


class DemoPorts(msgspec.Struct, frozen=True, kw_only=True):
    """Ports of the loopback interface; 0 selects a free port."""

    http: int = 0
    https: int = 0
    web_one: int = 0
    web_two: int = 0
    api: int = 0


USUAL_PORTS = DemoPorts(http=8080, https=8443, web_one=18081, web_two=18082, api=18083)


class DemoSite(msgspec.Struct, frozen=True, kw_only=True):
    """Paths and ports of the demo."""

    directory: Path
    ports: DemoPorts

    @property
    def manifests(self) -> Path:
        """Directory of manifests."""
        return self.directory / "manifests"

    @property
    def state(self) -> Path:
        """State directory of the controller."""
        return self.directory / "state"

    @property
    def authority(self) -> Path:
        """The certificate that clients of the demo trust."""
        return self.directory / "ca.crt"


def write_site(directory: Path, ports: DemoPorts) -> DemoSite:
    """Write the files of the demo below *directory*; overwrites them, keeps other files."""
    site = DemoSite(directory=directory.absolute(), ports=ports)
    site.manifests.mkdir(parents=True, exist_ok=True)
    values = {
        "httpPort": ports.http,
        "httpsPort": ports.https,
        "webOnePort": ports.web_one,
        "webTwoPort": ports.web_two,
        "apiPort": ports.api,
    }
    for source in files("haptic_trio.demo").joinpath("manifests").iterdir():
        if source.name.endswith(".yaml"):
            replace_file(site.manifests / source.name, Template(source.read_text("utf-8")).substitute(values))
    certificate = make_certificate(HOST)
    replace_file(site.authority, certificate.authority)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "demo-tls", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {
            "tls.crt": b64encode(certificate.chain.encode()).decode(),
            "tls.key": b64encode(certificate.key.encode()).decode(),
        },
    }
    replace_file(site.manifests / "demo-tls.yaml", yaml.safe_dump(secret, sort_keys=False), mode=PRIVATE)
    return site
