"""State of a running cluster on disk: its files for users, and the process that owns it."""

import base64
import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.cluster.control_plane.certificates import Certificates

PREFIX: Final = "haptic-cluster-"
AUDIT_LOG: Final = "audit.log"
_OWNER: Final = "owner.json"
_STATE: Final = "state.json"


class Owner(msgspec.Struct, frozen=True):
    """The process with which the cluster lives and dies."""

    pid: int
    started: str
    """By the kernel's count: another process that gets the number has another start."""

    @property
    def is_alive(self) -> bool:
        """Whether that very process runs."""
        return start_of(self.pid) == self.started


class State(msgspec.Struct, frozen=True):
    """A cluster that is ready."""

    directory: Path
    init_pid: int
    """The first process of the cluster, as the machine counts."""
    api_url: str
    """The API server, as reached from outside the cluster's network."""
    seconds: dict[str, float]
    """When what was ready, counted from the start."""

    @property
    def certificates(self) -> Certificates:
        """The files of the cluster's certificates."""
        return Certificates(self.directory / "certificates")

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, for use outside the cluster's network."""
        return self.directory / "kubeconfig"

    @property
    def inner_kubeconfig(self) -> Path:
        """An administrator's, for use in the cluster's network."""
        return self.directory / "kubeconfig-inside"

    @property
    def control(self) -> Path:
        """The socket at which the cluster takes orders."""
        return control_socket(self.directory)

    @property
    def logs(self) -> Path:
        """Where the parts and the Pods log."""
        return self.directory / "logs"

    @property
    def audit_log(self) -> Path:
        """Where the API server notes what Pods ask; see `audit.read_requests`."""
        return self.logs / AUDIT_LOG


def control_socket(directory: Path) -> Path:
    """Return the socket of the cluster in *directory*."""
    return directory / "control"


def start_of(pid: int) -> str | None:
    """Return when *pid* started, as the kernel counts; None for a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def make_directory() -> Path:
    """Return a new directory for a cluster, after removing those of clusters that died without cleaning up."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = _read_owner(left)
        if owner is not None and not owner.is_alive:
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def write_owner(directory: Path, pid: int) -> None:
    """Record that the cluster in *directory* belongs to the live process *pid*."""
    started = start_of(pid)
    assert started is not None
    (directory / _OWNER).write_bytes(msgspec.json.encode(Owner(pid, started)))


def write_state(state: State) -> None:
    """Record that a cluster is ready."""
    staged = state.directory / f".{_STATE}"
    staged.write_bytes(msgspec.json.encode(state, enc_hook=str))
    staged.replace(state.directory / _STATE)


def read_state(directory: Path) -> State:
    """Return the cluster in *directory*; raises OSError when none is ready there."""
    return msgspec.json.decode((directory / _STATE).read_bytes(), type=State, dec_hook=lambda kind, value: kind(value))


def find_clusters() -> list[Path]:
    """Return the directories of clusters that are alive."""
    folders = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    return [one for one in folders if (owner := _read_owner(one)) is not None and owner.is_alive]


def write_kubeconfig(path: Path, server: str, certificates: Certificates) -> None:
    """Write an administrator's kubeconfig that needs no other file."""

    def inline(source: Path) -> str:
        return base64.b64encode(source.read_bytes()).decode()

    user = {"client-certificate-data": inline(certificates.admin), "client-key-data": inline(certificates.admin)}
    cluster = {"server": server, "certificate-authority-data": inline(certificates.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)


def _read_owner(directory: Path) -> Owner | None:
    try:
        return msgspec.json.decode((directory / _OWNER).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None
