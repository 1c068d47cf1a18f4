"""Builds and verifies a release: `python -m tools.release.check DIRECTORY [--final]`.

Writes sdist, wheel, chart, SBOM, notes and checksums to DIRECTORY, and the images to the storage of the builder of this
machine, if there is one. With --final, also fails on what is wrong only once it is published. Nothing is published.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from haptic_trio import __version__
from tests.chart.support.image import TARGETS, find_builder, source_date
from tests.chart.support.image import build as build_image
from tests.cluster.control_plane.binaries import BinaryUnavailableError, provide_helm
from tools.release.build import build, run, stage
from tools.release.project import ROOT, NotesError, disagreements, unfinished
from tools.release.verify import VerificationError, faults_of_text, verify_chart, verify_wheel

SITE: Final = ROOT / "build/site/html"
"""The documentation site, which `make site` builds."""


def check(out: Path, *, final: bool) -> list[str]:
    """Build and verify the release in *out*; return the faults, and print what was done."""
    faults = disagreements()
    warnings = list(unfinished())
    if final:
        faults += warnings
    if faults:
        return faults
    helm = provide_helm()
    with tempfile.TemporaryDirectory(prefix="haptic-release-") as folder:
        source = Path(folder) / "source"
        stage(source)
        build(source, out, helm, final=final)
    (wheel,), (chart,) = out.glob("*.whl"), out.glob(f"haptic-trio-{__version__}.tgz")
    faults += faults_of_text(wheel, chart, SITE)
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out)
    verify_chart(chart, helm)
    print("chart: lint and rendering ok")
    times = verify_wheel(wheel)
    print(f"wheel: installed and served, {', '.join(f'{name} {seconds:.1f} s' for name, seconds in times.items())}")
    _images(final=final)
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.name}")
    if not final:
        print(*(f"before it is published: {warning}" for warning in warnings), sep="\n")
    return faults


def _images(*, final: bool) -> None:
    builder = find_builder()
    if builder is None:
        if final:
            raise VerificationError("no builder of images works here: buildah, podman or docker")
        print(
            "images: not built, no builder works here (`make image` tries the Containerfile with one that it fetches)"
        )
        return
    for target, name in TARGETS.items():
        build_image(builder, f"{name}:{__version__}", target=target)
    print(f"images: built, of {source_date()}")


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if the release is as it must be, 1 with each fault, 3 without helm and Go."""
    try:
        faults = check(Path(arguments[0]).resolve(), final="--final" in arguments[1:])
    except BinaryUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return 3
    except (NotesError, VerificationError, subprocess.CalledProcessError) as exc:
        faults = [str(exc)]
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
