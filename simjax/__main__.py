"""`python -m simjax`: the same as `python -m simjax.run`."""

import sys

from simjax.run import main

if __name__ == "__main__":
    sys.exit(main())
