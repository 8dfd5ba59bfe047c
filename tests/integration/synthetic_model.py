"""Models with random weights, made for a test by //tools/synthetic:make_synthetic."""

import os
import pathlib
import struct
import subprocess

MAKE_SYNTHETIC = pathlib.Path(os.environ["MAKE_SYNTHETIC"]).resolve()
# A model of about 330 MiB. Nearly all of it is in 64 experts per layer, of which each token uses 4.
LARGE = ("--layers", "12", "--hidden", "512", "--width", "512", "--experts", "64", "--top-k", "4",
         "--type", "Q4_K")


def make(path, *sizes):
    """Creates a mixture of experts with these sizes."""
    subprocess.run([MAKE_SYNTHETIC, "--moe", "tiny-moe", *map(str, sizes), "--out", path],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def set_context(path, tokens):
    """Sets the model's context to `tokens`."""
    with open(path, "r+b") as file:
        key = b".context_length"
        place = file.read(1 << 16).index(key) + len(key) + 4  # after the type of the value
        file.seek(place)
        file.write(struct.pack("<I", tokens))
