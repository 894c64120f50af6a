from ._allocation import lowest_reads_and_writes as lowest_reads_and_writes
from ._models import Model as Model
from ._policies import always as always
from ._policies import default as default
from ._policies import from_runner as from_runner
from ._policies import make_policy as make_policy
from ._policies import never as never
from ._policies import random as random
