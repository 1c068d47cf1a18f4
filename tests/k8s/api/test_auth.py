"""Credentials of every form, and what happens when they change."""

import json
import tempfile
from functools import partial
from pathlib import Path

import pytest
import trio
import yaml

from haptic_trio.k8s.api.auth import Load, load_kubeconfig, load_service_account, read_namespace
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Selection
from haptic_trio.k8s.errors import CredentialsError, UnauthorizedError, UnreachableError
from tests.k8s.api.api_cluster import FAST, Reports, connected, viewing
from tests.k8s.objects import SERVICES
from tests.support.api_server.server import TOKEN, ApiServer, serving
from tests.support.kubernetes import service

ALL_SERVICES = Selection(type=SERVICES)


def write_plugin(path: Path, token_file: Path) -> Path:
    """Write a credential plugin that prints the token in *token_file*, and counts its runs beside it."""
    path.write_text(
        f"""
import json, pathlib
token = pathlib.Path({str(token_file)!r}).read_text()
with open({str(token_file)!r} + ".runs", "a") as runs:
    runs.write("x")
status = {{"token": token}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""
    )
    return path


async def read_one(server: ApiServer, load: Load) -> None:
    """Connect with *load* and read the service."""
    cluster = ApiCluster(load, report=Reports(), pace=FAST)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        assert await cluster.get(SERVICES, "default", "a")
        nursery.cancel_scope.cancel()


@pytest.mark.process
@pytest.mark.parametrize("way", ["token", "token_file", "certificate", "plugin", "authority_file"])
async def test_kubeconfig_works_in_each_form_and_leaves_no_file_behind(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    values = {
        "token": TOKEN,
        "token_file": str(tmp_path / "token"),
        "certificate": "tester",
        "plugin": str(write_plugin(tmp_path / "plugin.py", tmp_path / "token")),
        "authority_file": str(tmp_path / "ca.pem"),
    }
    (tmp_path / "token").write_text(TOKEN)
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config", **{way: values[way]})
        await read_one(server, partial(load_kubeconfig, config))

    assert list(temporary.iterdir()) == []


@pytest.mark.process
async def test_certificate_from_a_plugin_works_and_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    async with serving(service("a")) as server:
        issued = server.authority.issue_cert(common_name="tester")
        status = {
            "clientCertificateData": b"".join(part.bytes() for part in issued.cert_chain_pems).decode(),
            "clientKeyData": issued.private_key_pem.bytes().decode(),
        }
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        plugin = tmp_path / "plugin.py"
        plugin.write_text(f"print({json.dumps(answer)!r})\n")
        await read_one(
            server, partial(load_kubeconfig, server.write_kubeconfig(tmp_path / "config", plugin=str(plugin)))
        )

    assert list(temporary.iterdir()) == []


async def test_loading_a_kubeconfig_sends_no_request(tmp_path: Path) -> None:
    # `kr8s.asyncio.api()` would: this fails once the constructor of `kr8s.asyncio.Api` does too.
    async with serving() as server:
        config = server.write_kubeconfig(tmp_path / "config")
        await load_kubeconfig(config)
        assert server.requests == []

        server.stop()
        assert (await load_kubeconfig(config)).server == server.url


async def test_context_is_chosen_by_name(tmp_path: Path) -> None:
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config")
        document = yaml.safe_load(config.read_text())
        document["contexts"].append({"name": "broken", "context": {"cluster": "test", "user": "nobody"}})
        document["users"].append({"name": "nobody", "user": {"token": "wrong"}})
        document["current-context"] = "broken"
        config.write_text(yaml.safe_dump(document))

        await read_one(server, partial(load_kubeconfig, config, "test"))
        with pytest.RaisesGroup(UnauthorizedError):
            await read_one(server, partial(load_kubeconfig, config))


async def test_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(service("a")) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        (tmp_path / "token").write_text(TOKEN)
        (tmp_path / "namespace").write_text("mine")
        server.authority.cert_pem.write_to_path(tmp_path / "ca.crt")

        await read_one(server, partial(load_service_account, tmp_path))

    assert read_namespace(tmp_path) == "mine"
    assert read_namespace(tmp_path / "nowhere") == ""


async def test_service_account_outside_of_a_pod_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="not in a cluster"):
        await load_service_account(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    with pytest.raises(CredentialsError, match=r"ca\.crt"):
        await load_service_account(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "- a", "apiVersion: v1\nkind: Config\n", "current-context: x\ncontexts: []\nclusters: []\nusers: []\n"]
)
async def test_error_for_an_unusable_kubeconfig_names_the_file(tmp_path: Path, text: str) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    with pytest.raises(CredentialsError, match="config: "):
        await load_kubeconfig(config)


@pytest.mark.process
async def test_error_for_a_missing_kubeconfig_or_failing_plugin_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no such kubeconfig"):
        await load_kubeconfig(tmp_path / "nowhere")
    async with serving() as server:
        config = server.write_kubeconfig(tmp_path / "config", plugin=str(tmp_path / "missing.py"))
        with pytest.raises(CredentialsError, match="config: "):
            await load_kubeconfig(config)


async def test_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config", token_file=str(tmp_path / "token"))
        async with connected(server, config) as cluster, viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            (tmp_path / "token").write_text("second-token")
            server.rotate_token("second-token")
            before = len(server.requests)

            await cluster.get(SERVICES, "default", "a")
            # The open watch goes on, and nothing was rejected on the way.
            server.put(service("b"))
            await view.until("a", "b")
            assert len(server.requests) == before + 1
            assert server.open_watches == 1


@pytest.mark.process
async def test_rejected_token_runs_the_plugin_once_for_all_requests(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    plugin = write_plugin(tmp_path / "plugin.py", tmp_path / "token")
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config", plugin=str(plugin))
        async with connected(server, config) as cluster, viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            (tmp_path / "token").write_text("second-token")
            server.rotate_token("second-token")
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(cluster.get, SERVICES, "default", "a")
            server.put(service("b"))
            await view.until("a", "b")

    assert (tmp_path / "token.runs").read_text() == "xx"


async def test_token_that_stays_rejected_is_reported_and_the_watch_recovers_with_a_new_one(tmp_path: Path) -> None:
    reports = Reports()
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config")
        async with connected(server, config, reports=reports) as cluster, viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            server.rotate_token("second-token")
            server.cut_watches()
            await reports.wait(lambda reports: "401" in reports.messages)
            with pytest.raises(UnauthorizedError):
                await cluster.get(SERVICES, "default", "a")

            # As `kubectl config set-credentials` does it.
            server.write_kubeconfig(config, token="second-token")
            server.put(service("b"))
            await view.until("a", "b")
            await reports.wait(lambda reports: not reports.messages)


async def test_changed_authority_file_replaces_the_trusted_authority(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    async with serving(service("a")) as server:
        config = server.write_kubeconfig(tmp_path / "config", authority_file=str(ca_file))
        async with connected(server, config) as cluster, viewing(cluster, ALL_SERVICES) as view:
            await view.until("a")
            former = ca_file.read_bytes()
            server.rotate_authority()
            server.stop()
            await server.start()
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await cluster.get(SERVICES, "default", "a")

            server.authority.cert_pem.write_to_path(ca_file)
            server.put(service("b"))
            await view.until("a", "b")

            ca_file.write_bytes(former)
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await cluster.get(SERVICES, "default", "a")


GOOD = """\
current-context: dev
contexts: [{name: dev, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
"""


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        ("a: [1\nb: {", None, ":2:2: not valid YAML: expected ',' or ']', but got ':'"),
        ("", None, ": not a kubeconfig, which has contexts, clusters and users"),
        ("hello", None, ": not a kubeconfig, which has contexts, clusters and users"),
        (GOOD, "prod", ": there is no context 'prod' (contexts: dev)"),
        (GOOD.replace("current-context: dev", "current-context: prod"), None, ": there is no context 'prod'"),
        (
            GOOD.replace("current-context: dev\n", ""),
            None,
            ": the kubeconfig has no current-context; select a context with --context (contexts: dev)",
        ),
        (GOOD.replace("name: u,", "name: w,"), None, ": context dev: User u not found"),
    ],
)
async def test_unusable_kubeconfig_is_reported_with_its_place_and_cause(
    tmp_path: Path, text: str, context: str | None, message: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(CredentialsError) as raised:
        await load_kubeconfig(path, context)

    assert str(raised.value).startswith(f"{path}{message}")
    assert str(raised.value).endswith("; compare with `kubectl config view`")


@pytest.mark.parametrize(
    "token", ["MARK7f\nMARK7f", "MARK7f\rx", "MARK7f\x01", "MARK7f\u00e4", ["MARK7f"], {"MARK7f": 1}, 7]
)
@pytest.mark.parametrize("way", ["inline", "file", pytest.param("plugin", marks=pytest.mark.process)])
async def test_token_that_no_header_can_have_is_reported_without_it(tmp_path: Path, token: object, way: str) -> None:
    path, file = tmp_path / "config", tmp_path / "answer"
    user: dict[str, object] = {"token": token}
    if way == "file":
        file.write_text(str(token) if isinstance(token, str) else "MARK7f\n7")
        user = {"tokenFile": str(file)}
    elif way == "plugin":
        file.write_text(json.dumps({"status": {"token": token}}))
        api = "client.authentication.k8s.io/v1"
        user = {"exec": {"apiVersion": api, "command": "cat", "args": [str(file)], "interactiveMode": "Never"}}
    path.write_text(yaml.safe_dump({**yaml.safe_load(GOOD), "users": [{"name": "u", "user": user}]}))

    with pytest.raises(CredentialsError) as raised:
        await load_kubeconfig(path)

    where = file if way == "file" else path
    assert str(raised.value) == f"{where}: the token is not one line of ASCII characters"


async def test_error_about_an_address_shows_no_password(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(GOOD.replace("http://127.0.0.1:1", "user:MARK7f@127.0.0.1:1"))

    with pytest.raises(CredentialsError, match=r"the server '127\.0\.0\.1:1' has no scheme") as raised:
        await load_kubeconfig(path)

    assert "MARK7f" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("server", "https://127.0.0.1:abc", "'https://127.0.0.1:abc' is not a URL"),
        ("server", "https://127.0.0.1:0", "'https://127.0.0.1:0' is not a URL"),
        ("server", "https://127.0.0.1:65536", "'https://127.0.0.1:65536' is not a URL"),
        ("server", "https://", "'https://' is not a URL"),
        ("server", "http://[::1", "'http://[::1' is not a URL"),
        ("server", "ftp://a:MARK7f@127.0.0.1", "'ftp://127.0.0.1' is not a URL"),
        ("server", 5, "is not text"),
        ("proxy-url", "127.0.0.1:3128", "'127.0.0.1:3128' has no scheme; write https://127.0.0.1:3128"),
        ("proxy-url", "http://a:MARK7f@127.0.0.1:xx", "'http://127.0.0.1:xx' is not a URL"),
        ("proxy-url", "socks5://127.0.0.1:1", "'socks5://127.0.0.1:1' is not a URL such as https://HOST:PORT"),
        ("proxy-url", ["http://127.0.0.1:1"], "is not text"),
    ],
)
async def test_address_that_the_client_rejects_is_reported_with_its_field(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    path, content = tmp_path / "config", yaml.safe_load(GOOD)
    content["clusters"][0]["cluster"][field] = value
    path.write_text(yaml.safe_dump(content))

    with pytest.raises(CredentialsError) as raised:
        await load_kubeconfig(path)

    assert str(raised.value).startswith(f"{path}: context dev: the {field} {message}")
    assert "MARK7f" not in str(raised.value)


async def test_error_of_the_server_has_its_address_and_the_context(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(GOOD)
    cluster = ApiCluster(partial(load_kubeconfig, path), report=Reports(), pace=FAST)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        with pytest.raises(UnreachableError) as raised:
            await cluster.get(SERVICES, "default", "a")
        nursery.cancel_scope.cancel()

    assert raised.value.where == f"API server http://127.0.0.1:1 (context dev of {path})"
