from ._collect import Attached as Attached
from ._collect import Collected as Collected
from ._collect import attach_profile as attach_profile
from ._collect import collect_profile as collect_profile
from ._estimate import Estimate as Estimate
from ._meters import METERS as METERS
from ._meters import Meter as Meter
from ._meters import Reading as Reading
from ._meters import check_tools as check_tools
from ._meters import meter_named as meter_named
from ._profiles import CorpusCounts as CorpusCounts
from ._profiles import Inconsistency as Inconsistency
from ._profiles import ProfileFile as ProfileFile
from ._profiles import Summary as Summary
from ._profiles import counters_of as counters_of
from ._profiles import counts_of_corpus as counts_of_corpus
from ._profiles import summary_of_profile as summary_of_profile
from ._program import Program as Program
from ._program import Programs as Programs
from ._program import corpora_with_workloads as corpora_with_workloads
from ._program import find_workloads as find_workloads
from ._running import ProgramRun as ProgramRun
from ._running import run_program as run_program
from ._workload_check import Checked as Checked
from ._workload_check import check_workloads as check_workloads

# isort: split
# For other packages of this project; not documented, and may change.

from ._measures import RunMeasure as RunMeasure
from ._measures import Runs as Runs
from ._meters import ExecutedFunction as ExecutedFunction
from ._meters import executed_code as executed_code
from ._program_scores import measured_programs as measured_programs
from ._running import TUNABLES as TUNABLES
from ._running import StartedProgram as StartedProgram
from ._running import Way as Way
from ._running import check_end as check_end
from ._running import check_machine as check_machine
from ._running import compare_output as compare_output
from ._running import started_program as started_program
from ._running import too_long as too_long
from ._running import wrong as wrong
