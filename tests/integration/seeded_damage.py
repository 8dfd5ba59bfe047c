"""Damages files, depending on a seed, and reads folders of files into memory."""

import shutil

PAGE = 4096


class Damage:
    """Random damage to a file. `flips` is the probability that it is a single flipped bit."""

    def __init__(self, rng, size, flips=0.75):
        other = rng.choice(("page", "cut", "bytes"))
        self.what = "bit" if rng.random() < flips or size == 0 else other
        self.at = rng.randrange(max(size, 1))
        self.bit = rng.randrange(8)
        self.bytes = rng.randbytes(40)

    def apply(self, content):
        at = self.at
        if self.what == "bit":
            return content[:at] + bytes([content[at] ^ 1 << self.bit]) + content[at + 1:]
        if self.what == "page":
            at -= at % PAGE
            hole = min(PAGE, len(content) - at)
            return content[:at] + bytes(hole) + content[at + hole:]
        if self.what == "cut":
            return content[:at]
        end = min(at + 40, len(content))
        return content[:at] + self.bytes[:end - at] + content[end:]

    def __str__(self):
        return f"{self.what} at {self.at}" + (f".{self.bit}" if self.what == "bit" else "")


def load(folder):
    """Returns every file below the folder, by its path in the folder."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def put(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
