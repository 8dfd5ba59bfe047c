"""Prints the Bazel test targets that belong to paths of the tree, one per line.

Usage: test_targets.py PATH...
  a folder below tests/      every test in it and its subfolders
  any other folder           the tests in tests/FOLDER and its subfolders
  a file                     the tests that directly use the file or its library;
                             if there are none, the tests of its folder
Exits with 2 and names the path if it does not exist or has no test.
"""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# From a file to its library, and from the library to tests that depend on it directly.
STEPS_FROM_FILE_TO_TEST = 2


def bazel_query(expression):
    """Labels that match the expression; none if Bazel rejects it."""
    done = subprocess.run(["bazel", "query", "--noshow_progress", expression], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    return done.stdout.split()


def package_of(path, root):
    """Returns the closest folder with a BUILD file, relative to root. '.' is the root."""
    folder = path if (root / path).is_dir() else path.parent
    while folder != pathlib.PurePath(".") and not (root / folder / "BUILD").exists():
        folder = folder.parent
    return folder


def tests_below(folder, query):
    return query(f"tests(//{folder}/...)")


def mirror_of(folder):
    return folder if folder.parts[:1] == ("tests",) else pathlib.PurePath("tests") / folder


def targets_for(path, root=ROOT, query=bazel_query):
    """Returns the test targets of one path, which is relative to root."""
    path = pathlib.PurePath(path)
    if not (root / path).exists():
        raise ValueError(f"{path} does not exist")
    folder = path if (root / path).is_dir() else path.parent
    targets = []
    if path != folder:
        package = package_of(path, root)
        label = f"//{'' if package.name == '' else package}:{path.relative_to(package)}"
        targets = query(f"tests(rdeps(//tests/..., {label}, {STEPS_FROM_FILE_TO_TEST}))")
    mirror = mirror_of(folder)
    if not targets and (root / mirror).is_dir():
        targets = tests_below(mirror, query)
    if not targets:
        raise ValueError(f"no test belongs to {path}; name a folder or file below tests/")
    return targets


def main(arguments):
    found = set()
    for argument in arguments:
        try:
            path = pathlib.Path(argument).resolve().relative_to(ROOT)
            found.update(targets_for(path))
        except ValueError as error:
            print(f"test: {error}", file=sys.stderr)
            return 2
    print("\n".join(sorted(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
