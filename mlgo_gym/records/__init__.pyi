from ._replay import record as record
from ._replay import replay as replay
from ._replay import resume as resume
from ._replay import trace_of as trace_of
from ._trace import Trace as Trace
