from ._archive import sample_suite as sample_suite
from ._suite import Suite as Suite
from ._suite_runs import Submission as Submission
from ._suite_runs import run as run
from ._suite_runs import verify as verify
from ._table import table as table

# isort: split
# For other packages of this project; not documented, and may change.

from ._archive import MAX_BYTES as MAX_BYTES
from ._archive import build_sources as build_sources
from ._archive import function_of as function_of
from ._archive import make_suite as make_suite
from ._archive import open_or_sample as open_or_sample
from ._archive import pack as pack
from ._archive import recorded_policy as recorded_policy
from ._archive import sources_in as sources_in
from ._archive import suite_named as suite_named
from ._archive import unpack as unpack
from ._suite import check_differing as check_differing
from ._suite import of_track as of_track
from ._suite import shipped_suites as shipped_suites
from ._suite import sums_text as sums_text
from ._suite_runs import run_tiers as run_tiers
from ._table import changes_of as changes_of
from ._table import known_best as known_best
from ._table import profile_figure as profile_figure
from ._table import table_json as table_json
from ._table import verified as verified
from ._table import verified_submissions as verified_submissions
from ._table import write_table as write_table
