"""Just enough of HTTP/2 (RFC 9113) to ask a gateway for something, over and over."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4
# HPACK's static table has ":status: 200" at 8.
STATUS_200 = 0x88


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# A window that no training run fills.
HELLO = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))


def get(stream, fields):
    """A request without a body; `stream` is odd and never used before on its connection."""
    # Literals that nobody has to remember.
    block = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in fields)
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, block)


class Answer:
    """What has arrived of an answer; one at a time on a connection."""

    def __init__(self):
        self.bytes = bytearray()
        self.status = b"???"

    def add(self, data):
        """Takes what has arrived; returns a status line once the answer has ended."""
        self.bytes += data
        while len(self.bytes) >= 9:
            end = 9 + int.from_bytes(self.bytes[:3], "big")
            if len(self.bytes) < end:
                return None
            kind, flags = self.bytes[3], self.bytes[4]
            if kind == HEADERS:
                self.status = b"200" if self.bytes[9] == STATUS_200 else b"???"
            del self.bytes[:end]
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return b"HTTP/2.0 " + self.status
        return None
