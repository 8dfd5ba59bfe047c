"""Tests that run twice: with the host's memory, and with memory that the host cannot touch."""

load("//tools:cc.bzl", "cc_test")

def device_test(name, device_size = "large", device_tags = [], tags = [], **kwargs):
    """Two cc_tests: NAME, and NAME_on_device with $TIDEPOOL_TEST_BACKEND set to "protected".

    The test must make its backends with tests/engine/model/test_backend.h.

    Args:
      name: name of the first test.
      device_size: size of the second test.
      device_tags: tags that only the second test has.
      tags: tags of both tests.
      **kwargs: other attributes of both tests.
    """
    cc_test(name = name, tags = tags, **kwargs)
    kwargs["size"] = device_size
    cc_test(
        name = name + "_on_device",
        env = {"TIDEPOOL_TEST_BACKEND": "protected"},
        tags = tags + device_tags,
        **kwargs
    )
