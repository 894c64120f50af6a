from ._evaluate import Setting as Setting
from ._evaluate import evaluate as evaluate
from ._plots import learning_curve as learning_curve
from ._summary import Scored as Scored

# isort: split
# For other packages of this project; not documented, and may change.

from ._evaluate import WAYS as WAYS
from ._evaluate import ModuleTimes as ModuleTimes
from ._evaluate import PackageLink as PackageLink
from ._evaluate import TimeChange as TimeChange
from ._evaluate import Track as Track
from ._evaluate import in_order as in_order
from ._evaluate import link_change as link_change
from ._evaluate import link_packages as link_packages
from ._evaluate import measure_times as measure_times
from ._evaluate import module_scores as module_scores
from ._evaluate import objects_of_packages as objects_of_packages
from ._evaluate import time_changes as time_changes
from ._evaluate import with_searched as with_searched
from ._figure import NO_PLOTS as NO_PLOTS
from ._figure import NOTE as NOTE
from ._figure import WIDTH as WIDTH
from ._figure import can_plot as can_plot
from ._figure import check_can_plot as check_can_plot
from ._figure import new_figure as new_figure
from ._figure import plot_label as plot_label
from ._figure import reach as reach
from ._plots import interquartile_mean as interquartile_mean
from ._plots import plots_of as plots_of
from ._summary import LEVEL as LEVEL
from ._summary import RESAMPLES as RESAMPLES
from ._summary import WORSE_RATIO as WORSE_RATIO
from ._summary import ModuleScores as ModuleScores
from ._summary import RelativeChange as RelativeChange
from ._summary import Statistic as Statistic
from ._summary import Worse as Worse
from ._summary import draw as draw
from ._summary import interval as interval
from ._summary import scores_of as scores_of
