"""`malt doctor --hosts`: each host that cannot be used in a line, and the network between the others."""

import json
import sys

from host_network import ROOT


def test_the_network_between_hosts_is_measured(hosts):
    words = [sys.executable, "-m", "malt", "doctor", "--hosts", "a,b,nowhere", "--json"]
    done = hosts.run("a", *words, folder=ROOT)
    assert done.returncode == 1, done
    found = json.loads(done.stdout)
    failed = {one["what"]: one["value"] for one in found["findings"] if one["level"] == "fail"}
    assert list(failed) == ["nowhere"] and failed["nowhere"].startswith("its name is not known here: correct it")
    measured = found["pairs"]["a, b"]["examination"]
    assert 0 < measured["latency_us"] < 1e5 and measured["bandwidth_gb_s"] > 0 and measured["landed_ms"] > 0
    assert measured["stream_gb_s"] > 0.01
    hosts.until_clean()
