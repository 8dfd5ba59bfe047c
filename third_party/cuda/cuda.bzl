"""The CUDA compiler and runtime: in $CUDA_HOME, /usr/local/cuda, or where tools/setup --cuda put it."""

_BUILD = """
exports_files(["toolkit.sh"])

cc_library(
    name = "runtime",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _cuda_toolkit_impl(context):
    places = ["/usr/local/cuda", str(context.path(Label("//:WORKSPACE")).dirname) + "/.cache/cuda"]
    if context.os.environ.get("CUDA_HOME"):
        places = [context.os.environ["CUDA_HOME"]] + places
    home = None
    for place in places:
        if context.path(place + "/bin/nvcc").exists:
            home = place
            break
    if home == None:
        script = "echo 'no CUDA compiler: set CUDA_HOME or run tools/setup --cuda' >&2; exit 1\n"
        linkopts = []
    else:
        script = "TIDEPOOL_NVCC=%s/bin/nvcc\n" % home
        linkopts = ["-L%s/%s" % (home, folder) for folder in ["lib64", "lib"]]
        linkopts += ["-l:libcudart_static.a", "-ldl", "-lrt", "-lpthread"]
    context.file("toolkit.sh", script, executable = False)
    context.file("BUILD", _BUILD.format(linkopts = linkopts))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
