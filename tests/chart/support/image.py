"""Builds the container image, with a builder of this machine or with one that is fetched for it.

    python -m tests.chart.support.image [TAG]

TARGET=agent in the environment builds the image for agents instead. HAPROXY, HAPROXY_SNAPSHOT, BASE and PACKAGES are
arguments of the Containerfile. Builders are buildah, podman and docker, as BUILDER says or as PATH has them. Where none
works, and this is Debian and root, buildah is unpacked into a private folder, and the base is made from the
distribution's packages instead of being pulled: nothing is installed. Exits with 3 and the reason where neither can be.
"""

import gzip
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from haptic_trio import __version__

ROOT: Final = Path(__file__).parents[3]
BUILDERS: Final = ("buildah", "podman", "docker")
SUITE: Final = "trixie"
TARGETS: Final = {"controller": "haptic-trio", "agent": "haptic-trio-agent"}
"""Images that the Containerfile makes, with the names that tags begin with."""
PASSED_ON: Final = ("BASE", "PACKAGES", "HAPROXY", "HAPROXY_SNAPSHOT")
UNAVAILABLE: Final = 3
BUILD_LIMIT: Final = 1800.0
"""Seconds for one command, from cold caches on a slow line."""


class BuilderUnavailableError(Exception):
    """No image can be built here; the text says why."""


def build_arguments(epoch: str) -> dict[str, str]:
    """Return the options of every builder."""
    revision = _ask(["git", "-C", str(ROOT), "rev-parse", "HEAD"]) or "unknown"
    passed_on = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    return {"VERSION": __version__, "REVISION": revision, "SOURCE_DATE_EPOCH": epoch, **passed_on}


def source_date() -> str:
    """Return SOURCE_DATE_EPOCH, or the time of the newest commit."""
    return os.environ.get("SOURCE_DATE_EPOCH") or _ask(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]) or "0"


def find_builder() -> str | None:
    """Return the builder to use: the one that BUILDER names, or one of PATH that works."""
    if chosen := os.environ.get("BUILDER"):
        return chosen
    return next((each for each in BUILDERS if shutil.which(each) and _works([each, "info"])), None)


def build(builder: str, tag: str, *, target: str) -> None:
    """Build the image *target* as *tag* with a builder of this machine; raises CalledProcessError."""
    epoch = source_date()
    # Times are the builder's to set: buildah and podman have an option, docker's BuildKit follows the argument.
    times = [] if builder.endswith("docker") else ["--timestamp", epoch]
    arguments = [f"--build-arg={name}={value}" for name, value in build_arguments(epoch).items()]
    _show(
        [
            builder,
            "build",
            *times,
            *arguments,
            f"--target={target}",
            "--tag",
            tag,
            "--file",
            str(ROOT / "Containerfile"),
            str(ROOT),
        ]
    )


class ImageSize(NamedTuple):
    """Bytes of an image's layers."""

    compressed: int
    unpacked: int


class PrivateBuilder:
    """buildah in a folder of its own, with a base image made from packages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Of this moment: a commit between two builds must not make them differ.
        self._arguments = {**build_arguments(source_date()), "BASE": "localhost/base", "PACKAGES": "current"}

    def prepare(self) -> None:
        """Fetch what is needed; raises BuilderUnavailableError."""
        if os.geteuid() != 0:
            raise BuilderUnavailableError("no builder works here, and without root none can be fetched")
        try:
            self._fetch_packages()
            self._make_base()
        except (OSError, subprocess.SubprocessError) as exc:
            said = getattr(exc, "stderr", None) or b""
            text = said.decode(errors="replace")[-500:] if isinstance(said, bytes) else said[-500:]
            raise BuilderUnavailableError(f"no builder works here, and none can be fetched: {exc} {text}") from exc

    def build(self, tag: str, *, target: str = "controller", source: Path = ROOT, cached: bool = False) -> None:
        """Build the image *target* as *tag* from the checkout *source*.

        Nothing of an earlier build is used unless *cached*. Raises CalledProcessError.
        """
        mounted = self._folder / "mounted"
        mounted.mkdir(exist_ok=True)
        self._write_pip_settings(mounted)
        self._write_apt_settings(mounted)
        epoch = self._arguments["SOURCE_DATE_EPOCH"]
        self._buildah(
            *("build", *self._policy, "--isolation=chroot", "--network=host"),
            *("--layers", *([] if cached else ["--no-cache"]), "--timestamp", epoch, f"--target={target}"),
            *(f"--build-arg={name}={value}" for name, value in self._arguments.items()),
            *(f"--volume={mounted}:/run/build:ro", f"--volume={mounted}/pip.conf:/etc/pip.conf:ro"),
            f"--volume={mounted}/apt.conf:/etc/apt/apt.conf.d/90machine:ro",
            *(
                "--tag",
                tag,
                "--file",
                str(source / "Containerfile"),
                f"--ignorefile={source / '.containerignore'}",
                str(source),
            ),
        )

    def digest(self, tag: str) -> str:
        """Return the digest of the image's manifest."""
        return self._buildah("inspect", "--format={{.FromImageDigest}}", tag).strip()

    def size(self, tag: str) -> ImageSize:
        """Return the size of the image *tag*."""
        pushed = self._folder / "pushed"
        blobs = pushed / "blobs/sha256"
        self._buildah("push", *self._policy, "--quiet", tag, f"oci:{pushed}")
        try:
            (manifest,) = json.loads((pushed / "index.json").read_text())["manifests"]
            described = json.loads((blobs / manifest["digest"].removeprefix("sha256:")).read_text())
            layers = [blobs / layer["digest"].removeprefix("sha256:") for layer in described["layers"]]
            return ImageSize(sum(layer.stat().st_size for layer in layers), sum(map(_unpacked_size, layers)))
        finally:
            shutil.rmtree(pushed)

    @contextmanager
    def container(self, tag: str) -> Iterator["PrivateContainer"]:
        """Make a container of *tag*, in which commands run as the image's user."""
        name = self._buildah("from", *self._policy, tag).strip()
        try:
            yield PrivateContainer(self, name)
        finally:
            self._buildah("rm", name)

    def run(self, container: str, *command: str) -> str:
        """Run a command in *container*; return what it wrote, raises CalledProcessError."""
        return self._buildah("run", "--isolation=chroot", "--network=host", container, *command)

    @property
    def _policy(self) -> list[str]:
        policy = self._folder / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        return [f"--signature-policy={policy}"]

    def _buildah(self, *arguments: str) -> str:
        # Its libraries are where the loader looks only within a mount namespace of its own.
        script = (
            'mount -t overlay overlay -o lowerdir="$1/root/usr":/usr /usr && ldconfig -C "$1/loader" && '
            'mount --bind "$1/loader" /etc/ld.so.cache && cd "$1" && shift && exec buildah "$@"'
        )
        store = [f"--root={self._folder}/store", f"--runroot={self._folder}/run", "--storage-driver=vfs"]
        command = ["unshare", "--mount", "sh", "-euc", script, "sh", str(self._folder), *store, *arguments]
        if not (loader := self._folder / "loader").exists():
            loader.touch()
        registries = self._folder / "registries.conf"
        registries.write_text("unqualified-search-registries = []\n")
        return _capture(command, CONTAINERS_REGISTRIES_CONF=str(registries), BUILDAH_ISOLATION="chroot")

    def _fetch_packages(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        apt = self._folder / "apt"
        for part in ("lists/partial", "archives/partial"):
            (apt / part).mkdir(parents=True)
        options = [
            *("-o", f"Dir::State::Lists={apt}/lists", "-o", f"Dir::Cache={apt}"),
            *("-o", f"Dir::Cache::Archives={apt}/archives", "-o", "Acquire::Languages=none"),
            *("-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1"),
        ]
        _capture(["apt-get", *options, "update"])
        wanted = ["buildah", "crun", "mmdebstrap"]
        _capture(["apt-get", *options, "install", "--yes", "--download-only", "--no-install-recommends", *wanted])
        for package in (apt / "archives").glob("*.deb"):
            _capture(["dpkg-deb", "-x", str(package), str(self._folder / "root")])

    def _make_base(self) -> None:
        base = self._folder / "base"
        base.mkdir()
        command = [str(self._folder / "root/usr/bin/mmdebstrap"), "--mode=root", "--variant=minbase", "--format=tar"]
        _capture(["perl", *command, '--aptopt=APT::Sandbox::User "root"', SUITE, f"{base}/base.tar", *_sources()])
        (base / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
        self._buildah("build", *self._policy, "--tag=localhost/base", f"--file={base}/Containerfile", str(base))

    def _write_pip_settings(self, folder: Path) -> None:
        """Let pip find packages, and trust the server of them, as it does on this machine; no layer keeps this."""
        lines = ["[global]"]
        authorities = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile
        if authorities and Path(authorities).is_file():
            shutil.copy(authorities, folder / "authorities.pem")
            lines.append("cert = /run/build/authorities.pem")
        if index := _ask([sys.executable, "-m", "pip", "config", "get", "global.index-url"]):
            lines.append(f"index-url = {index}")
        (folder / "pip.conf").write_text("\n".join([*lines, ""]))

    def _write_apt_settings(self, folder: Path) -> None:
        """Let apt accept what it accepts on this machine, such as the old index of a mirror; no layer keeps this."""
        lines = _capture(["apt-config", "dump", "--format=%f %v%n", "Acquire::Check-Valid-Until"]).splitlines()
        settings = (line.split(maxsplit=1) for line in lines)
        (folder / "apt.conf").write_text("".join(f'{one[0]} "{one[1]}";\n' for one in settings if len(one) == 2))


class PrivateContainer:
    """A container of a `PrivateBuilder`."""

    def __init__(self, builder: PrivateBuilder, name: str) -> None:
        self._builder = builder
        self._name = name

    def run(self, *command: str) -> str:
        """Run a command as the image's user; return what it wrote, raises CalledProcessError."""
        return self._builder.run(self._name, *command)


def _unpacked_size(layer: Path) -> int:
    """Return the bytes of a layer's archive, which is compressed with gzip."""
    with gzip.open(layer) as archive:
        return sum(map(len, iter(lambda: archive.read(1 << 20), b"")))


def _sources() -> list[str]:
    """Return the lines of the machine's own sources of packages, for the suite of the base."""
    form = "$(REPO_URI) $(LABEL)"
    lines = {tuple(line.split()) for line in _capture(["apt-get", "indextargets", "--format", form]).splitlines()}
    suites = {"Debian": SUITE, "Debian-Security": f"{SUITE}-security"}
    found = sorted((label, uri) for uri, label in (line for line in lines if len(line) == 2) if label in suites)
    return [f"deb {uri} {suites[label]} main" for label, uri in found]


def _capture(command: Sequence[str], **environment: str) -> str:
    variables: Mapping[str, str] = {**os.environ, **environment}
    return subprocess.run(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT,
        check=True,
    ).stdout


def _show(command: Sequence[str]) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=BUILD_LIMIT, check=True)


def _works(command: Sequence[str]) -> bool:
    return (
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False).returncode == 0
    )


def _ask(command: Sequence[str]) -> str:
    """Return what a command says; nothing where it fails."""
    try:
        return _capture(command).strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def main(arguments: Sequence[str]) -> int:
    """Build, and say what was built."""
    target = os.environ.get("TARGET") or "controller"
    if target not in TARGETS:
        sys.stderr.write(f"TARGET is one of {', '.join(TARGETS)}, not {target}\n")
        return 1
    tag = arguments[0] if arguments else f"{TARGETS[target]}:{__version__}"
    try:
        if builder := find_builder():
            build(builder, tag, target=target)
            return 0
        sys.stderr.write("no builder works here: fetching one, only to try the Containerfile\n")
        with tempfile.TemporaryDirectory(prefix="haptic-image-") as folder:
            private = PrivateBuilder(Path(folder))
            private.prepare()
            private.build(tag, target=target)
            with private.container(tag) as container:
                sys.stdout.write(container.run("haptic-trio", "version"))
            sys.stdout.write(f"built, run and removed again: {tag} {private.digest(tag)}\n")
    except BuilderUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    except subprocess.CalledProcessError as exc:
        sys.stderr.write(f"{exc}\n{(exc.stderr or '')[-3000:]}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
