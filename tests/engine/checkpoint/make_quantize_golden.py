"""Writes quantize_golden.txt: the error that llama.cpp's own quantiser leaves, by type and data.

Usage: python3 make_quantize_golden.py > quantize_golden.txt

Needs numpy, gguf (0.19) and llama-cpp-python (0.3.36), whose ggml_quantize_chunk runs without an
importance matrix. quantize_test.cc makes the same data from the same integers. Each line has a
type, a kind of data, and the root mean square error.
"""

import ctypes
import pathlib

import gguf
import llama_cpp
import numpy as np

ROWS, COLUMNS = 128, 256
TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
MASK = (1 << 64) - 1


def mixed(index):
    """splitmix64's output function."""
    z = (index * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bell():
    """Returns sums of four 16-bit numbers around 0. The sums are integers, and therefore exact.
    Their standard deviation is about 37837."""
    sums = [sum(z >> shift & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
            for z in map(mixed, range(ROWS * COLUMNS))]
    return np.array(sums, np.float32)


def data():
    x = bell()
    tail = x * np.abs(x) * np.float32(2.0 ** -16)
    return {
        "bell": x * np.float32(2.0 ** -20),
        "tails": tail * np.float32(2.0 ** -20),
        "shifted": (x + np.float32(60000)) * np.float32(2.0 ** -20),
    }


def load_ggml():
    folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
    ggml = ctypes.CDLL(str(folder / "libggml-base.so"))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                                         ctypes.c_void_p]
    return ggml


def main():
    ggml = load_ggml()
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        for label, x in data().items():
            blocks = np.zeros((ROWS, COLUMNS // elements * size), np.uint8)
            ggml.ggml_quantize_chunk(int(kind), x.ctypes.data, blocks.ctypes.data, 0, ROWS,
                                     COLUMNS, None)
            left = gguf.quants.dequantize(blocks, kind).ravel().astype(np.float64) - x
            print(name, label, f"{np.sqrt(np.mean(left ** 2)):.9e}")


if __name__ == "__main__":
    main()
