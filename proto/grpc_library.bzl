"""C++ from .proto files by the system's protoc and grpc_cpp_plugin."""

def grpc_cc_library(name, srcs):
    """A cc_library of the messages and gRPC services in srcs.

    Args:
      name: name of the library.
      srcs: .proto files below this package, which is protoc's import root. Generated headers are
        included without the package's own name: "tidepool/v1/inference.grpc.pb.h".
    """
    sources = []
    headers = []
    for src in srcs:
        stem = src[:-len(".proto")]
        sources += [stem + ".pb.cc", stem + ".grpc.pb.cc"]
        headers += [stem + ".pb.h", stem + ".grpc.pb.h"]
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = sources + headers,
        cmd = " ".join([
            "protoc --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
            "-I%s" % native.package_name(),
            "--cpp_out=$(RULEDIR) --grpc_out=$(RULEDIR)",
            "$(SRCS)",
        ]),
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        includes = ["."],
        deps = ["@grpc//:lib"],
    )
