"""Labels for Node Feature Discovery: a file that is whole, current, and there also without its writer."""

from pathlib import Path

import pytest

from labeler.agent import Agent
from labeler.facts import Facts, Gpu
from labeler.feature_file import FeatureFile
from labeler.labels import Wanted
from tests.labeler.reported import Reported

LABELS = {"gpu.intel.com/cards": "card0", "gpu.intel.com/tiles": "1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topogate"


def test_labels_are_lines_of_key_and_value(path: Path) -> None:
    FeatureFile(path).publish(Wanted(LABELS, {"note": "left out"}))
    assert path.read_text() == "gpu.intel.com/cards=card0\ngpu.intel.com/tiles=1\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_right_is_not_written(path: Path) -> None:
    file = FeatureFile(path)
    assert file.publish(Wanted(LABELS, {}))
    before = path.stat()
    assert not file.publish(Wanted(LABELS, {}))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_obsolete_labels_are_removed_and_unknown_ones_stay(path: Path) -> None:
    file = FeatureFile(path)
    file.publish(Wanted(LABELS | {"topology.gke.io/rack": "r"}, {}))
    file.publish(Wanted({}, {}, unknown=("gpu.intel.com/",)))
    assert path.read_text() == "gpu.intel.com/cards=card0\ngpu.intel.com/tiles=1\n"


def test_a_machine_without_labels_has_an_empty_file(path: Path) -> None:
    FeatureFile(path).publish(Wanted({}, {}))
    assert path.read_text() == ""


def test_a_rollout_of_the_labeler_removes_no_label(path: Path) -> None:
    """NFD takes off the node what it does not find: the file outlives its writer, and a failing successor."""

    def after_a_run(facts: Facts | None) -> str:
        agent = Agent({"udev": Reported(facts)}, FeatureFile(path))
        agent.run(3600, lambda problem: agent.stop())
        return path.read_text()

    written = after_a_run(Facts(topology=("c", "r", "h"), gpus=(Gpu(0, "intel"),)))
    assert "gpu.topogate.io/vendor.intel=1\n" in written
    assert after_a_run(None) == written


def test_a_missing_folder_is_an_error_that_the_loop_retries(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        FeatureFile(tmp_path / "none" / "file").publish(Wanted(LABELS, {}))
