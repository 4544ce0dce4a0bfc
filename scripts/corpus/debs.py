"""Reads Debian packages and apt's lists in place; nothing is unpacked to the disk."""
import glob
import hashlib
import os
import subprocess
import tarfile
import urllib.parse


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def path_of(cache, package):
    """The downloaded .deb of a package."""
    found = sorted(glob.glob(os.path.join(cache, "debs", package + "_*.deb")))
    if not found:
        raise FileNotFoundError(f"{package} is not in {cache}/debs; run scripts/fetch_corpus.sh again")
    return found[-1]


def describe(cache, package):
    path = path_of(cache, package)
    name, version, architecture = os.path.basename(path)[:-len(".deb")].split("_")
    return dict(name=name, version=urllib.parse.unquote(version), architecture=architecture, bytes=os.path.getsize(path),
                sha256=sha256(path))


def files(cache, package, wanted):
    """Yields (path, bytes) of the regular files whose path `wanted` accepts, in the package's order."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path_of(cache, package)], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                path = member.name.removeprefix("./")
                if member.isfile() and wanted(path):
                    yield path, archive.extractfile(member).read()
        while process.stdout.read(1 << 16):  # padding after the archive's end; unread, it would break dpkg-deb's pipe
            pass
    if process.returncode != 0:
        raise OSError(f"dpkg-deb cannot read {path_of(cache, package)}; delete the file and run scripts/fetch_corpus.sh again")


def lists(cache, language):
    """Apt's Translation files of one language, main archive first."""
    found = glob.glob(os.path.join(cache, "lists", f"*_i18n_Translation-{language}*"))
    return sorted(found, key=lambda path: ("security" in path, "updates" in path, path))


def read_list(path):
    """Apt's own tool knows every compression that apt may have chosen for its lists."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", path]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode("utf-8")
