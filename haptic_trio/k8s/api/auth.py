"""Credentials for an API server: address, TLS context and token from a kubeconfig or a service account.

kr8s reads kubeconfigs and runs credential plugins. It keeps the keys and
certificates that a kubeconfig holds inline in temporary files, which this
module removes, and ignores `tokenFile`, which this module reads. The service
account of a pod is read here as well: kr8s prefers any kubeconfig of the
environment to it, and reads its token only once.
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import msgspec
import trio
from yaml import YAMLError
from yaml.error import MarkedYAMLError

from haptic_trio.errors import text_of
from haptic_trio.k8s.errors import CredentialsError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_FIX: Final = "compare with `kubectl config view`"

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Modification time, inode and size of files; differs once one of them has changed."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Address, TLS context and token for an API server."""

    server: str
    """URL of the server."""
    context: ssl.SSLContext
    token: str = ""
    token_file: Path | None = None
    """The file with the token, to be read again when it has changed."""
    server_name: str = ""
    """The name in the server's certificate, if it differs from the host in the URL."""
    proxy: str | None = None
    files: tuple[Path, ...] = ()
    """The files, without *token_file*, behind these credentials: load them again when one has changed."""
    stamp: Stamp = ()
    """The stamp of *files* from before they were read."""
    title: str = ""
    """Their source, such as `context dev of FILE`."""

    @property
    def place(self) -> str:
        """Address of the server and source of the credentials, for messages."""
        return f"API server {_without_user(self.server)}" + (f" ({self.title})" if self.title else "")


Load: TypeAlias = Callable[[], Awaitable[Credentials]]
"""Reads the credentials again, or raises `CredentialsError`."""


async def load_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """Read *path* and return the credentials of *context*, or of its current context.

    Runs the credential plugin if the user has one. Sends nothing to the
    server. Raises `CredentialsError`.
    """
    # The import takes half a second, which --manifests and --in-cluster save.
    from kr8s.asyncio import Api  # noqa: PLC0415

    stamp = await _stamp_in_thread([path])
    if stamp == (None,):
        raise CredentialsError(f"{path}: no such kubeconfig")
    # `kr8s.asyncio.api()` requests /version, and fails while the server is away. The constructor of `Api`, with the
    # argument that its factory passes, only makes `auth`. No service account: it would stand in for a missing cluster.
    auth = Api(kubeconfig=os.fspath(path), context=context, serviceaccount="", bypass_factory=True).auth
    try:
        try:
            await auth.reauthenticate()
            verify: ssl.SSLContext | bool = await auth.ssl_context()  # type: ignore[no-untyped-call]
        finally:
            inline = _inline_files(auth)
            _remove(inline)
    except YAMLError as error:
        raise CredentialsError(f"{_yaml_place(path, error)}; {_FIX}") from error
    except (ValueError, KeyError, IndexError, TypeError, OSError, ssl.SSLError) as error:
        raise CredentialsError(f"{path}: {_describe(error, auth, context)}; {_FIX}") from error
    except Exception as error:  # kr8s reports a failed plugin by exceptions of several types
        raise CredentialsError(f"{path}: {text_of(error)}") from error
    named = [auth.server_ca_file, auth.client_cert_file, auth.client_key_file]
    files = (path, *(Path(str(file)) for file in named if file and str(file) not in inline))
    user, _ = _entries(auth)
    where = f"{path}: context {auth.active_context}"
    server = _address(auth.server, f"{where}: the server")
    proxy = None if auth.proxy is None else _address(auth.proxy, f"{where}: the proxy-url")
    token_file = path.parent / user["tokenFile"] if user.get("tokenFile") else None
    return Credentials(
        server=server,
        context=verify if isinstance(verify, ssl.SSLContext) else ssl.create_default_context(),
        token=await read_token(token_file) if token_file else _checked(auth.token or "", path),
        token_file=token_file,
        server_name=auth.tls_server_name or "",
        proxy=proxy,
        files=files,
        stamp=stamp + await _stamp_in_thread(files[1:]),
        title=f"context {auth.active_context} of {path}",
    )


async def load_service_account(directory: Path = SERVICE_ACCOUNT) -> Credentials:
    """Return the credentials of the pod's service account; raises `CredentialsError` outside of a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CredentialsError(
            "not in a cluster: KUBERNETES_SERVICE_HOST is not set; outside of a pod, give --kubeconfig FILE"
        )
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
        title="service account of this pod",
    )


def read_namespace(directory: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of the pod that this process runs in; empty outside of a pod."""
    try:
        return (directory / "namespace").read_text().strip()
    except OSError:
        return ""


async def read_token(path: Path) -> str:
    """Return the token in *path*, or raise `CredentialsError`."""
    try:
        text = await trio.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: {_reason(error)}") from error
    return _checked(text, path)


def _checked(token: object, path: Path) -> str:
    """Return *token* without blanks around it; raises `CredentialsError` if a header cannot have it as its value.

    The HTTP client quotes such a header in its error, and does not expect others than ASCII.
    """
    text = token.strip() if isinstance(token, str) else ""
    if not isinstance(token, str) or not (text.isascii() and text.isprintable()):
        raise CredentialsError(f"{path}: the token is not one line of ASCII characters")
    return text


def _address(value: object, title: str) -> str:
    """Return the URL *value*; for what no client accepts, raises a `CredentialsError` that begins with *title*."""
    if not isinstance(value, str):
        raise CredentialsError(f"{title} is not text, but a URL such as https://HOST:PORT is needed")
    shown = _without_user(value)
    if "://" not in value:
        raise CredentialsError(f"{title} {shown!r} has no scheme; write https://{shown}")
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("https", "http") or not url.host or not (url.port is None or 0 < url.port < 2**16):
        raise CredentialsError(f"{title} {shown!r} is not a URL such as https://HOST:PORT or http://HOST:PORT")
    return value


def stamp_of(files: Iterable[Path]) -> Stamp:
    """Return the stamp of *files*, None for each that does not exist. Blocks for one `stat` each."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


async def _stamp_in_thread(files: Iterable[Path]) -> Stamp:
    return await trio.to_thread.run_sync(stamp_of, tuple(files))


def _entries(auth: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return user and cluster of the active context; kr8s has added what a plugin returned to the user."""
    context = auth.kubeconfig.get_context(auth.active_context)
    return auth.kubeconfig.get_user(context["user"]), auth.kubeconfig.get_cluster(context["cluster"])


def _inline_files(auth: Any) -> set[str]:
    """Return the temporary files that kr8s has written for keys and certificates inline in the kubeconfig."""
    if not (auth.client_key_file or auth.client_cert_file or auth.server_ca_file):
        return set()  # none, or kr8s failed before it read the entries
    user, cluster = _entries(auth)
    written = {
        auth.client_key_file if "client-key-data" in user else None,
        auth.client_cert_file if "client-certificate-data" in user else None,
        auth.server_ca_file if "certificate-authority-data" in cluster else None,
    }
    return {str(file) for file in written if file}


def _remove(files: Iterable[str]) -> None:
    for file in files:
        Path(file).unlink(missing_ok=True)


def _yaml_place(path: Path, error: YAMLError) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{path}:{mark.line + 1}:{mark.column + 1}: not valid YAML: {error.problem}"
    return f"{path}: not valid YAML"


def _describe(error: BaseException, auth: Any, context: str | None) -> str:
    """Return what is wrong with a kubeconfig that kr8s cannot use."""
    try:
        known = [str(one["name"]) for one in auth.kubeconfig.contexts]
    except (AttributeError, KeyError, TypeError, ValueError):
        return "not a kubeconfig, which has contexts, clusters and users"
    if not known:
        return "the kubeconfig has no contexts"
    try:
        current = context or auth.kubeconfig.current_context
    except (AttributeError, KeyError, TypeError, ValueError):
        current = None
    if not current:
        return f"the kubeconfig has no current-context; select a context with --context (contexts: {', '.join(known)})"
    if current not in known:
        return f"there is no context {current!r} (contexts: {', '.join(known)})"
    return f"context {current}: {_reason(error)}"


def _without_user(server: str) -> str:
    """Return the address *server* without user and password, with or without a scheme."""
    scheme, separator, rest = server.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, OSError) and error.strerror:
        # Such as the command of a credential plugin.
        return f"{error.filename}: {error.strerror}" if isinstance(error.filename, str) else error.strerror
    return str(error) or repr(error)
