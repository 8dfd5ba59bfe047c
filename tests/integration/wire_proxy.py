"""A gRPC proxy for a worker. It removes fields from messages, so that the front or the worker behaves
like another release."""

import concurrent.futures
import importlib

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

import harness

importlib.import_module("tidepool.worker.v1.worker_pb2")  # for its descriptors

SERVICES = ("tidepool.worker.v1.Worker", "tidepool.v1.Admin")
# Each call uses a thread while it waits. Streams of states and runs are such calls.
THREADS = 64
# For a call without deadline, grpcio reports that centuries remain, but does not accept such a
# timeout.
NO_DEADLINE = 10 ** 6


def keep_fields(numbers):
    """Returns a change for WireProxy that keeps only some fields of each message. `numbers` is
    {message: numbers of its fields}."""
    def change(message):
        known = numbers.get(message.DESCRIPTOR.full_name, ())
        for field, value in message.ListFields():
            if field.number not in known:
                message.ClearField(field.name)
            elif isinstance(value, Message):
                change(value)
            elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for below in value:
                    change(below)
        message.DiscardUnknownFields()
    return change


class WireProxy:
    """Serves at `address` what the worker at `target` serves. `change` edits each message in place;
    services in `unknown` are UNIMPLEMENTED. Thread-compatible."""

    def __init__(self, target, change, unknown=()):
        self._change = change
        self._unknown = unknown
        self.seen = set()  # names of the methods that were called
        self._channel = harness.open_channel(target)
        self._types = {
            f"/{name}/{method.name}": tuple(
                map(message_factory.GetMessageClass, (method.input_type, method.output_type)))
            for name in SERVICES
            for method in descriptor_pool.Default().FindServiceByName(name).methods}
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(THREADS),
                                   handlers=[_Handlers(self)],
                                   options=[("grpc.so_reuseport", 0)])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self):
        self._server.stop(None).wait()
        self._channel.close()

    def forward(self, path, requests, context):
        self.seen.add(path)
        asked, answered = self._types[path]
        left = context.time_remaining()
        call = self._channel.stream_stream(path)(
            (self._edit(asked, request) for request in requests),
            timeout=left if left is not None and left < NO_DEADLINE else None,
            metadata=[(key, value) for key, value in context.invocation_metadata()
                      if not key.startswith(("grpc-", "user-agent"))])
        context.add_callback(call.cancel)
        try:
            context.send_initial_metadata(call.initial_metadata())
            for response in call:
                yield self._edit(answered, response)
        except grpc.RpcError:
            pass
        context.set_trailing_metadata(call.trailing_metadata() or ())
        if call.code() != grpc.StatusCode.OK:
            context.abort(call.code(), call.details())

    def _edit(self, kind, data):
        message = kind.FromString(data)
        self._change(message)
        return message.SerializeToString()

    def serves(self, path):
        return path in self._types and path.split("/")[1] not in self._unknown


class _Handlers(grpc.GenericRpcHandler):

    def __init__(self, proxy):
        self._proxy = proxy

    def service(self, details):
        if not self._proxy.serves(details.method):
            return None
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._proxy.forward(details.method, requests, context))
