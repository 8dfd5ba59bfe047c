"""Writes a golden file, or, with --check, compares the committed one with what would be written."""

import argparse
import sys


def write_or_check(path, text, doc):
    """Writes the file. With --check, compares it instead, and ends the script with 1 if it differs.
    `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if not parser.parse_args().check:
        path.write_text(text, encoding="utf-8")
        return
    same = path.read_text(encoding="utf-8") == text
    print(f"{path.name}: {'as committed' if same else 'DIFFERENT from the committed file'}")
    if not same:
        sys.exit(1)
