from pathlib import Path

from haptic_trio.dataplane.local.files.process_config import ProcessConfig


def test_each_load_names_a_socket_that_no_worker_has(tmp_path: Path) -> None:
    config = ProcessConfig(tmp_path / "process.cfg", "global\n")
    config.keep(tmp_path)
    names = [config.renew(tmp_path).name for _ in range(30)]

    text = config.path.read_text()
    assert text.startswith("global\n")
    assert f'stats socket "{tmp_path}/{names[-1]}" mode 600 level admin\n' in text
    assert f'stats socket "{tmp_path}/admin.sock" mode 600 level admin expose-fd listeners\n' in text
    assert all(len(set(names[at : at + 20])) == 20 for at in range(10))


def test_socket_of_an_earlier_load_is_removed(tmp_path: Path) -> None:
    config = ProcessConfig(tmp_path / "process.cfg", "global\n")
    config.renew(tmp_path).touch()
    (tmp_path / "admin.sock").touch()

    config.renew(tmp_path)

    assert [path.name for path in tmp_path.glob("*.sock")] == ["admin.sock"]


def test_settings_of_the_last_load_are_not_written_again(tmp_path: Path) -> None:
    config = ProcessConfig(tmp_path / "process.cfg", "global\n")
    config.renew(tmp_path)
    config.renew(tmp_path)
    before = config.path.stat()

    config.keep(tmp_path)

    assert config.path.stat() == before
