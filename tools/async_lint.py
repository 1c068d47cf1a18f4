"""flake8-async over the checkout, in parallel, and only over files that it has not accepted before.

    python -m tools.async_lint [OPTION…]      the options go to flake8-async

It takes three minutes of CPU time for all files, and judges each file by itself. So a file that it accepted, with
the same options and version, is not checked again: the digests of such files are kept in the cache folder of the user.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from typing import Final

PATTERN: Final = re.compile(r"(?<!haptic-)\b(async|trio)\b")
"""What a file must contain for a rule to apply to it: the project's own name does not count."""
BATCH: Final = 8
"""Files for one process. It starts within the time that it takes for a few files."""
KEPT_SECONDS: Final = 30 * 86400.0
"""A digest that no run has needed for this long is forgotten."""


def lint(root: Path, accepted: Path, options: Sequence[str]) -> int:
    """Check the files of the checkout *root*, and print what is wrong; return the exit code.

    *accepted* is the folder of digests; it is made. Files that git ignores are not checked.
    """
    accepted.mkdir(parents=True, exist_ok=True)
    _forget(accepted)
    rules = f"{version('flake8-async')} {sys.version_info[:2]} {options}"
    files = {file: accepted / _digest(root / file, rules) for file in _files(root)}
    unknown = [file for file, digest in files.items() if not digest.exists()]
    for digest in files.values():
        if digest.exists():
            digest.touch()

    def check(batch: Sequence[str]) -> int:
        command = [sys.executable, "-m", "flake8_async", *options, *batch]
        done = run(command, cwd=root, check=False, stdout=PIPE, stderr=STDOUT, text=True)
        sys.stdout.write(done.stdout)
        if done.returncode == 0:
            for file in batch:
                # Not one that was edited meanwhile.
                if files[file].name == _digest(root / file, rules):
                    files[file].touch()
        return done.returncode

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = pool.map(check, [unknown[first : first + BATCH] for first in range(0, len(unknown), BATCH)])
        return max(codes, default=0)


def _files(root: Path) -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    for file in run(command, cwd=root, check=True, stdout=PIPE, text=True).stdout.split("\0")[:-1]:
        # A file that was deleted and not committed is still listed.
        if (root / file).is_file() and PATTERN.search((root / file).read_text("utf-8")):
            yield file


def _digest(file: Path, rules: str) -> str:
    return hashlib.sha256(rules.encode() + b"\0" + file.read_bytes()).hexdigest()


def _forget(accepted: Path) -> None:
    oldest = time.time() - KEPT_SECONDS
    for digest in accepted.iterdir():
        # Another run may remove it at the same time.
        with suppress(FileNotFoundError):
            if digest.stat().st_mtime < oldest:
                digest.unlink()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "flake8-async"


if __name__ == "__main__":
    sys.exit(lint(Path.cwd(), _cache(), sys.argv[1:]))
