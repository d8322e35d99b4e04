"""The paper's tables and figures: `make paper`, or `python -m paper`, writes docs/results.md and docs/results/.

Not in the wheel: it runs from the root of a checkout.
"""

from .run import SECTIONS, reproduce

__all__ = ["SECTIONS", "reproduce"]
