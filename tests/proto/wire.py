"""Describes the wire format of proto/, one line per item, and finds items of a release that changed.

    .cache/venv/bin/python tests/proto/wire.py --renew

At a release this writes tests/proto/released_wire.txt. wire_test.py compares later changes with it.
"""

import pathlib
import sys
import tempfile

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path.cwd()
RELEASED = ROOT / "tests" / "proto" / "released_wire.txt"
HEAD = """\
# The messages and services of the latest release. Whoever changes proto/ leaves all of this as it
# is: tests/proto/wire_test.py compares, and tests/proto/wire.py --renew writes it at a release.
"""
LABELS = {descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED: "repeated "}


def read_protos(folder):
    """The FileDescriptorSet of a folder's .proto files."""
    files = [str(path) for path in sorted(folder.rglob("*.proto"))]
    include = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "set"
        code = protoc.main(["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={out}",
                            *files])
        assert files and code == 0, f"protoc ended with {code} on {files}"
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def describe(descriptors):
    """{"message NAME", "enum NAME" or "service NAME": {its lines}} of our own packages."""
    things = {}
    for file in descriptors.file:
        if not file.package.startswith("tidepool."):
            continue
        for message in file.message_type:
            _describe_message(file.package, message, things)
        for enum in file.enum_type:
            _describe_enum(file.package, enum, things)
        for service in file.service:
            things[f"service {file.package}.{service.name}"] = {
                f"{method.name}: {_stream(method.client_streaming)}{method.input_type[1:]} -> "
                f"{_stream(method.server_streaming)}{method.output_type[1:]}"
                for method in service.method}
    return things


def _stream(streaming):
    return "stream " if streaming else ""


def _describe_message(scope, message, things):
    name = f"{scope}.{message.name}"
    things[f"message {name}"] = {_field_line(message, field) for field in message.field}
    for nested in message.nested_type:
        _describe_message(name, nested, things)
    for enum in message.enum_type:
        _describe_enum(name, enum, things)


def _describe_enum(scope, enum, things):
    things[f"enum {scope}.{enum.name}"] = {f"{value.number} {value.name}" for value in enum.value}


def _field_line(message, field):
    """Returns the line of a field. A map is written as repeated entries. Presence is part of the
    line, because it changes the meaning of zero."""
    kind = field.type_name[1:] or descriptor_pb2.FieldDescriptorProto.Type.Name(
        field.type).removeprefix("TYPE_").lower()
    label = "optional " if field.proto3_optional else LABELS.get(field.label, "")
    choice = ""
    if field.HasField("oneof_index") and not field.proto3_optional:
        choice = f" of {message.oneof_decl[field.oneof_index].name}"
    return f"{field.number} {label}{kind} {field.name}{choice}"


def to_text(things):
    def order(line):
        number = line.partition(" ")[0]
        return (int(number), "") if number.isdigit() else (0, line)
    return HEAD + "".join(
        f"\n{name}\n" + "".join(f"  {line}\n" for line in sorted(lines, key=order))
        for name, lines in sorted(things.items()))


def from_text(text):
    things, lines = {}, None
    for line in text.splitlines():
        if line.startswith("  "):
            lines.add(line.strip())
        elif line and not line.startswith("#"):
            lines = things[line] = set()
    return things


def broken(released, now):
    """Returns what processes of the release would lack or read wrongly, one line for each."""
    found = []
    for name, lines in sorted(released.items()):
        if name not in now:
            found.append(f"{name} is gone")
            continue
        for line in sorted(lines - now[name]):
            found.append(f"{name} no longer has: {line}")
    return found


def field_numbers(things):
    """{message: the numbers of its fields}."""
    return {name.removeprefix("message "): {int(line.partition(" ")[0]) for line in lines}
            for name, lines in things.items() if name.startswith("message ")}


def main(arguments):
    if arguments != ["--renew"]:
        sys.exit(__doc__)
    now = describe(read_protos(ROOT / "proto"))
    lost = broken(from_text(RELEASED.read_text()) if RELEASED.exists() else {}, now)
    if lost:
        sys.exit("\n".join(["not renewed: the release before would not understand this one", *lost]))
    RELEASED.write_text(to_text(now))
    print(f"{RELEASED.relative_to(ROOT)}: {len(now)} messages, enums and services")


if __name__ == "__main__":
    main(sys.argv[1:])
