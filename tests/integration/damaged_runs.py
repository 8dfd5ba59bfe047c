"""Runs a command on a damaged file, and checks how the command ends."""

import os
import re
import subprocess
import tempfile
import threading

import damaged_files
import harness

ARGUMENTS = {
    "tokenize": ("--text", "a low tide"),
    "inspect": (),
    "generate": ("--prompt", "a", "--max-tokens", "2", "--temperature", "0", "--threads", "1",
                 "--kv-memory", "16MiB"),
    "logits": ("--tokens", "1,2", "--threads", "1"),
}
# The limits are for files of at most 2 MiB.
CPU_SECONDS = 10
PEAK_BYTES = 1 << 30
ADDRESS_BYTES = 4 << 30  # sanitizers reserve terabytes
HANG_SECONDS = 120  # long enough for a busy machine
SCRATCH = harness.scratch_folder()


class Outcome:
    """The result of one command for one file."""

    def __init__(self, command, path, flags=None):
        arguments = [str(harness.BINARY), command, "--model", str(path),
                     *(ARGUMENTS[command] if flags is None else flags)]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, \
                tempfile.NamedTemporaryFile(suffix=".npy", dir=path.parent) as logits:
            if command == "logits":
                arguments += ["--out", logits.name]
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=harness.clean_environment())
            guard = threading.Timer(HANG_SECONDS, process.kill)
            guard.start()
            _, status, used = os.wait4(process.pid, 0)
            guard.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            self.code = process.returncode
            self.cpu_seconds = used.ru_utime + used.ru_stime
            self.peak_bytes = used.ru_maxrss * 1024
            out.seek(0)
            err.seek(0)
            self.out, self.err = out.read(), err.read().decode(errors="replace")


def complaints(outcome, wanted, folder):
    """Returns what is wrong with an outcome. A refusal must name a file of `folder`."""
    refusal = wanted
    if wanted == damaged_files.EITHER:
        refusal = damaged_files.FINE if outcome.code == 0 else damaged_files.Refused(())
    if refusal == damaged_files.FINE:
        if outcome.code != 0:
            yield f"exit code {outcome.code}, expected 0"
    else:
        if outcome.code != refusal.code:
            yield f"exit code {outcome.code}, expected {refusal.code}"
        if outcome.out and refusal.code == 2:
            yield f"{len(outcome.out)} bytes on stdout"
        if len(outcome.err.splitlines()) != 1:
            yield f"{len(outcome.err.splitlines())} lines on stderr"
        for name in ("" if refusal.code == 1 else folder, *refusal.named):
            if name not in outcome.err:
                yield f"{name!r} is not named"
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", outcome.err) or b"\x1b" in outcome.out:
        yield "control characters reach the terminal"
    if len(outcome.err) > 2000:
        yield f"{len(outcome.err)} characters on stderr"
    if not harness.SANITIZED:
        if outcome.cpu_seconds > CPU_SECONDS:
            yield f"{outcome.cpu_seconds:.1f} s of processor time"
        if outcome.peak_bytes > PEAK_BYTES:
            yield f"{outcome.peak_bytes >> 20} MiB of memory"
