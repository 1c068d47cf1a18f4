"""Kubeconfigs for the in-process API server, in each way of giving credentials."""

import base64
import sys
from pathlib import Path
from typing import Any

import trustme
import yaml


def write_kubeconfig(
    path: Path,
    server: str,
    authority: trustme.CA,
    *,
    token: str = "first-token",
    token_file: str = "",
    plugin: str = "",
    certificate: str = "",
    authority_file: str = "",
) -> None:
    """Write a kubeconfig; the user shows *token* unless one of the others is given.

    *token_file* is the path of a file with the token. *plugin* is the path of
    a Python program that prints an ExecCredential. *certificate* is the name
    in a new client certificate. *authority_file* names the CA's file, which
    is written; without it the CA is in the kubeconfig.
    """
    pem = authority.cert_pem.bytes()
    cluster: dict[str, Any] = {"server": server}
    if authority_file:
        Path(authority_file).write_bytes(pem)
        cluster["certificate-authority"] = authority_file
    else:
        cluster["certificate-authority-data"] = base64.b64encode(pem).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": _user(authority, token, token_file, plugin, certificate)}],
    }
    path.write_text(yaml.safe_dump(document))


def _user(authority: trustme.CA, token: str, token_file: str, plugin: str, certificate: str) -> dict[str, Any]:
    if certificate:
        issued = authority.issue_cert(common_name=certificate)
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return {
            "client-certificate-data": base64.b64encode(chain).decode(),
            "client-key-data": base64.b64encode(issued.private_key_pem.bytes()).decode(),
        }
    if plugin:
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [plugin],
                "interactiveMode": "Never",
            }
        }
    return {"tokenFile": token_file} if token_file else {"token": token}
