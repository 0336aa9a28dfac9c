"""The contract of the interface, on every backend: results, trees, files, users (ends: ``test_sandbox_ending``)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from lemur_ray.sandbox import selfcheck
from lemur_ray.sandbox.backends.step_result import starved, step_result
from lemur_ray.sandbox.inside import processes, wire
from lemur_ray.sandbox.output import HeadTail
from lemur_ray.sandbox.sandbox import (
    Limits,
    Sandbox,
    SandboxFileError,
    SandboxSpec,
    SandboxUnavailable,
    open_sandbox,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_result_tells_exit_codes_signals_and_missing_programs_apart(box: Sandbox) -> None:
    assert box.exec(["sh", "-c", "echo out; echo err >&2; exit 3"]).exit_code == 3
    killed = box.exec(["sh", "-c", "kill -11 $$"])
    assert (killed.exit_code, killed.signal, killed.blame) == (None, 11, None)
    missing = box.exec(["no-such-program"])
    assert missing.exit_code == 127
    assert "no-such-program: command not found" in missing.err
    nowhere = box.exec(["true"], cwd="/no/such/folder")
    assert nowhere.exit_code == 125
    assert "cannot enter /no/such/folder" in nowhere.err
    fine = box.exec(["sh", "-c", "cat; echo $A"], stdin=b"in", env={"A": "1"})
    assert (fine.out, fine.err, fine.alive, fine.timed_out, fine.note) == ("in1\n", "", True, False, "")
    assert 0 < fine.cpu_s < 2.0


def test_a_command_with_nul_or_without_words_is_refused(box: Sandbox) -> None:
    for argv in ([], ["echo", "a\0b"]):
        with pytest.raises(ValueError, match="NUL"):
            box.exec(argv)


def test_trees_are_copied_with_modes_times_and_links_and_the_host_is_not_touched(backend: str, tmp_path: Path) -> None:
    tree, asset = tmp_path / "tree", tmp_path / "asset"
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/script").write_text("#!/bin/sh\necho ran\n")
    (tree / "folder/script").chmod(0o750)
    (tree / "link").symlink_to("folder/script")
    (tree / "empty").mkdir()
    os.utime(tree / "folder/script", (1_000_000_000, 1_000_000_000))
    asset.mkdir()
    (asset / "large").write_text("read only")
    spec = SandboxSpec(tree=tree, trees={"/testbed": tree, "/etc/motd": asset / "large"}, mounts={"/data": asset})
    sandbox = open_sandbox(spec, backend)
    try:
        seen = sandbox.exec(
            ["sh", "-c", "./link; stat -c '%a %Y' folder/script; ls -d empty; cat /etc/motd; ls /testbed"]
        )
        assert seen.out == "ran\n750 1000000000\nempty\nread onlyempty\nfolder\nlink\n"
        first = sandbox.snapshot()
        changed = sandbox.exec(
            ["sh", "-c", "rm -r folder /testbed/link; echo x > new; echo x > /data/large; cat /data/large"]
        )
        assert changed.out == "read only"
        assert sandbox.snapshot() != first
        sandbox.reset()
        assert sandbox.snapshot() == first
        assert sandbox.exec(["./link"]).out == "ran\n"
    finally:
        sandbox.close()
    assert (tree / "folder/script").exists()


def test_a_tree_that_is_not_there_is_named(backend: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_sandbox(SandboxSpec(tree=tmp_path / "nowhere"), backend)


def test_as_root_files_belong_to_user_0_and_no_capability_comes_with_it(backend: str) -> None:
    sandbox = open_sandbox(SandboxSpec(as_root=True), backend)
    try:
        script = "id -u; whoami; stat -c %U /work /; grep CapEff /proc/self/status; touch /new && echo wrote"
        seen = sandbox.exec(["sh", "-c", script]).out.split()
        assert seen == ["0", "root", "root", "root", "CapEff:", "0000000000000000", "wrote"]
        assert sandbox.exec(["sh", "-c", "mount -t tmpfs x /mnt || chown 5 /work || touch /usr/x"]).exit_code != 0
    finally:
        sandbox.close()


def test_a_root_file_system_takes_the_place_of_the_machines(backend: str, tmp_path: Path) -> None:
    rootfs = tmp_path / "rootfs"
    listed = subprocess.run(["ldd", "/usr/bin/dash"], capture_output=True, text=True, check=True).stdout
    for name in ["/usr/bin/dash", *re.findall(r"(/\S+) \(", listed)]:
        target = rootfs / Path(name).resolve().relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
        named = target.with_name(Path(name).name)
        if not named.exists():
            named.symlink_to(target.name)
    for link in ("bin", "lib", "lib64"):
        (rootfs / link).symlink_to(f"usr/{link}")
    (rootfs / "usr/lib64").mkdir(exist_ok=True)
    for loader in rootfs.glob("usr/lib/*/ld-linux*"):
        (rootfs / "usr/lib64" / loader.name).symlink_to(f"../lib/{loader.parent.name}/{loader.name}")
    (rootfs / "etc").mkdir()
    (rootfs / "etc/motd").write_text("of the root file system\n")
    sandbox = open_sandbox(SandboxSpec(rootfs=rootfs, as_root=True), backend)
    try:
        script = "read line < /etc/motd; echo $line; echo x > /etc/motd; echo y > /new && read y < /new && echo $y"
        seen = sandbox.exec(["/usr/bin/dash", "-c", script])
        assert seen.out == "of the root file system\ny\n", seen
        assert "Read-only" in seen.err
        assert sandbox.exec(["bash", "-c", "true"]).exit_code == 127, "nothing of the machine's own /usr"
        first = sandbox.first_hash  # type: ignore[attr-defined]
        sandbox.reset()
        assert sandbox.snapshot() == first
    finally:
        sandbox.close()
    assert (rootfs / "etc/motd").read_text() == "of the root file system\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root brings a machine's packages up to date")
def test_a_machine_that_is_brought_up_to_date_meanwhile_does_not_end_its_sandboxes(backend: str) -> None:
    cache = Path("/etc/ld.so.cache")
    with closing(open_sandbox(SandboxSpec(run="tests"), backend)) as box:
        newer = shutil.copy2(cache, f"{cache}~{os.getpid()}")  # as ldconfig does after every package
        os.replace(newer, cache)
        for _ in range(2):
            box.reset()
            assert box.exec(["sh", "-c", "test -r /etc/ld.so.cache && ! echo > /etc/ld.so.cache; ls / > /dev/null"]).ok


def test_files_are_written_and_read_whatever_their_bytes(box: Sandbox) -> None:
    data = bytes(range(256)) * 9000
    box.write("deep/er/file", data)
    assert box.read("deep/er/file") == data
    box.write("deep/er/file", b"")
    assert box.read("deep/er/file") == b""
    for path in ("absent", "/etc/shadow", "deep", "a\0b"):
        with pytest.raises(SandboxFileError):
            box.read(path)
    with pytest.raises(SandboxFileError, match="Read-only"):
        box.write("/usr/x", b"x")
    with pytest.raises(SandboxFileError, match=r"No space|too large"):
        box.write("huge", b"x" * (9 * 2**20))


def test_the_selfcheck_finds_nothing_broken(backend: str) -> None:
    assert [finding for finding in selfcheck.check(backend) if not finding.held] == []


def test_without_bubblewrap_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="apt-get install -y bubblewrap"):
        open_sandbox(SandboxSpec())


def test_an_unknown_backend_lists_the_known() -> None:
    with pytest.raises(ValueError, match="expected one of bwrap, docker"):
        open_sandbox(SandboxSpec(), "firejail")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try it")
def test_it_works_as_a_user_who_is_not_root() -> None:
    code = (
        "import os, sys\nfrom lemur_ray.sandbox.sandbox import *\ns = open_sandbox(SandboxSpec())\n"
        "r = s.exec(['bash', '-c', 'id -u; echo x > f; cat f; :(){ :|:& };:'])\n"
        "s.reset(); print(r.out.split(), s.capabilities.own_uid, s.snapshot() == s.first_hash); s.close()"
    )
    python = Path("/usr/bin/python3")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        compiled = shutil.ignore_patterns("__pycache__")  # others may be writing it
        for room in ("sandbox", "host"):
            shutil.copytree(ROOT / "lemur_ray" / room, Path(folder, "lemur_ray", room), ignore=compiled)
        shutil.copy(ROOT / "lemur_ray/__init__.py", Path(folder, "lemur_ray"))
        done = subprocess.run(
            [str(python if python.exists() else Path(sys.executable).resolve()), "-c", code],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": folder, "HOME": folder},
            user=65533,
            group=65533,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.strip() == "['1000', 'x'] False True"


def test_a_process_waited_as_long_as_the_one_of_its_threads_that_waited_longest(tmp_path: Path) -> None:
    for thread, ns in ((7, 5_000_000), (8, 9_000_000_000), (9, 2_000_000_000)):
        (folder := tmp_path / f"7/task/{thread}").mkdir(parents=True)
        (folder / "schedstat").write_text(f"1000 {ns} 12\n")
    assert processes.waited_s(str(tmp_path), 7) == 9.0
    assert processes.waited_s(str(tmp_path), 6) == 0.0, "a process that is gone"


def test_a_step_is_called_starved_only_if_it_waited_and_did_not_spin() -> None:
    assert starved({"waited_s": 9.0, "crowd_cpu_s": 0.1}, 10.0)
    assert not starved({"waited_s": 9.0, "crowd_cpu_s": 9.0}, 10.0), "64 spinning processes starve each other"
    assert not starved({"waited_s": 9.0, "cpu_s": 8.0, "crowd_cpu_s": 0.1}, 10.0), "nor do those that are dead by now"
    assert not starved({"waited_s": 0.1, "crowd_cpu_s": 0.0}, 10.0), "sleeping is not starving"
    kept = {wire.STDOUT: HeadTail(100), wire.STDERR: HeadTail(100)}
    starving = step_result({"reason": "time", "waited_s": 9.0, "wall_s": 10.0}, kept, Limits(), "", None)
    assert (starving.timed_out, starving.blame) == (True, "infra")


def test_an_interpreter_that_lies_on_the_wire_is_refused() -> None:
    frames = wire.Frames()
    frames.feed(b"\xff\xff\xff\xff\x00")
    with pytest.raises(wire.WireError, match="expected at most"):
        frames.next()


@pytest.mark.parametrize(
    "tree",
    [
        "seq -f /tmp/%.0f 2000 | xargs truncate -s 60M",
        "mkdir -p /tmp/$(printf %0250d 1)/$(printf %0250d 2)/$(printf %0250d 3); cd /tmp/*/*/*; "
        "seq -f %0250.0f 3000 | xargs touch",
    ],
)
def test_a_tree_that_would_take_for_ever_to_list_is_an_error_of_its_own(backend: str, tree: str) -> None:
    with open_sandbox(SandboxSpec(limits=Limits(time_s=60.0)), backend) as sandbox:  # type: ignore[attr-defined]
        assert sandbox.exec(["bash", "-c", tree]).ok
        started = time.monotonic()
        with pytest.raises(SandboxFileError, match=r"a sandbox may hold|a listing of more than") as raised:
            sandbox.listing()
        assert raised.value.blame == "policy"
        assert time.monotonic() - started < 30.0
        sandbox.reset()
        assert sandbox.exec(["true"]).ok
