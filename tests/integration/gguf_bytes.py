"""GGUF files as data that a test can change: read a file, change its contents, and write it again.

The writer checks nothing, so that it can write what no converter would. After build(), marks tells
where each field begins: "magic", "version", "n_tensors", "n_kv", "infos", "padding", "data", "end";
for a key K "K.length", "K.key", "K.type", "K.value"; for a tensor T "T.length", "T.name",
"T.n_dims", "T.dims", "T.type", "T.offset", "T.data".
"""

import copy
import math
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
           I64: "q", F64: "d"}

# id -> (elements per block, bytes per block), as in the GGUF specification.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176),
          14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98),
          19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1),
          25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54),
          35: (256, 66), 39: (32, 17), 40: (64, 36)}


def string(text):
    """Returns the bytes of a string value."""
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + SCALARS[kind], value)


def array(kind, values, count=None):
    """Returns the bytes of an array value. `count` is the number of elements that its header states."""
    claimed = len(values) if count is None else count
    return struct.pack("<IQ", kind, claimed) + b"".join(scalar(kind, value) for value in values)


def data_bytes(kind, dims):
    elements, size = BLOCKS[kind]
    return math.prod(dims) // elements * size


class Tensor:
    """One tensor. `offset` is the offset that its info states. None: the true offset."""

    def __init__(self, name, kind, dims, data=None, offset=None):
        self.name, self.kind, self.dims, self.offset = name, kind, list(dims), offset
        self.data = bytes(data_bytes(kind, dims)) if data is None else data


class Checkpoint:
    """A whole file: entries by key (type and bytes of the value), tensors in order."""

    def __init__(self):
        self.version = 3
        self.alignment = 32
        self.entries = {}
        self.tensors = []
        self.marks = {}

    def copy(self):
        return copy.deepcopy(self)

    def set(self, key, kind, value):
        self.entries[key] = (kind, scalar(kind, value))
        return self

    def set_array(self, key, kind, values, count=None):
        self.entries[key] = (ARRAY, array(kind, values, count))
        return self

    def strings(self, key):
        """Returns an array of strings, as bytes."""
        raw = self.entries[key][1]
        count, at = struct.unpack_from("<Q", raw, 4)[0], 12
        values = []
        for _ in range(count):
            size = struct.unpack_from("<Q", raw, at)[0]
            values.append(raw[at + 8:at + 8 + size])
            at += 8 + size
        return values

    def remove(self, key):
        del self.entries[key]
        return self

    def tensor(self, name):
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def take(self, name):
        """Removes the tensor."""
        tensor = self.tensor(name)
        self.tensors.remove(tensor)
        return tensor

    def build(self):
        out = bytearray()
        marks = self.marks = {}

        def put(mark, raw):
            marks[mark] = len(out)
            out.extend(raw)

        put("magic", b"GGUF")
        put("version", struct.pack("<I", self.version))
        put("n_tensors", struct.pack("<Q", len(self.tensors)))
        put("n_kv", struct.pack("<Q", len(self.entries)))
        for key, (kind, value) in self.entries.items():
            raw = key if isinstance(key, bytes) else key.encode()
            put(f"{key}.length", struct.pack("<Q", len(raw)))
            put(f"{key}.key", raw)
            put(f"{key}.type", struct.pack("<I", kind))
            put(f"{key}.value", value)
        marks["infos"] = len(out)
        offset = 0
        for tensor in self.tensors:
            name = tensor.name
            raw = name if isinstance(name, bytes) else name.encode()
            put(f"{name}.length", struct.pack("<Q", len(raw)))
            put(f"{name}.name", raw)
            put(f"{name}.n_dims", struct.pack("<I", len(tensor.dims)))
            put(f"{name}.dims", b"".join(struct.pack("<Q", size) for size in tensor.dims))
            put(f"{name}.type", struct.pack("<I", tensor.kind))
            put(f"{name}.offset",
                struct.pack("<Q", offset if tensor.offset is None else tensor.offset))
            offset += self._padded(len(tensor.data))
        put("padding", bytes(self._padded(len(out)) - len(out)))
        marks["data"] = len(out)
        for tensor in self.tensors:
            put(f"{tensor.name}.data", tensor.data)
            out.extend(bytes(self._padded(len(tensor.data)) - len(tensor.data)))
        marks["end"] = len(out)
        return bytes(out)

    def patched(self, mark, raw, shift=0):
        """Returns the bytes of the file, with `raw` written at the mark."""
        content = bytearray(self.build())
        at = self.marks[mark] + shift
        content[at:at + len(raw)] = raw
        return bytes(content)

    def _padded(self, size):
        return (size + self.alignment - 1) // self.alignment * self.alignment


class _Reader:

    def __init__(self, content):
        self.content, self.at = content, 0

    def take(self, size):
        self.at += size
        return self.content[self.at - size:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self):
        return self.take(self.number("Q")).decode()

    def value(self, kind):
        """Returns the bytes of a value."""
        begin = self.at
        if kind == STRING:
            self.take(self.number("Q"))
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.value(element)
        else:
            self.take(struct.calcsize(SCALARS[kind]))
        return self.content[begin:self.at]


def read(content):
    """Returns the Checkpoint of a valid file with the default alignment."""
    reader = _Reader(content)
    checkpoint = Checkpoint()
    assert reader.take(4) == b"GGUF"
    checkpoint.version = reader.number("I")
    tensors, entries = reader.number("Q"), reader.number("Q")
    for _ in range(entries):
        key, kind = reader.text(), reader.number("I")
        checkpoint.entries[key] = (kind, reader.value(kind))
    infos = []
    for _ in range(tensors):
        name = reader.text()
        dims = [reader.number("Q") for _ in range(reader.number("I"))]
        infos.append((name, dims, reader.number("I"), reader.number("Q")))
    start = checkpoint._padded(reader.at)
    for name, dims, kind, offset in infos:
        begin = start + offset
        data = content[begin:begin + data_bytes(kind, dims)]
        checkpoint.tensors.append(Tensor(name, kind, dims, data))
    return checkpoint
