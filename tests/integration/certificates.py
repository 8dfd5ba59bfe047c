"""Certificates of a CA that a test makes."""

import trustme

import harness


class Certificates:
    """A CA, and files of what it signed."""

    def __init__(self):
        self.folder = harness.scratch_folder()
        self.authority = trustme.CA()
        self.ca = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)

    def issue(self, file, *names, **more):
        """(certificate, key) of these names, in files that appear in one piece."""
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
