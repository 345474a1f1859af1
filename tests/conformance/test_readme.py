"""README.md, "Use it from tritonclient": exactly its eight lines, but for the port, run as they are."""

import os
import re
import subprocess
import sys

README = os.path.join(os.path.dirname(__file__), "../../README.md")


def lines():
    with open(README) as file:
        section = file.read().partition("## Use it from tritonclient\n")[2]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1).splitlines()


def test_eight_lines_work_as_they_stand(daemon):
    code = lines()
    assert len(code) == 8 and '"localhost:8000"' in code[1]
    run = subprocess.run([sys.executable, "-c", "\n".join(code).replace("localhost:8000", f"127.0.0.1:{daemon.port}")], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "1 (4, 256) float32\nTrue\n"
