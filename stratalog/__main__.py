"""`python -m stratalog` is `strata`."""

import sys

from stratalog.jobs.strata import main

if __name__ == "__main__":
    sys.exit(main())
