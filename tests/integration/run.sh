#!/bin/sh
# run.sh SCRIPT: runs one Python test with the interpreter that has grpcio.
exec "${TIDEPOOL_PYTHON:?tools/setup names it in .cache/bazelrc}" "$@"
