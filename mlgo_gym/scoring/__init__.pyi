from ._linked_text import Code as Code
from ._linked_text import linked_text_bytes as linked_text_bytes
from ._measures import AllocationCost as AllocationCost
from ._measures import Measure as Measure
from ._measures import TextSize as TextSize
