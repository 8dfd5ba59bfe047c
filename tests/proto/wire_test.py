"""Two consecutive releases understand each other: no item of the last release's wire format was
removed or has another meaning."""

import copy
import unittest

import wire
from google.protobuf import descriptor_pb2


class ReleasedTest(unittest.TestCase):

    def test_the_last_release_is_understood(self):
        released = wire.from_text(wire.RELEASED.read_text())
        self.assertEqual(wire.broken(released, wire.describe(wire.read_protos(wire.ROOT / "proto"))),
                         [])
        for needed in ("service tidepool.worker.v1.Worker", "message tidepool.v1.GenerateRequest",
                       "enum tidepool.v1.FinishReason"):
            self.assertTrue(released[needed], needed)


class BrokenTest(unittest.TestCase):
    """Incompatible changes are found, and compatible ones are not reported."""

    @classmethod
    def setUpClass(cls):
        cls.protos = wire.read_protos(wire.ROOT / "proto")
        cls.released = wire.from_text(wire.to_text(wire.describe(cls.protos)))

    def broken_by(self, change):
        protos = copy.deepcopy(self.protos)
        (inference,) = [file for file in protos.file if file.name.endswith("/inference.proto")]
        change({message.name: message for message in inference.message_type}, inference)
        return wire.broken(self.released, wire.describe(protos))

    def test_nothing_changes(self):
        self.assertEqual(self.broken_by(lambda messages, file: None), [])

    def test_additions_break_nothing(self):
        def add(messages, file):
            messages["Usage"].field.add(name="later", number=99, type=3, label=1)
            file.enum_type[0].value.add(name="LATER", number=99)
            file.message_type.add(name="Later")
            file.service[0].method.add(name="Later", input_type=".tidepool.v1.Later",
                                       output_type=".tidepool.v1.Later")
        self.assertEqual(self.broken_by(add), [])

    def test_everything_else_does(self):
        def field(message, field_name, **values):
            def change(messages, file):
                (found,) = [one for one in messages[message].field if one.name == field_name]
                for key, value in values.items():
                    setattr(found, key, value)
            return change

        def without(*path):
            def change(messages, file):
                items = file
                for step in path:
                    items = getattr(items, step) if isinstance(step, str) else items[step]
                del items[0]
            return change

        def unary(messages, file):
            (generate,) = [one for one in file.service[0].method if one.name == "Generate"]
            generate.server_streaming = False

        def no_longer_optional(messages, file):
            (priority,) = [one for one in messages["GenerateRequest"].field
                           if one.name == "priority"]
            priority.proto3_optional = False
            priority.ClearField("oneof_index")

        types = descriptor_pb2.FieldDescriptorProto
        for change, told in (
                (field("Usage", "cached_tokens", number=50), "2 int64 cached_tokens"),
                (field("Usage", "cached_tokens", name="cached"), "2 int64 cached_tokens"),
                (field("Usage", "cached_tokens", type=types.TYPE_SINT64), "2 int64 cached_tokens"),
                (field("Usage", "cached_tokens", label=types.LABEL_REPEATED),
                 "2 int64 cached_tokens"),
                (field("GenerateResponse", "usage", type_name=".tidepool.v1.Model"),
                 "8 tidepool.v1.Usage usage"),
                (no_longer_optional, "14 optional int32 priority"),
                (without("enum_type", 0, "value"), "0 FINISH_REASON_UNSPECIFIED"),
                (without("enum_type"), "enum tidepool.v1.FinishReason is gone"),
                (without("message_type"), "message tidepool.v1.GenerateRequest is gone"),
                (without("service", 0, "method"), "service tidepool.v1.Inference no longer has"),
                (without("service"), "service tidepool.v1.Inference is gone"),
                (unary, "Generate: tidepool.v1.GenerateRequest -> stream")):
            found = self.broken_by(change)
            self.assertTrue(any(told in line for line in found), f"{told}: {found}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
