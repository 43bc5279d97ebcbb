"""Two hosts on this machine: network namespaces, which vanish with their last process."""

import shutil
import subprocess

import pytest

TWO_HOSTS = """
set -e
hostname here
unshare --net --uts sh -c 'hostname there; echo $$ > there.part; mv there.part there; exec sleep 300' > /dev/null 2>&1 &
trap "kill $!" EXIT
for i in $(seq 300); do test -s there || sleep 0.1; done
there="nsenter --target $(cat there) --net --uts"
ip link add veth0 type veth peer name veth1 netns $(cat there)
ip address add 10.77.0.1/24 dev veth0
ip link set veth0 up
ip link set lo up
$there ip address add 10.77.0.2/24 dev veth1
$there ip link set veth1 up
$there ip link set lo up
printf '#!/bin/sh\\nshift\\nexec %s sh -c "$*"\\n' "$there" > agent
chmod +x agent
timeout 150 "$@"
"""
"""Runs its arguments on a host called here, from which ./agent reaches another, called there."""

NAMESPACES = ["unshare", "--map-root-user", "--net", "--uts", "sh", "-c", TWO_HOSTS, "two-hosts"]
TOGETHER = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_osc": "^ucx",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
APART = {"UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1", "PRTE_MCA_plm_ssh_agent": "./agent"}


def need_namespaces(folder):
    missing = [tool for tool in ("unshare", "nsenter", "ip", "timeout") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Open MPI needs two network namespaces to use TCP on one machine; no {', '.join(missing)} here")
    done = subprocess.run([*NAMESPACES, "true"], cwd=folder, capture_output=True, text=True, timeout=100)
    (folder / "there").unlink(missing_ok=True)
    if done.returncode != 0:
        pytest.skip(f"Open MPI needs two network namespaces to use TCP on one machine: {done.stderr.strip()}")
