use std::time::Duration;

use proptest::prelude::*;

use super::*;

const A: AssignmentId = AssignmentId(1);
const B: AssignmentId = AssignmentId(2);

fn at_most(messages: usize) -> Limit {
    Limit {
        messages,
        bytes: usize::MAX,
    }
}

fn lane(assignment: AssignmentId) -> LaneKey {
    LaneKey::Assignment(assignment)
}

fn filled(items: &[(AssignmentId, u32)]) -> LaneTable<u32> {
    let mut lanes = LaneTable::new();
    for &(assignment, item) in items {
        lanes.push(lane(assignment), item, 1);
    }
    lanes
}

#[test]
fn a_batch_takes_what_waits_from_several_lanes_each_in_order() {
    let mut lanes = filled(&[(A, 1), (B, 10), (A, 2), (B, 11)]);
    let taken = lanes.take(at_most(3)).unwrap();
    assert_eq!(taken.items, [1, 2, 10]);
    assert_eq!(
        lanes.ready_items(),
        0,
        "what is behind a running item does not run"
    );
    assert!(lanes.take(at_most(3)).is_none());
}

#[test]
fn a_lane_goes_on_behind_what_was_settled() {
    let mut lanes = filled(&[(A, 1), (A, 2), (A, 3)]);
    let taken = lanes.take(at_most(2)).unwrap();
    lanes.finish(taken.lanes[0].0, 1, Company::Same, None);
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [2, 3]);
}

#[test]
fn what_has_not_been_tried_can_be_put_first() {
    let mut lanes = filled(&[(A, 1), (B, 10)]);
    let taken = lanes.take(at_most(9)).unwrap();
    let [(a, _), (b, _)] = taken.lanes[..] else {
        panic!("{taken:?}")
    };
    lanes.finish(a, 0, Company::Alone(0), None);
    lanes.set_back(b);
    lanes.finish(b, 0, Company::Same, None);
    lanes.push(lane(AssignmentId(3)), 30, 1);
    lanes.untried_first();
    let mut one_by_one = Vec::new();
    while let Some(taken) = lanes.take(at_most(1)) {
        one_by_one.extend(taken.items);
    }
    assert_eq!(one_by_one, [30, 1, 10]);
    lanes.untried_first();
    assert_eq!(lanes.ready_items(), 0);
}

#[test]
fn the_culprit_runs_alone_and_the_later_ones_wait_for_it() {
    let mut lanes = filled(&[(A, 1), (A, 2), (A, 3), (B, 10)]);
    let taken = lanes.take(at_most(9)).unwrap();
    let [(a, 3), (b, 1)] = taken.lanes[..] else {
        panic!("{taken:?}")
    };
    lanes.finish(b, 1, Company::Same, None);
    lanes.finish(a, 1, Company::Alone(0), None);
    let alone = lanes.take(at_most(9)).unwrap();
    assert_eq!((alone.items, alone.split), (vec![2], true));
    lanes.finish(a, 1, Company::Same, None);
    let rest = lanes.take(at_most(9)).unwrap();
    assert_eq!((rest.items, rest.split), (vec![3], false));
}

#[test]
fn what_must_run_alone_is_passed_over_and_not_forgotten() {
    let mut lanes = filled(&[(B, 10), (A, 1)]);
    let taken = lanes.take(at_most(9)).unwrap();
    lanes.finish(taken.lanes[1].0, 0, Company::Alone(0), None);
    lanes.finish(taken.lanes[0].0, 0, Company::Same, None);
    lanes.push(lane(AssignmentId(3)), 30, 1);
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [1]);
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [10, 30]);
}

#[test]
fn a_batch_that_failed_without_a_culprit_comes_back_in_halves() {
    let mut lanes = filled(&[(A, 1), (A, 2), (A, 3), (A, 4)]);
    for half in [2, 1] {
        let taken = lanes.take(at_most(9)).unwrap();
        lanes.finish(taken.lanes[0].0, 0, Company::AtMost(half), None);
    }
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [1]);
}

#[test]
fn a_lane_that_waits_lets_others_go_first() {
    let mut lanes = filled(&[(A, 1), (B, 10)]);
    let taken = lanes.take(at_most(1)).unwrap();
    let later = Instant::now() + Duration::from_secs(1);
    lanes.finish(taken.lanes[0].0, 0, Company::Alone(0), Some(later));
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [10]);
    assert_eq!(lanes.next_wake(), Some(later));
    lanes.wake(later);
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [1]);
}

#[test]
fn bytes_bound_a_batch_but_never_stop_a_single_event() {
    let mut lanes = LaneTable::new();
    for item in [1, 2] {
        lanes.push(lane(A), item, 100);
    }
    let limit = Limit {
        messages: 9,
        bytes: 50,
    };
    assert_eq!(lanes.take(limit).unwrap().items, [1]);
}

#[test]
fn when_an_assignment_ends_what_runs_ends_and_the_rest_is_given_back() {
    let mut lanes = filled(&[(A, 1), (A, 2), (B, 10)]);
    let taken = lanes.take(at_most(1)).unwrap();
    assert_eq!(lanes.end(A), [2]);
    assert!(lanes.is_running(A));
    assert_eq!(lanes.finish(taken.lanes[0].0, 0, Company::Same, None), [1]);
    assert!(!lanes.is_running(A));
    assert_eq!(lanes.take(at_most(9)).unwrap().items, [10]);
}

#[test]
fn deliveries_without_order_are_lanes_of_their_own() {
    let mut lanes = LaneTable::new();
    for item in [1, 2, 3] {
        lanes.push(LaneKey::Alone(A), item, 1);
    }
    let taken = lanes.take(at_most(2)).unwrap();
    assert_eq!(taken.lanes.len(), 2);
    lanes.finish(taken.lanes[0].0, 0, Company::Alone(0), Some(Instant::now()));
    assert_eq!(lanes.take(at_most(2)).unwrap().items, [3]);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64),
    Take(usize),
    /// Which unit ends, how many of each lane it settled, and how the rest goes on.
    Finish(usize, usize, u8),
    Wake,
    End(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u64).prop_map(Step::Push),
        2 => (1..6usize).prop_map(Step::Take),
        3 => (0..3usize, 0..4usize, 0..4u8).prop_map(|(unit, settled, on)| Step::Finish(unit, settled, on)),
        1 => Just(Step::Wake),
        1 => (0..4u64).prop_map(Step::End),
    ]
}

proptest! {
    /// Whatever happens: each item leaves once, those of a lane leave in order, none of a lane runs
    /// while another of it does, and the count of what may run is right.
    #[test]
    fn nothing_is_lost_doubled_or_overtaken(steps in proptest::collection::vec(step(), 1..200)) {
        let mut lanes = LaneTable::new();
        let (mut pushed, mut left, mut next) = (Vec::new(), Vec::new(), 0u32);
        let mut units: Vec<Taken<(u64, u32)>> = Vec::new();
        let mut last_settled = [None; 4];
        let mut ended = Vec::new();
        for step in steps {
            match step {
                // An assignment that has ended is never heard of again.
                Step::Push(a) if ended.contains(&a) => {}
                Step::Push(a) => {
                    lanes.push(LaneKey::Assignment(AssignmentId(a)), (a, next), 1);
                    pushed.push((a, next));
                    next += 1;
                }
                Step::Take(most) => {
                    if let Some(taken) = lanes.take(at_most(most)) {
                        prop_assert!(taken.items.len() <= most);
                        let running: Vec<_> = units.iter().flat_map(|u| &u.lanes).map(|l| l.0).collect();
                        prop_assert!(taken.lanes.iter().all(|l| !running.contains(&l.0)));
                        units.push(taken);
                    }
                }
                Step::Finish(unit, settle, on) => {
                    if units.is_empty() {
                        continue;
                    }
                    let taken = units.remove(unit % units.len());
                    let mut from = 0;
                    for (id, count) in taken.lanes {
                        let items = &taken.items[from..from + count];
                        from += count;
                        let settled = settle.min(count);
                        for &(a, item) in &items[..settled] {
                            let last = &mut last_settled[usize::try_from(a).unwrap()];
                            prop_assert!(last.is_none_or(|last| last < item), "overtaken");
                            *last = Some(item);
                            left.push((a, item));
                        }
                        let (company, until) = match on {
                            0 => (Company::Same, None),
                            1 => (Company::Alone(0), Some(Instant::now())),
                            2 => (Company::AtMost(count / 2), None),
                            _ => (Company::AtMost(1), Some(Instant::now())),
                        };
                        left.extend(lanes.finish(id, settled, company, until));
                    }
                }
                Step::Wake => lanes.wake(Instant::now()),
                Step::End(a) => {
                    ended.push(a);
                    left.extend(lanes.end(AssignmentId(a)));
                }
            }
            let ready: usize = (lanes.by_id.values())
                .filter(|lane| lane.state == State::Ready)
                .map(|lane| lane.queue.len())
                .sum();
            prop_assert_eq!(lanes.ready_items(), ready);
            for a in 0..4u64 {
                let of = |which: fn(&State) -> bool| {
                    let key = LaneKey::Assignment(AssignmentId(a));
                    let lanes = lanes.by_id.values().filter(move |lane| lane.key == key);
                    lanes.filter(move |lane| which(&lane.state))
                };
                let waiting = of(|state| matches!(state, State::Waiting(_)));
                let held: usize = waiting.map(|lane| lane.queue.len()).sum();
                prop_assert_eq!(lanes.held(AssignmentId(a)), Amount { messages: held, bytes: held });
                let running = of(|state| matches!(state, State::Running(_))).count() > 0;
                prop_assert_eq!(lanes.is_running(AssignmentId(a)), running);
            }
        }
        for taken in units {
            for (id, _) in taken.lanes {
                left.extend(lanes.finish(id, 0, Company::Same, None));
            }
        }
        left.extend(lanes.end_all());
        left.sort_by_key(|&(_, item)| item);
        prop_assert_eq!(left, pushed);
    }
}
