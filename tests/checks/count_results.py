"""Count a JUnit file of ctest or pytest: prints "PASSED FAILED SKIPPED", then each failed name on a line."""

import sys
import xml.etree.ElementTree as ElementTree


def main(path: str) -> int:
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    print(passed, len(failed), skipped)
    print("\n".join(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
