from ._linked_text import Code as Code
from ._linked_text import linked_text_bytes as linked_text_bytes
from ._measures import AllocationCost as AllocationCost
from ._measures import Measure as Measure
from ._measures import TextSize as TextSize
from ._measures import Unit as Unit
from ._measures import measure_of as measure_of
from ._measures import reward_of as reward_of
