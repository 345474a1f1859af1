"""The Dockerfile by hadolint; building and running it takes minutes and is tests/deploy/image.sh."""

import re
import subprocess
import sys
import pathlib

from conftest import NOTES, ROOT

DOCKERFILE = ROOT / "deploy/Dockerfile"


def hadolint(path):
    return subprocess.run([pathlib.Path(sys.executable).parent / "hadolint", path], capture_output=True, text=True)


def test_hadolint_finds_nothing(tmp_path):
    result = hadolint(DOCKERFILE)
    assert result.returncode == 0, result.stdout + result.stderr
    broken = tmp_path / "Dockerfile"
    broken.write_text("FROM debian\nRUN cd /tmp && sudo apt-get install -y gcc\n")
    assert hadolint(broken).returncode != 0
    version = subprocess.run([pathlib.Path(sys.executable).parent / "hadolint", "--version"], capture_output=True, text=True).stdout
    NOTES.append(f"deploy/Dockerfile: no finding of {version.strip()}")


def test_c74_both_images_run_as_a_user_that_is_not_root():
    text = DOCKERFILE.read_text()
    for target in ("cpu", "cuda"):
        stage = re.search(rf"^FROM \S+ AS {target}\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL)[1]
        user = re.findall(r"^USER (\d+):(\d+)$", stage, re.MULTILINE)
        assert len(user) == 1 and int(user[0][0]) > 0 and int(user[0][1]) > 0, stage
        assert 'ENTRYPOINT ["/usr/bin/decomposekd"]' in stage


def test_build_stages_install_what_the_build_needs():
    """The lists of the Dockerfile and of deploy/dependencies.sh must not drift apart."""
    text = (ROOT / "deploy/dependencies.sh").read_text()
    wanted = re.search(r"DK_BUILD_PACKAGES=\((.*?)\)", text, re.DOTALL)[1].split()
    tests_only = {"libcmocka-dev", "libopenblas-pthread-dev", "curl", "python3", "python3-numpy"}
    for stage in re.findall(r"^FROM \S+ AS build\S*\n(.*?)(?=^FROM )", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL):
        installed = set(re.search(r"apt-get install (.*?)&&", stage, re.DOTALL)[1].split())
        assert set(wanted) - tests_only <= installed, set(wanted) - tests_only - installed
