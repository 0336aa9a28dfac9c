"""Rows 10 to 18 and 40: network, sockets, secrets, other episodes, links, the system, signals, privileges, the base."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lemur_ray.sandbox.sandbox import Sandbox, SandboxFileError, SandboxSpec, open_sandbox
from tests.attacks.arena import bash, python

ROOT = Path(__file__).resolve().parents[2]


def test_row_10_no_packet_leaves_not_even_to_the_hosts_own_loopback(
    box: Sandbox, guaranteed: Callable[[str], None]
) -> None:
    guaranteed("network_none")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        listener.setblocking(False)
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        tcp_port, udp_port = listener.getsockname()[1], udp.getsockname()[1]
        result = python(
            box,
            f"import socket\n"
            f"for host, port in (('127.0.0.1', {tcp_port}), ('169.254.169.254', 80), ('10.0.0.1', 6379), "
            f"('8.8.8.8', 53)):\n"
            f"  try: socket.create_connection((host, port), 1); print('OPEN', host)\n"
            f"  except OSError as e: print(type(e).__name__, e.errno)\n"
            f"try: socket.create_connection(('2001:4860:4860::8888', 53), 1); print('OPEN')\n"
            f"except OSError as e: print(type(e).__name__)\n"
            f"try: socket.getaddrinfo('example.com', 80); print('OPEN')\n"
            f"except OSError as e: print(type(e).__name__)\n"
            f"s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"try: s.sendto(b'x', ('127.0.0.1', {udp_port}))\n"
            f"except OSError: pass\n"
            f"for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW), (40, 1)):\n"
            f"  try: socket.socket(family, kind, 1); print('OPEN', family)\n"
            f"  except OSError as e: print(type(e).__name__)\n"
            f"print('done')",
        )
        assert result.out.endswith("done\n"), result
        assert "OPEN" not in result.out
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(10)


def test_row_11_no_socket_of_the_host_is_there(box: Sandbox) -> None:
    name = f"\0lemur-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        listener.setblocking(False)
        result = python(
            box,
            f"import os, socket\n"
            f"for name in ({name!r}, '/var/run/docker.sock', '/run/docker.sock', '/run/dbus/system_bus_socket'):\n"
            f"  try: socket.socket(socket.AF_UNIX).connect(name); print('OPEN', name)\n"
            f"  except OSError as e: print(type(e).__name__)\n"
            f"print(sorted(k for k in os.environ if 'SOCK' in k or 'DBUS' in k or 'RAY' in k))\n"
            f"print(os.path.exists('/tmp/ray'))",
        )
        assert "OPEN" not in result.out
        assert result.out.endswith("[]\nFalse\n")
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_row_12_a_canary_of_the_harness_is_found_nowhere(backend: str, tmp_path: Path) -> None:
    canary = "canary" + secrets.token_hex(16)
    (tmp_path / "gold.txt").write_text(canary)
    (tmp_path / "task").mkdir()
    (tmp_path / "task/question.txt").write_text("What is the question?")
    command = [
        sys.executable,
        str(Path(__file__).with_name("harness_with_a_canary.py")),
        backend,
        str(tmp_path),
        canary,
    ]
    environment = {**os.environ, "GOLD": canary, "OPENAI_API_KEY": canary, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert "What is the question?" in found["seen"], "the search itself works"
    assert found["seen"].count(canary) == 0
    assert "gold.txt" not in found["seen"]
    assert str(tmp_path) not in found["seen"], "not even the folder's name"
    assert found["first"].strip() == "0", "/proc/1/environ"
    assert set(found["fds"].split()) <= {"0", "1", "2", "10", "255"}, "10 and 255 are the shell's own"


def test_row_13_no_other_episode_and_no_folder_of_the_host_is_reachable(
    box: Sandbox, neighbour: Sandbox, tmp_path: Path
) -> None:
    neighbour.write("mine-alone", b"theirs")
    (tmp_path / "tests.py").write_text("secret")
    guesses = [
        str(tmp_path / "tests.py"),
        "../../../work" + "/mine-alone",
        "mine-alone",
        str(ROOT),
        "/base",
        "/generation",
    ]
    for guess in [*guesses, f"/proc/1/root{tmp_path}/tests.py", "/oldroot", "/newroot", "/inside"]:
        seen = bash(box, f"cat '{guess}' || ls '{guess}'")
        assert seen.exit_code != 0, guess
        assert "secret" not in seen.out
    assert "mine-alone" not in bash(box, "find / -name mine-alone -o -name tests.py -path '*pytest*' 2>/dev/null").out


def test_row_14_a_link_never_leads_the_harness_to_a_file_of_the_host(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "host.txt").write_text("of the host")
    host_passwd = Path("/etc/passwd").read_bytes()
    bash(
        box,
        f"ln -s {tmp_path}/host.txt a; ln -s /etc/passwd b; ln -s ../../../../../../etc/shadow c; ln -s "
        f"/proc/1/root/etc/passwd d",
    )
    bash(box, f"ln /etc/passwd hard; ln -s {tmp_path} folder; mkdir x; ln -s / x/top")
    for path in ("a", "c", "d", "folder/host.txt", f"x/top{tmp_path}/host.txt"):
        with pytest.raises(SandboxFileError):
            box.read(path)
    assert box.read("b") != host_passwd, "a link to a path means that path inside"
    with pytest.raises(SandboxFileError, match="not a regular file"):
        box.read("/work")


def test_row_14_writing_replaces_a_link_and_does_not_follow_it(box: Sandbox) -> None:
    bash(box, "ln -s /tmp/target out; echo kept > /tmp/target")
    box.write("out", b"new")
    assert box.read("/tmp/target") == b"kept\n"
    assert box.read("out") == b"new"


def test_row_14_a_pipe_or_device_is_refused_at_once(box: Sandbox) -> None:
    bash(box, "mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"")
    for path in ("pipe", "/dev/zero", "/dev/null", "socket"):
        with pytest.raises(SandboxFileError):
            box.read(path)
    assert "refused" not in bash(box, "mknod dev c 1 5 && echo refused").out


def test_row_14_a_parent_that_is_swapped_all_the_time_shows_nothing_of_the_host(box: Sandbox) -> None:
    swap = "mkdir -p real; echo inside > real/passwd; while :; do rm -f p; ln -s real p; rm -f p; ln -s /etc p; done"
    box.exec(["bash", "-c", f"({swap}) & sleep 0.1"], keep_background=True)
    host = Path("/etc/passwd").read_bytes()
    own = box.read("/etc/passwd")
    for _ in range(20):
        try:
            assert box.read("p/passwd") in (b"inside\n", own)
        except SandboxFileError:
            continue
    assert own != host


def test_row_14_reading_is_bounded(box: Sandbox) -> None:
    bash(box, "truncate -s 20M big; head -c 2000 /dev/zero > small")
    with pytest.raises(SandboxFileError, match="expected at most 1000"):
        box.read("small", 1000)
    assert len(box.read("small")) == 2000


def test_row_15_the_system_cannot_be_written_and_what_can_is_gone_after_a_reset(box: Sandbox) -> None:
    attacks = [
        "echo x > /usr/bin/python3",
        "touch /usr/lib/x",
        "rm -f /usr/bin/env",
        "chmod 777 /usr/bin",
        "mv /usr/bin/git /tmp",
        "echo 'import os' > $(python3 -c 'import site; print(site.getsitepackages()[0])')/sitecustomize.py",
    ]
    for attack in attacks:
        done = bash(box, attack)
        assert done.exit_code != 0, attack
        assert any(said in done.err for said in ("Read-only", "denied", "not permitted", "No such file")), done.err
    bash(
        box,
        "echo 'exit 7' > ~/.bashrc; echo 'exit 7' > ~/.profile; echo 'raise SystemExit(9)' > sitecustomize.py",
    )
    bash(box, "chmod 755 /etc / && echo evil > /etc/evil; echo evil > /evil")
    clean = box.exec(["python3", "-I", "-c", "print('well')"], cwd="/work", env={"PYTHONPATH": "/work"})
    assert clean.out == "well\n", "a grader's isolated interpreter reads nothing of it"
    box.reset()
    assert bash(box, "ls -A ~ /work; cat /etc/evil /evil 2>/dev/null").out.split() == ["/home/user:", "/work:"]


def test_row_16_signals_reach_only_the_own_namespace_and_never_its_first_process(box: Sandbox) -> None:
    for attack in (
        "kill -9 -1",
        "for i in $(seq 1 300); do kill -9 $i; done",
        "python3 -c 'import os; os.killpg(0, 9)'",
        "kill -STOP $PPID; kill -9 $PPID; for s in 9 TERM SEGV INT CHLD HUP USR1 ALRM; do kill -$s 1; done",
        'reboot -f; shutdown -h now; echo b > /proc/sysrq-trigger; python3 -c "import ctypes; '
        'ctypes.CDLL(None).reboot(0x1234567)"',
    ):
        assert bash(box, attack).alive, attack
        assert bash(box, "echo on").out == "on\n", attack


CALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    print(name, libc.syscall(*args), ctypes.get_errno())
child = os.fork()
if child == 0:
    import time; time.sleep(30); os._exit(0)
numbers = NUMBERS
call('ptrace', numbers['ptrace'], 16, child, 0, 0)
call('process_vm_readv', numbers['process_vm_readv'], child, 0, 0, 0, 0, 0)
for name in ('perf_event_open', 'bpf', 'userfaultfd', 'keyctl', 'add_key', 'io_uring_setup', 'unshare', 'mount'):
    call(name, numbers[name], 0x10000000, 0, 0, 0, 0)
try: open(f'/proc/1/mem', 'rb'); print('OPEN mem')
except OSError as e: print('mem', e.errno)
try: os.listdir('/proc/1/fd'); print('OPEN fd')
except OSError as e: print('fd', e.errno)
status = open('/proc/self/status').read()
names = ('CapEff', 'CapPrm', 'CapBnd', 'CapAmb', 'NoNewPrivs')
print([line.split()[1] for line in status.split('\\n') if line.startswith(names)])
os.kill(child, 9)
"""


def test_row_17_other_processes_and_kernel_machinery_are_out_of_reach(
    box: Sandbox, guaranteed: Callable[[str], None]
) -> None:
    from lemur_ray.sandbox.inside import syscall_filter

    guaranteed("seccomp")
    column = syscall_filter.ARCHITECTURES[os.uname().machine][1]
    numbers = {name: pair[column] for name, pair in syscall_filter.REFUSED.items()}
    lines = python(box, CALLS.replace("NUMBERS", repr(numbers))).out.splitlines()
    assert len(lines) == 13, lines
    for line in lines[:10]:
        assert line.endswith(" -1 1"), f"{line}: expected EPERM"
    assert lines[10] in ("mem 13", "mem 1")
    assert lines[11] in ("fd 13", "fd 1")
    capabilities = json.loads(lines[12].replace("'", '"'))
    assert [int(value, 16) for value in capabilities[:1]] == [0]
    assert capabilities[-1] == "0000000000000000" or "1" in capabilities, "no_new_privs"


@pytest.mark.parametrize(
    "attack",
    [
        "sudo -n id -u",
        "su -c 'id -u'",
        "unshare -Ur id -u",
        "unshare -m true",
        "unshare -n true",
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "umount /usr",
        "umount -l /proc",
        "chroot / true",
        "nsenter -t 1 -m true",
        "pivot_root . .",
        "echo 1 > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/drop_caches",
        "mkdir /sys/fs/cgroup/x",
        "swapoff -a && swapon x",
        "hostname other",
        "modprobe dummy || insmod x",
    ],
)
def test_row_18_no_way_to_more_rights(box: Sandbox, attack: str) -> None:
    result = bash(box, attack)
    assert result.exit_code != 0, result
    assert result.out != "0\n"


def test_row_18_a_set_uid_program_gains_nothing_and_chroot_is_not_left(box: Sandbox) -> None:
    own, through = bash(box, "id -u; cp /usr/bin/id id && chmod 4755 id && ./id -u").out.split()
    assert own == through != "0"
    escape = (
        "import os\ntry:\n  os.mkdir('j'); os.chroot('j')\nexcept OSError as e: print(e.errno)\n"
        "fd = os.open('/', os.O_RDONLY)\nfor _ in range(50): "
        "os.chdir('..')\nprint(sorted(os.listdir('.')) == sorted(os.listdir('/')))"
    )
    assert python(box, escape).out == "1\nTrue\n"


def test_row_40_the_base_is_read_only_and_the_same_for_the_next_episode(box: Sandbox, neighbour: Sandbox) -> None:
    probe = "stat -c '%s %Y %a' /usr/bin/env /usr/bin/python3 /usr/lib; md5sum /usr/bin/env"
    before = bash(box, probe).out
    bash(box, "echo x >> /usr/bin/env; touch /usr/bin/env; chmod 777 /usr/bin/env; mount -o remount,rw /usr")
    assert bash(box, probe).out == before
    assert neighbour.exec(["bash", "-c", probe]).out == before
    assert before


def test_row_10_a_network_is_there_only_where_it_was_asked_for(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        accepted: list[socket.socket] = []
        waiter = threading.Thread(target=lambda: accepted.append(listener.accept()[0]), daemon=True)
        waiter.start()
        sandbox = open_sandbox(SandboxSpec(network=True, run="tests"), backend)
        try:
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')"
            assert sandbox.exec(["python3", "-c", code]).out == "reached\n"
        finally:
            sandbox.close()
        waiter.join(60)
        assert accepted
        accepted[0].close()


def test_row_12_no_path_of_the_host_is_in_the_list_of_mounts(backend: str, tmp_path: Path) -> None:
    """A folder of the host is shown through a layer of ours, so not even its root is told (Linux 5.11 or newer)."""
    package = tmp_path / "a-folder-of-the-host" / "package"
    package.mkdir(parents=True)
    (package / "shown.py").write_text("x = 1\n")
    for parent in package.parents[:3]:
        parent.chmod(0o755)
    spec = SandboxSpec(mounts={"/opt/packages": package}, run="tests")
    with open_sandbox(spec, backend) as box:  # type: ignore[attr-defined]
        said = box.exec(["bash", "-c", "cat /proc/self/mountinfo /proc/mounts /proc/*/mountinfo; cat /opt/packages/*"])
        assert "x = 1" in said.out
        assert "a-folder-of-the-host" not in said.out
        assert box.exec(["touch", "/opt/packages/y"]).exit_code, "and nothing can be written there"
