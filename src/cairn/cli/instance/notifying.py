"""What systemd is told (`Type=notify`): when the instance is Online, and what it is doing.

One datagram to the socket that `NOTIFY_SOCKET` names; without it nothing is sent. Standard library
only, and nothing here may hurt the instance: a message that cannot be delivered is dropped.
"""

from __future__ import annotations

import contextlib
import os
import socket

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(*lines: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # an abstract socket, which has no file
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(lines).encode(), address)


def status(text: str) -> str:
    """The line that `systemctl status` shows."""
    return "STATUS=" + text.replace("\n", " ")
