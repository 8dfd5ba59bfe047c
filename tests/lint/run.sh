#!/bin/sh
# run.sh TEST.py: runs a test in the checkout, the folder of the real WORKSPACE.
cd "$(dirname "$(realpath WORKSPACE)")" || exit 1
exec /usr/bin/python3 "tests/lint/$1"
