"""Code that the offloading benchmarks share: saved measurements, quartiles, a profile.

Used by offload_bench.py and offload_plots.py.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time


def note(line):
    print(line, file=sys.stderr, flush=True)


def quartiles(values):
    """Returns the first quartile, the median and the third quartile."""
    if len(values) == 1:
        return list(values) * 3
    return statistics.quantiles(values, n=4, method="inclusive")


class Measurements:
    """Records of (round, test, side, ...). Each record is written at once as a JSON line to `file`
    (None: only in memory), so that none is lost if the run is stopped. The first line has the
    settings. An existing file is continued if its settings are equal. Otherwise, SystemExit names a
    setting that differs."""

    def __init__(self, file, settings):
        self.file, self.records = file, []
        # Ignore a line that a kill has truncated.
        whole, _, cut = file.read_text().rpartition("\n") if file and file.exists() else ("", "", "")
        if cut:
            file.write_text(whole and whole + "\n")
        if whole:
            self._take([json.loads(line) for line in whole.splitlines()], settings)
        elif file:
            self._write({"settings": settings})

    @classmethod
    def read(cls, file):
        """Reads a file, whatever its settings are."""
        if not file.exists():
            raise SystemExit(f"{file}: there is no such file")
        first = file.read_text().partition("\n")[0]
        return cls(file, json.loads(first).get("settings", {}) if first else {})

    def _take(self, lines, settings):
        kept = lines[0].get("settings", {})
        for name in sorted(settings.keys() | kept.keys()):
            if settings.get(name) != kept.get(name):
                raise SystemExit(f"{self.file}: measured with {name} {kept.get(name)}, not "
                                 f"{settings.get(name)}; name another file")
        self.records = lines[1:]

    def _write(self, record):
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def add(self, record):
        self.records.append(record)
        if self.file:
            self._write(record)

    def find(self, **keys):
        return [record for record in self.records
                if all(record.get(key) == value for key, value in keys.items())]


class Progress:
    """Before each of `count` runs, prints the estimated time left."""

    def __init__(self, count):
        self.count, self.done, self.start = count, 0, time.monotonic()

    def step(self, what):
        left = ""
        if self.done:
            seconds = (time.monotonic() - self.start) / self.done * (self.count - self.done)
            left = f", about {seconds / 60:.0f} minutes left"
        self.done += 1
        note(f"{self.done} of {self.count}{left}: {what}")


def record_profile(tidepool, model, threads, file):
    """Records a routing trace of 8 sequences of 64 tokens, for the policy static. One of them is
    the sequence that `tidepool bench` decodes. The others do not occur in `tidepool bench`."""
    command = [tidepool, "bench", "--model", model, "-p", "0", "-n", "64", "-b", "8", "-r", "1",
               "-t", str(threads), "--trace-experts", str(file), "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {result.stderr.strip()}")
    return pathlib.Path(file)
