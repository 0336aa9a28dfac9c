"""Range checks of configuration fields, with an error that names the field."""

import math
from typing import Any


def check_ranges(config: Any, **ranges: tuple[float, float]) -> None:
    """Raise ValueError naming the first field of a configuration whose value is outside its closed range (low, high),
    nan or infinite. ranges: field name -> (low, high)."""
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not low <= value <= high or value == math.inf:
            wanted = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
            raise ValueError(f"{name} is {value}: expected {wanted}")


COUNT, FROM_ZERO, BELOW_ONE, SEED = (1, math.inf), (0, math.inf), (0.0, 1 - 1e-9), (0, 2**63 - 1)
