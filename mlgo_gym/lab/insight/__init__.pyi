from ._decision_changes import compare_decisions as compare_decisions
from ._placed_decisions import place_decisions as place_decisions
