"""Carries frames between two interfaces, each way late and with losses, as tc's netem does where the kernel has it.

    relay.py PORT PORT DELAY_MS LOSS_PERCENT

It prints "ready", and ends when it is killed. Frames keep their offloads (PACKET_VNET_HDR), so checksums stay right.
"""

import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

_SOL_PACKET, _ADD_MEMBERSHIP, _VNET_HDR, _IGNORE_OUTGOING = 263, 1, 15, 23
_PROMISCUOUS, _ETH_P_ALL = 1, 3
_SNDBUFFORCE, _RCVBUFFORCE = 32, 33
_BUFFER_NBYTES, _FRAME_NBYTES = 64 << 20, 1 << 17
_AT_ONCE = 64
"""Frames that are read before those that are due are sent."""


def opened(name):
    """A socket for all frames that arrive at an interface."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    found.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    found.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    membership = struct.pack("iHH8x", socket.if_nametoindex(name), _PROMISCUOUS, 0)
    found.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, membership)
    for option in (_SNDBUFFORCE, _RCVBUFFORCE):
        found.setsockopt(socket.SOL_SOCKET, option, _BUFFER_NBYTES)
    found.bind((name, _ETH_P_ALL))
    found.setblocking(False)
    return found


def carry(source, sink, delay_s, loss):
    """Carry frames from one socket to the other. Endless."""
    waiting = deque()
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            try:
                sink.send(waiting.popleft()[1])
            except OSError:
                continue  # the queue of the interface is full: the frame is lost, as on a wire
        select.select([source], [], [], max(0.0, waiting[0][0] - now) if waiting else None)
        try:
            for _ in range(_AT_ONCE):
                frame = source.recv(_FRAME_NBYTES)
                if random.random() >= loss:
                    waiting.append((time.monotonic() + delay_s, frame))
        except BlockingIOError:
            continue


def main():
    here, there = opened(sys.argv[1]), opened(sys.argv[2])
    delay_s, loss = float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 100
    ends = (here, there) if os.fork() else (there, here)
    if ends[0] is here:
        print("ready", flush=True)
    carry(*ends, delay_s, loss)


if __name__ == "__main__":
    main()
