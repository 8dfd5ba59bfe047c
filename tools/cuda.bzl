"""Compiles CUDA code with nvcc. Debian's Bazel has no rules for it."""

# sm_80: A100 and newer; sm_90: H100. compute_90 is PTX, which the driver compiles for later GPUs.
_FLAGS = [
    "-x",
    "cu",
    "-std=c++20",
    "-O3",
    # nvcc must not fuse multiply-adds, so that the bits equal the CPU's. The source calls fused
    # multiply-adds explicitly.
    "-fmad=false",
    # Kernels call constexpr functions of host headers.
    "--expt-relaxed-constexpr",
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    "-Werror=all-warnings",
    # Abseil declares functions without a definition.
    "-diag-suppress=554",
    "-Xcompiler=-fPIC,-ffp-contract=off,-Wall,-Wextra,-Wno-sign-compare,-Wno-missing-field-initializers",
]

def _cuda_objects_impl(ctx):
    headers = depset(transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])
    toolkit = ctx.file._toolkit
    objects = []
    for src in ctx.files.srcs:
        if not src.path.endswith(".cc"):
            continue
        out = ctx.actions.declare_file(ctx.label.name + "_objects/" + src.basename + ".o")
        objects.append(out)
        ctx.actions.run_shell(
            # nvcc names its files in /tmp by its process id, and in sandboxes all processes may
            # have the same id.
            command = 'source "$1"; shift; export TMPDIR="$(mktemp -d)"; trap "rm -rf $TMPDIR" EXIT; "$TIDEPOOL_NVCC" "$@"',
            arguments = [toolkit.path] + _FLAGS + ctx.attr.copts + [
                "-I.",
                "-c",
                src.path,
                "-o",
                out.path,
            ],
            inputs = depset(ctx.files.srcs + [toolkit], transitive = [headers]),
            outputs = [out],
            mnemonic = "CudaCompile",
            progress_message = "Compiling " + src.short_path + " with nvcc",
            use_default_shell_env = True,
        )
    archive = ctx.actions.declare_file("lib" + ctx.label.name + ".a")
    ctx.actions.run_shell(
        command = 'ar rcsD "$@"',
        arguments = [archive.path] + [o.path for o in objects],
        inputs = objects,
        outputs = [archive],
        mnemonic = "CudaArchive",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([archive]))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = [".cc", ".h"]),
        "_toolkit": attr.label(default = "@cuda//:toolkit.sh", allow_single_file = True),
    },
)

def cuda_library(name, srcs, deps = [], copts = [], testonly = False, visibility = None):
    """A library that nvcc compiles.

    Without a CUDA compiler, only a build of this library fails, so it is tagged "manual": //... does
    not contain it.

    Args:
      name: the name of the library.
      srcs: sources of kernels and of host code, and headers.
      deps: cc_library rules. Their headers can be included.
      copts: more options of nvcc.
      testonly: as usual.
      visibility: as usual.
    """
    _cuda_objects(
        name = name + "_objects",
        testonly = testonly,
        srcs = srcs,
        copts = copts,
        tags = ["manual"],
        deps = deps,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        testonly = testonly,
        srcs = [name + "_objects"],
        linkstatic = True,
        tags = ["manual"],
        visibility = visibility,
        deps = deps + ["@cuda//:runtime"],
    )
