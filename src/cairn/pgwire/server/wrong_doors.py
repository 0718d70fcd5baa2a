"""HTTP that came to a port which does not speak it: who asked is told so, in HTTP."""

from __future__ import annotations

_METHODS = (
    b"GET ",
    b"HEAD",
    b"POST",
    b"PUT ",
    b"DELE",
    b"OPTI",
    b"CONN",
    b"PATC",
    b"TRAC",
    b"PRI ",
)


def is_http_request(start: bytes) -> bool:
    return start[:4] in _METHODS


def http_refusal(why: str) -> bytes:
    body = f"{why}\n".encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
