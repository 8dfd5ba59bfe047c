#!/bin/sh
exec "${TIDEPOOL_PYTHON:?tools/setup names it in .cache/bazelrc}" tests/docs/readme_test.py
