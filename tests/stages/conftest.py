from pathlib import Path

import pytest

from tests.support.components.controller import ControllerRig


@pytest.fixture
def rig(tmp_path: Path) -> ControllerRig:
    """A controller over an empty cluster, not yet running."""
    return ControllerRig(tmp_path)
