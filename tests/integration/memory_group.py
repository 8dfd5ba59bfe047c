"""A memory cgroup that limits its processes and the page cache that they fill."""

import os
import pathlib


def own_group(controller):
    """Returns the folder of this process's cgroup. `controller` is a v1 controller, or "" for
    v2."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for _, folder, kind, options, *_ in mounts:
            is_v1 = kind == "cgroup" and controller in options.split(",")
            if (controller and is_v1) or (not controller and kind == "cgroup2"):
                return pathlib.Path(folder) / path.lstrip("/")
    return None


class MemoryGroup:
    """A group with a limit of `limit` bytes, which exists until remove(). Raises OSError if no
    group can be created: this needs root and a memory cgroup that can have children."""

    LIMITS = {"memory": "memory.limit_in_bytes", "": "memory.max"}

    def __init__(self, limit):
        errors = []
        for controller, name in self.LIMITS.items():
            parent = own_group(controller)
            if parent is None:
                continue
            self.folder = parent / f"tidepool-test-{os.getpid()}"
            try:
                self.folder.mkdir()
                (self.folder / name).write_text(str(limit))
                break
            except OSError as error:
                errors.append(str(error))
                self.remove()
        else:
            raise OSError(f"no memory cgroup can be made here: {errors or 'none mounted'}")

    def prefix(self):
        """Returns the words that must be written before a command to run it in the group."""
        return ["/bin/sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def kills(self):
        for name in ("memory.oom_control", "memory.events"):
            file = self.folder / name
            if file.exists():
                fields = dict(line.split() for line in file.read_text().splitlines())
                return int(fields["oom_kill"])
        raise AssertionError(f"{self.folder} counts no kills")

    def remove(self):
        if self.folder.exists():
            self.folder.rmdir()
