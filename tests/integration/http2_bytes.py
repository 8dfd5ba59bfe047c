"""Functions that build HTTP/2 frames (RFC 9113), for clients that do what no library does."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_CONCURRENT_STREAMS = 3  # the number of this setting


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hello():
    """Returns the first bytes that a client sends."""
    return PREFACE + frame(SETTINGS)


def header_block(fields):
    """Returns HPACK literals without indexing (RFC 7541, 6.2.2). Names and values must be shorter than
    16 KiB."""
    def text(value):
        raw = value.encode()
        if len(raw) < 127:
            return bytes([len(raw)]) + raw
        rest, size = len(raw) - 127, b"\x7f"
        while rest >= 128:
            size += bytes([rest % 128 + 128])
            rest //= 128
        return size + bytes([rest]) + raw
    return b"".join(b"\x00" + text(name) + text(value) for name, value in fields)


def call_headers(stream, path, flags=END_HEADERS, more=()):
    """Returns the HEADERS frame that begins a gRPC call."""
    return frame(HEADERS, flags, stream, header_block([
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "h"),
        ("te", "trailers"), ("content-type", "application/grpc"), *more]))


def reset(stream, code=8):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def read_settings(connection):
    """Reads the first frame of the server, which contains its settings (RFC 9113, 3.4). Returns them as
    {number: value}."""
    def read(count):
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            assert more, f"the connection ended after {data}"
            data += more
        return data
    length, kind = struct.unpack(">I", b"\0" + read(3))[0], read(6)[0]
    assert kind == SETTINGS, f"a frame of kind {kind} came first"
    return dict(struct.iter_unpack(">HI", read(length)))
