"""The certificates and keys of a control plane, made for every cluster."""

import ssl
from collections.abc import Iterable
from pathlib import Path

import msgspec
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADMINISTRATORS = "system:masters"
"""The group that may do everything, whatever RBAC says."""

WEBHOOK_CLIENT = "api-server.test"


class Certificates(msgspec.Struct, frozen=True):
    """Where the files are; a `pem` holds a key and its certificates."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The certificate that signed all others."""
        return self.directory / "ca.crt"

    @property
    def apiserver(self) -> Path:
        """The API server's, as server and as client of kubelets."""
        return self.directory / "apiserver.pem"

    @property
    def admin(self) -> Path:
        """A client's that may do everything."""
        return self.directory / "admin.pem"

    @property
    def webhook_client(self) -> Path:
        """What the API server shows to webhooks, by the name `WEBHOOK_CLIENT`."""
        return self.directory / "webhook-client.pem"

    @property
    def kubelet(self) -> Path:
        """The kubelet's, as server."""
        return self.directory / "kubelet.pem"

    @property
    def token_key(self) -> Path:
        """What signs the tokens of service accounts."""
        return self.directory / "tokens.key"

    @property
    def token_public_key(self) -> Path:
        """What those tokens are checked with."""
        return self.directory / "tokens.pub"

    def client_context(self) -> ssl.SSLContext:
        """Return the context of an administrator's client."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.admin)
        return context


def write_certificates(directory: Path, server_names: Iterable[str]) -> Certificates:
    """Make everything in *directory*; the API server and the kubelet answer to *server_names*."""
    directory.mkdir(parents=True, mode=0o700)
    files = Certificates(directory)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(files.authority)
    names = [*server_names]
    for path, leaf in (
        (files.apiserver, authority.issue_cert(*names, common_name="kube-apiserver", organization_name=ADMINISTRATORS)),
        (files.webhook_client, authority.issue_cert(WEBHOOK_CLIENT, common_name=WEBHOOK_CLIENT)),
        (files.kubelet, authority.issue_cert(*names, common_name="kubelet")),
        # A name, though clients need none: without one Go cannot read the certificate that trustme makes.
        (files.admin, authority.issue_cert("admin.test", common_name="admin", organization_name=ADMINISTRATORS)),
    ):
        leaf.private_key_and_cert_chain_pem.write_to_path(path)
    key = ec.generate_private_key(ec.SECP256R1())
    files.token_key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.token_public_key.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return files
