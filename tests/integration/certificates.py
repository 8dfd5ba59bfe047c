"""Certificates of a test CA, and servers that use them."""

import ssl

import grpc
import trustme

import harness


class Certificates:
    """A CA, and files with certificates that it signed."""

    def __init__(self):
        self.folder = harness.scratch_folder()
        self.authority = trustme.CA()
        self.ca = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)

    def issue(self, file, *names, **more):
        """Returns the files (certificate, key) for these names. They are written atomically."""
        made = self.authority.issue_cert(*names, **more)
        paths = self.folder / f"{file}.pem", self.folder / f"{file}.key"
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        for path, pem in zip(paths, (chain, made.private_key_pem.bytes())):
            part = self.folder / "part"
            part.write_bytes(pem)
            part.rename(path)
        return paths


def pair_flags(prefix, pair):
    return f"--{prefix}-cert", pair[0], f"--{prefix}-key", pair[1]


def serve_tls(certificates, *arguments, command=harness.serve, file="server",
              names=("127.0.0.1", "localhost"), **validity):
    pair = certificates.issue(file, *names, **validity)
    return command(*pair_flags("tls", pair), "--probe-listen", "127.0.0.1:0", *arguments)


def open_tls(address, ca, pair=None):
    """Returns a channel that trusts this CA and presents this pair."""
    certificate, key = (path.read_bytes() for path in pair) if pair else (None, None)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, certificate)
    return grpc.secure_channel(address, credentials,
                               options=[("grpc.use_local_subchannel_pool", 1),
                                        ("grpc.enable_http_proxy", 0),
                                        # As in harness.open_channel: the window stays small, so
                                        # unread messages are not sent.
                                        ("grpc.http2.bdp_probe", 0)])


def ssl_context(ca, pair=None):
    context = ssl.create_default_context(cafile=ca)
    if pair:
        context.load_cert_chain(*pair)
    return context
