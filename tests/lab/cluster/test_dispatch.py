"""Which worker gets what: sizes of batches, orders, and workers that are lost."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from mlgo_gym.lab.cluster._dispatch import BATCH_S, LEAST_S, Dispatch, ItemBatch
from mlgo_gym.llvm._schedule import Made

Given = dict[int, list[ItemBatch[int]]]


def started(
    items: Iterable[int], workers: int, *, in_order: bool = False
) -> tuple[Dispatch[int], Given]:
    """A dispatch, and what workers were given at first."""
    dispatch: Dispatch[int] = Dispatch(items, in_order=in_order)
    for worker in range(workers):
        dispatch.join(worker)
    return dispatch, given(dispatch, {worker: [] for worker in range(workers)})


def given(dispatch: Dispatch[int], known: Given) -> Given:
    for worker, batch in dispatch.hand_out():
        known[worker].append(batch)
    return known


def finish(dispatch: Dispatch[int], known: Given, worker: int, item_s: float = 1.0) -> None:
    """A worker does its first batch."""
    batch = known[worker].pop(0)
    outcomes = [Made(None, (2 * item,)) for item in batch.items]
    dispatch.finish(worker, batch, outcomes, item_s * len(batch.items))


def taken(dispatch: Dispatch[int]) -> list[int]:
    return [item for item, _ in dispatch.take()]


def test_long_items_are_given_one_by_one() -> None:
    dispatch, known = started(range(1000), 2)
    assert [[each.items for each in known[worker]] for worker in known] == [[(0,)], [(1,)]]
    finish(dispatch, known, 1, item_s=2 * BATCH_S)
    assert [each.items for each in given(dispatch, known)[1]] == [(2,)]
    assert taken(dispatch) == [1]


def test_short_items_are_given_many_at_once_and_ahead() -> None:
    dispatch, known = started(range(1000), 2)
    finish(dispatch, known, 0, item_s=BATCH_S / 50)
    given(dispatch, known)
    assert [len(each.items) for each in known[0]] == [50, 50]
    finish(dispatch, known, 1, item_s=BATCH_S / 50)
    given(dispatch, known)
    assert [len(each.items) for each in known[1]] == [50, 50]


def test_the_rest_is_shared() -> None:
    """Nobody gets more than a part of what is left, but for what is done in no time."""
    dispatch, known = started(range(82), 2)
    finish(dispatch, known, 0, item_s=LEAST_S / 5)
    given(dispatch, known)
    assert [len(each.items) for each in known[0]] == [10, 8]
    sizes = []
    while known[0]:
        sizes.append(len(known[0][0].items))
        finish(dispatch, known, 0, item_s=LEAST_S / 5)
        taken(dispatch)
        given(dispatch, known)
    assert min(sizes[:-1]) == 5


def test_nobody_runs_far_ahead_of_who_takes() -> None:
    dispatch, known = started(range(1000), 2)
    for _ in range(100):
        for worker in known:
            if known[worker]:
                finish(dispatch, known, worker, item_s=BATCH_S)
        given(dispatch, known)
    assert len(taken(dispatch)) == 8
    assert not dispatch.is_finished


def test_the_order_of_the_items() -> None:
    dispatch, known = started(range(6), 3, in_order=True)
    finish(dispatch, known, 2)
    finish(dispatch, known, 1)
    assert taken(dispatch) == []
    finish(dispatch, known, 0)
    assert taken(dispatch) == [0, 1, 2]


def test_nothing_to_do() -> None:
    dispatch, _ = started((), 1)
    assert dispatch.is_finished


def test_what_a_lost_worker_had_is_done_first_and_once() -> None:
    dispatch, known = started(range(10), 2)
    dispatch.lose(0)
    late = known.pop(0)[0]
    finish(dispatch, known, 1)
    assert [each.items for each in given(dispatch, known)[1]] == [(0,)]
    dispatch.finish(0, late, [Made(None, (0,))], 1.0)  # it was not dead after all
    found = taken(dispatch)
    while known[1]:
        finish(dispatch, known, 1)
        found += taken(dispatch)
        given(dispatch, known)
    assert found == [1, 0, *range(2, 10)]
    assert dispatch.is_finished


def test_an_item_that_loses_every_worker() -> None:
    """It fails, and what was behind it is nobody's fault."""
    dispatch, known = started((7, 8), 1)
    for worker in range(4):
        (batch,) = given(dispatch, known)[worker]
        assert batch.items == (7,)
        dispatch.lose(worker)
        dispatch.join(worker + 1)
        known[worker + 1] = []
    ((item, outcome),) = dispatch.take()
    assert (item, outcome.made) == (7, ())
    assert str(outcome.error) == (
        "module '7': expected a worker that does it, found 4 that were lost over it"
    )
    finish(dispatch, given(dispatch, known), 4)
    assert taken(dispatch) == [8]
    given(dispatch, known)
    assert dispatch.is_finished


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("in_order", [False, True])
def test_any_course_of_events(seed: int, in_order: bool) -> None:
    """Workers come and go; everything is done, and taken once."""
    random = Random(seed)  # noqa: S311
    count = random.randrange(1, 300)
    dispatch, known = started(range(count), 3, in_order=in_order)
    found: list[Any] = []
    losses = 0
    while not dispatch.is_finished:
        given(dispatch, known)
        busy = [worker for worker in known if known[worker]]
        if losses < 3 and random.random() < 0.1:
            losses += 1
            worker = random.choice(list(known))
            dispatch.lose(worker)
            del known[worker]
            known[max(known, default=0) + 10] = []
            dispatch.join(max(known))
        elif busy:
            finish(dispatch, known, random.choice(busy), random.choice([1e-3, 0.1, 1.0]))
        if random.random() < 0.5:
            found += dispatch.take()
    assert sorted(item for item, _ in found) == list(range(count))
    assert all(outcome.made == (2 * item,) for item, outcome in found)
    assert not in_order or [item for item, _ in found] == list(range(count))
