#!/bin/sh
# Runs commands_test.py in the checkout, the folder of the real WORKSPACE.
TIDEPOOL_BINARY="$(realpath service/tidepool)" || exit 1
export TIDEPOOL_BINARY
cd "$(dirname "$(realpath WORKSPACE)")" || exit 1
exec "${TIDEPOOL_PYTHON:?tools/setup names it in .cache/bazelrc}" tests/docs/commands_test.py
