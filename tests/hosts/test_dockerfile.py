"""examples/docker/Dockerfile, as far as it can be tried without docker: its files, its options, its ssh."""

import json
import os
import re
import shutil
import socket
import subprocess

import pytest
from failing_jobs import under_one_mpi
from processes import wait_for
from programs import ROOT

pytestmark = [pytest.mark.serial, under_one_mpi]
SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ.get("PATH", ""))
TEXT = (ROOT / "examples/docker/Dockerfile").read_text()
STEPS = [tuple(line.split(" ", 1)) for line in re.sub(r"\\\n\s*", "", TEXT).splitlines() if line and line[0] != "#"]


def commands(word):
    return [rest for first, rest in STEPS if first == word]


def test_what_it_names_is_there():
    """Sources of COPY are in the checkout; the extras are those of pyproject.toml; the words are docker's."""
    assert {first for first, _ in STEPS} == {"FROM", "RUN", "COPY", "USER", "WORKDIR", "EXPOSE", "CMD"}
    assert STEPS[0][0] == "FROM" and STEPS[-1][0] == "CMD"
    copied = [name for one in commands("COPY") for name in one.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    project = (ROOT / "pyproject.toml").read_text()
    packages = re.search(r"packages.find\]\ninclude = \[(.*)\]", project)[1]
    assert set(re.findall(r'"(\w+)"', packages)) <= set(copied)
    [extras] = re.findall(r"/opt/malt\[(.*?)\]", TEXT)
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras.split(","))
    assert json.loads(commands("CMD")[0])[0] == "/usr/sbin/sshd"
    guide = (ROOT / "docs/guide/clusters.md").read_text()
    assert "docker build -t malt -f examples/docker/Dockerfile ." in guide and "docker build -t malt -f" in TEXT


@pytest.mark.parametrize("command", commands("RUN"), ids=lambda one: one[:20])
def test_its_lines_are_lines_of_a_shell(command):
    subprocess.run(["sh", "-n", "-c", command], check=True)


@pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="needs root and sshd")
def test_its_users_log_in_without_a_question(tmp_path):
    """The line that makes the keys, run for another home and another key of the host; then a login by that alone."""
    [line] = [one for one in commands("RUN") if "authorized_keys" in one]
    key = tmp_path / "ssh_host_ed25519_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    os.chmod(tmp_path, 0o755)
    home = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["sh", "-c", line.replace("/etc/ssh/", f"{tmp_path}/")], check=True, env=home)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    folder = tmp_path / ".ssh"
    os.makedirs("/run/sshd", exist_ok=True)
    daemon = [SSHD, "-D", "-e", "-f", "/dev/null", "-p", port, "-h", key, "-o", "ListenAddress=127.0.0.1",
              "-o", f"AuthorizedKeysFile={folder}/authorized_keys", "-o", "StrictModes=no"]  # fmt: skip
    login = ["ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={folder}/known_hosts",
             "-o", "GlobalKnownHostsFile=/dev/null", "-i", folder / "id_ed25519", "-p", port]  # fmt: skip
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as running:
        try:
            wait_for(lambda: subprocess.run([*login, "127.0.0.1", "true"], capture_output=True).returncode == 0)
            for name in ("127.0.0.1", "localhost"):
                done = subprocess.run([*login, name, "echo", "in"], capture_output=True, text=True, timeout=30)
                assert (done.stdout, done.stderr) == ("in\n", "")
        finally:
            running.terminate()
