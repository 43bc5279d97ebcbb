"""The hosts of these tests: a, b and c."""

import pytest
from host_network import HostNetwork, missing


@pytest.fixture(scope="session")
def network():
    if why := missing():
        pytest.skip(why)
    network = HostNetwork("abc")
    yield network
    network.close()


@pytest.fixture
def hosts(network):
    """The hosts, on which nothing of another test is left."""
    network.end_jobs()
    return network
