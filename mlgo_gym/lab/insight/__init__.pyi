from ._decision_changes import FunctionChange as FunctionChange
from ._decision_changes import ModuleChange as ModuleChange
from ._decision_changes import OtherDecision as OtherDecision
from ._decision_changes import compare_decisions as compare_decisions
from ._decisions import PlacedDecision as PlacedDecision
from ._decisions import PlacedDecisions as PlacedDecisions
from ._decisions import place_decisions as place_decisions
from ._decisions import placed_decisions as placed_decisions
