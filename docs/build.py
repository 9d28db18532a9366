"""Builds the site: gathers its pages in build/pages, of which Zensical makes build/site.

python docs/build.py            build it; a link that leads nowhere ends it with an error
python docs/build.py --serve    show it on this machine, and changes as they are made

With TUTORIALS=execute in the environment tutorials run, and their pages have what they print.
"""

import os
import subprocess
import sys
import time

from site_checks import troubles
from site_pages import DOCS, ROOT, gather

# Zensical looks for the extension `equations` among the modules of this folder.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(DOCS), os.environ.get("PYTHONPATH"))))}


def zensical(*words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "zensical", *words], cwd=ROOT, env=ENVIRONMENT)


def build() -> int:
    gather({})
    # Pages kept from the last time would not be checked again.
    if failed := zensical("build", "--clean", "--strict").wait():
        return failed
    wrong = troubles(ROOT / "build" / "site")
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


def serve() -> int:
    made: dict[str, float] = {}
    gather(made)
    server = zensical("serve")
    try:
        while server.poll() is None:
            time.sleep(1)
            gather(made)
    except KeyboardInterrupt:
        server.wait()
    return server.returncode


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--serve"]):
        sys.exit(__doc__)
    sys.exit(serve() if sys.argv[1:] else build())
