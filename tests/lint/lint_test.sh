#!/bin/sh
# The checkout is where WORKSPACE really lies.
cd "$(dirname "$(realpath WORKSPACE)")" || exit 1
exec /usr/bin/python3 tests/lint/lint_test.py
