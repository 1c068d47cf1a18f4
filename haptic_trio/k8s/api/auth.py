"""Credentials for an API server: address, TLS context and token from a kubeconfig or a service account.

kr8s reads kubeconfigs and runs credential plugins. It leaves the keys and
certificates that a kubeconfig holds inline in temporary files, which are
removed here, and does not know `tokenFile`, which is.
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import trio

from haptic_trio.k8s.errors import CredentialsError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Tells the content of files from a later one without reading them."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an API server and what to show it."""

    server: str
    """Its URL."""
    context: ssl.SSLContext
    token: str = ""
    token_file: Path | None = None
    """Where the token is read again when the file has changed."""
    server_name: str = ""
    """The name in the server's certificate where it is not the one in the URL."""
    proxy: str | None = None
    files: tuple[Path, ...] = ()
    """What the rest was made from: when one of them changes, everything is to be loaded again."""
    stamp: Stamp = ()
    """Of *files*, from before they were read."""


Load: TypeAlias = Callable[[], Awaitable[Credentials]]
"""Reads the credentials anew, or raises `CredentialsError`."""


async def load_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """Read *path* and return the credentials of *context*, or of its current context.

    Runs the credential plugin if the user has one. Raises
    `CredentialsError`.
    """
    # Half a second, and of no use to those who serve a directory.
    from kr8s._auth import KubeAuth  # noqa: PLC0415

    stamp = await _stamp_in_thread([path])
    if stamp == (None,):
        raise CredentialsError(f"{path}: no such kubeconfig")
    # False instead of a path: a kubeconfig without a cluster must not make us somebody else.
    auth = KubeAuth(kubeconfig=os.fspath(path), context=context, serviceaccount="")
    try:
        try:
            await auth
            verify: ssl.SSLContext | bool = await auth.ssl_context()  # type: ignore[no-untyped-call]
        finally:
            _remove_inline_files(auth)
    except (ValueError, KeyError, IndexError, TypeError, OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{path}: {_reason(error)}") from error
    except Exception as error:  # a plugin that fails is reported by kr8s in several ways
        raise CredentialsError(f"{path}: {error!r}") from error
    user: dict[str, Any] = auth._user  # noqa: SLF001  kr8s has no other way to ask for what it ignores
    given = [auth.server_ca_file, auth.client_cert_file, auth.client_key_file]
    inline = _inline_files(auth)
    files = (path, *(Path(str(file)) for file in given if file and str(file) not in inline))
    token_file = Path(user["tokenFile"]) if user.get("tokenFile") else None
    if token_file is not None and not token_file.is_absolute():
        token_file = path.parent / token_file
    return Credentials(
        server=auth.server,
        context=verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context(),
        token=await read_token(token_file) if token_file else (auth.token or "").strip(),
        token_file=token_file,
        server_name=auth.tls_server_name or "",
        proxy=auth.proxy,
        files=files,
        stamp=stamp + await _stamp_in_thread(files[1:]),
    )


async def load_service_account(directory: Path = SERVICE_ACCOUNT) -> Credentials:
    """Return the credentials that a pod has; raises `CredentialsError` outside of one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CredentialsError("not in a cluster: KUBERNETES_SERVICE_HOST is not set")
    ca_file = directory / "ca.crt"
    stamp = await _stamp_in_thread([ca_file])
    try:
        context = await trio.to_thread.run_sync(lambda: ssl.create_default_context(cafile=ca_file))
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{ca_file}: {_reason(error)}") from error
    return Credentials(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        context=context,
        token=await read_token(directory / "token"),
        token_file=directory / "token",
        files=(ca_file,),
        stamp=stamp,
    )


def read_namespace(directory: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of the pod that we are in; empty outside of one."""
    try:
        return (directory / "namespace").read_text().strip()
    except OSError:
        return ""


async def read_token(path: Path) -> str:
    """Return the token in *path*, or raise `CredentialsError`."""
    try:
        return (await trio.Path(path).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: {_reason(error)}") from error


def stamp_of(files: Iterable[Path]) -> Stamp:
    """Return what tells the present content of *files* from a later one; blocks for one `stat` each."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


async def _stamp_in_thread(files: Iterable[Path]) -> Stamp:
    return await trio.to_thread.run_sync(stamp_of, tuple(files))


def _inline_files(auth: Any) -> set[str]:
    """Return the temporary files that kr8s has written for what the kubeconfig holds inline."""
    written = {
        auth.client_key_file if "client-key-data" in auth._user else None,  # noqa: SLF001
        auth.client_cert_file if "client-certificate-data" in auth._user else None,  # noqa: SLF001
        auth.server_ca_file if "certificate-authority-data" in auth._cluster else None,  # noqa: SLF001
    }
    return {str(file) for file in written if file}


def _remove_inline_files(auth: Any) -> None:
    for file in _inline_files(auth):
        Path(file).unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return getattr(error, "strerror", None) or str(error) or repr(error)
