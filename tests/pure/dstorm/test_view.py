"""The membership view: versions, changes, subscribers."""


from dstorm.queues.waits.waiting import Awaited
from dstorm.view import Change, FaultTolerantView, Member, View


def members(*some):
    return frozenset(Member(rank, incarnation) for rank, incarnation in some)


def test_where_no_rank_can_fail_nothing_changes():
    view, reports = View(3), []
    view.subscribe(reports.append)
    view.report()
    assert (view.alive, view.failed, view.version, view.lowest) == ((0, 1, 2), frozenset(), 0, 0)
    assert not view.can_change and not reports
    assert view.reachable(lambda rank: [rank + 1])(1) == [2]


def test_each_change_is_a_version():
    view = FaultTolerantView(4)
    view.change(failed=[0, 2])
    assert (view.alive, view.failed, view.version, view.lowest) == ((1, 3), {0, 2}, 1, 1)
    view.change(failed=[2])  # which is known
    assert view.version == 1
    assert view.reachable(lambda rank: [rank + 1])(1) == [0, 2, 3]  # any of them may become a neighbour


def test_a_rank_that_failed_is_taken_by_its_next_incarnation():
    view, reports = FaultTolerantView(3), []
    view.subscribe(reports.append)
    view.change(failed=[1])
    view.change(joined=[1, 0])  # rank 0 lives: nothing of it changes
    assert (view.alive, view.failed, view.version) == ((0, 1, 2), frozenset(), 2)
    assert [view.incarnation(rank) for rank in range(3)] == [0, 1, 0]
    view.change(failed=[1, 2])
    view.report()
    assert reports == [
        Change(1, members((1, 0)), members()),
        Change(2, members(), members((1, 1))),
        Change(3, members((1, 1), (2, 0)), members()),
    ]


def test_an_edge_to_a_former_incarnation_is_to_nobody_that_lives():
    view = FaultTolerantView(4)
    view.change(failed=[1, 2])
    view.change(joined=[1])
    former, present, any_one = (Awaited(1, heard_at=0.0, member=one) for one in (Member(1), Member(1, 1), None))
    other, failed = (Awaited(rank, heard_at=0.0, member=Member(rank)) for rank in (3, 2))
    assert view.to_living([former, present, any_one, other, failed]) == [present, any_one, other]


def test_subscribers_are_told_of_each_change_once_and_late_ones_of_all():
    view, first, second = FaultTolerantView(4), [], []
    view.subscribe(first.append)
    view.change(failed=[3])
    assert not first  # until it is reported
    view.report()
    view.report()
    view.subscribe(second.append)
    view.change(failed=[2])
    assert second == [Change(1, members((3, 0)), members())]
    view.report()
    assert first == second == [Change(1, members((3, 0)), members()), Change(2, members((2, 0)), members())]


def test_of_some_ranks_it_is_reported_alone():
    """Who has ended after all had come to the end has not failed."""
    view, reports = FaultTolerantView(4), []
    view.subscribe(reports.append)
    view.change(failed=[1, 3])
    view.change(failed=[2])
    view.report([3])
    assert reports == [Change(1, members((3, 0)), members())]
    view.report()
    assert reports[1:] == [Change(1, members((1, 0)), members()), Change(2, members((2, 0)), members())]


def test_a_subscriber_may_report():
    view, reports = FaultTolerantView(3), []
    view.subscribe(lambda change: (view.report(), reports.append(change.version)))
    view.change(failed=[1])
    view.change(failed=[2])
    view.report()
    assert sorted(reports) == [1, 2]
