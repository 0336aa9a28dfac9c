"""Makes ``tiny_batches`` importable as a plain module, as pytest's rootdir has no packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
