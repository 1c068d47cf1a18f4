"""Faults of fields: objects are used all the same."""

from pathlib import Path

import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.directory import DirectoryCluster
from haptic_trio.k8s.resource import Resource
from tests.k8s.manifests.test_directory import GRACE, Reports, reports, root
from tests.k8s.objects import SERVICES, service_manifest

__all__ = ["reports", "root"]


async def test_faults_of_fields_have_lines_and_end_with_the_correction(root: Path, reports: Reports) -> None:
    (root / "a.yaml").write_text(f"---\n{service_manifest('a')}".replace("spec:", "spec:\n  selectr: {}"))
    pod = "{kind: Pod, apiVersion: v1, metadata: {name: b}}"
    (root / "b.yaml").write_text(f"kind: List\napiVersion: v1\nitems:\n  - {pod}\n")

    def check(resource: Resource) -> list[Problem]:
        path = "spec.selectr" if "selectr" in resource.get("spec", ()) else "kind"
        return [Problem(message="wrong", path=path, subject=resource["metadata"]["namespace"])] if path in text else []

    text = "spec.selectr kind"
    cluster = DirectoryCluster(root, report=reports, grace=GRACE, check=check)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        found = await cluster.get(SERVICES, "default", "a")
        lines = {name: [(one.line, one.subject) for one in found] for name, found in reports.problems.items()}
        text = ""
        (root / "a.yaml").write_text(service_manifest("a"))
        await reports.wait(lambda problems: not problems["a.yaml"])
        nursery.cancel_scope.cancel()

    wrong_line = f"---\n{service_manifest('a')}".split("spec:")[0].count("\n") + 2
    assert "selectr" in found["spec"]
    assert lines == {"a.yaml": [(wrong_line, "default")], "b.yaml": [(4, "default")]}
