"""Writes dequantize_vectors.txt: random blocks of each GGUF type and their values as float32.

Usage: python3 make_dequantize_vectors.py > dequantize_vectors.txt

Needs numpy and the gguf package (0.19), whose dequantisation is the reference. Integer types and
F64 are converted by numpy. Each block has a line: the type, the block in hexadecimal, and the bits
of its values as float32, eight digits each.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

BLOCKS = 4
FLOAT_ELEMENTS = 16  # types whose block is one element

# Where a block holds f16 scales.
HALVES = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.MXFP4: [],
    Type.NVFP4: [],
}
NUMBERS = {
    Type.I8: np.int8,
    Type.I16: np.int16,
    Type.I32: np.int32,
    Type.I64: np.int64,
    Type.F64: np.float64,
}


def finite_half(random):
    """Returns any finite f16, including subnormals and negative numbers."""
    while True:
        bits = np.uint16(random.integers(0, 1 << 16))
        if np.isfinite(bits.view(np.float16)):
            return bits


def random_block(kind, random):
    block = random.integers(0, 256, GGML_QUANT_SIZES[kind][1], dtype=np.uint8)
    for offset in HALVES[kind]:
        block[offset : offset + 2] = np.frombuffer(finite_half(random).tobytes(), np.uint8)
    return block


def emit(kind, block, values):
    bits = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
    print(kind.name, block.tobytes().hex(), "".join(f"{b:08x}" for b in bits))


def main():
    random = np.random.default_rng(11)
    for kind in HALVES:
        for _ in range(BLOCKS):
            block = random_block(kind, random)
            emit(kind, block, dequantize(block.reshape(1, -1), kind))
    # Scales at the edges: zeros of both signs, the smallest subnormals, the largest numbers.
    for kind, offsets in HALVES.items():
        for pair in ((0x0000, 0x8000), (0x8001, 0x0001), (0x7BFF, 0xFBFF)):
            if not offsets:
                break
            block = random_block(kind, random)
            for offset, bits in zip(offsets, pair):
                block[offset : offset + 2] = np.frombuffer(np.uint16(bits).tobytes(), np.uint8)
            emit(kind, block, dequantize(block.reshape(1, -1), kind))
    # The extremes of the power-of-two scales.
    for exponent in (0, 1, 2, 252, 254, 255):
        block = random_block(Type.MXFP4, random)
        block[0] = exponent
        emit(Type.MXFP4, block, dequantize(block.reshape(1, -1), Type.MXFP4))
    block = random_block(Type.NVFP4, random)
    block[:4] = [0x00, 0x7F, 0x07, 0xFF]
    emit(Type.NVFP4, block, dequantize(block.reshape(1, -1), Type.NVFP4))

    halves = np.array([finite_half(random) for _ in range(FLOAT_ELEMENTS)], np.uint16)
    halves[:4] = [0x0001, 0x8001, 0x03FF, 0x7BFF]
    emit(Type.F16, halves, dequantize(halves.view(np.float16), Type.F16))
    floats = random.standard_normal(FLOAT_ELEMENTS).astype(np.float32)
    emit(Type.F32, floats, dequantize(floats, Type.F32))
    upper = (floats.view(np.uint32) >> 16).astype(np.uint16)
    emit(Type.BF16, upper, dequantize(upper.view(np.uint8), Type.BF16))
    for kind, dtype in NUMBERS.items():
        if dtype is np.float64:
            numbers = random.standard_normal(FLOAT_ELEMENTS) * 1e3
        else:
            info = np.iinfo(dtype)
            numbers = random.integers(info.min, info.max, FLOAT_ELEMENTS, dtype, endpoint=True)
        emit(kind, numbers, numbers.astype(np.float32))


if __name__ == "__main__":
    sys.exit(main())
