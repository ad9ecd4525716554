"""`python -m evictune_policies.replay`, the same as `evictune-replay`."""

import sys

from evictune_policies.replay.console.cli import main

sys.exit(main())
