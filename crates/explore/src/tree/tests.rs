//! What is marked at a decision for a race, and what is left to be explored there.

use super::*;
use trace::ThreadId;

fn choice(thread: u32, outcome: u8) -> Choice {
    Choice { actor: ThreadId(thread).into(), outcome }
}

fn sleeper(choice: Choice) -> Sleeper {
    Sleeper { choice, footprint: Arc::default() }
}

/// A decision at which t1 was chosen, with these choices asleep.
fn node(enabled: &[Choice], asleep: &[Choice]) -> Node {
    Node {
        enabled: enabled.iter().copied().collect(),
        current: None,
        preemptions: 0,
        chosen: choice(1, 0),
        marked: std::iter::once(Actor::from(ThreadId(1))).collect(),
        siblings: Siblings::new(Vec::new(), asleep.iter().copied().map(sleeper).collect()),
        ends: false,
        interleavings: 0,
    }
}

/// The threads that are to be explored besides t1 after a race that t2 or t3 would reverse, the second if
/// possible.
fn explored(enabled: &[Choice], asleep: &[Choice]) -> Vec<Choice> {
    let mut node = node(enabled, asleep);
    let initials = [2, 3].map(|thread| Actor::from(ThreadId(thread))).into_iter().collect();
    node.mark_one(&initials, ThreadId(3).into());
    assert_eq!(node.waiting_count(), node.waiting().count() as u64);
    node.waiting().collect()
}

#[test]
fn one_initial_is_marked_unless_one_is_covered() {
    let all = [choice(1, 0), choice(2, 0), choice(3, 0)];
    assert_eq!(explored(&all, &[]), [choice(3, 0)]);
    // What t2 would do first has been explored from an equivalent state.
    assert_eq!(explored(&all, &[choice(2, 0)]), []);
    assert_eq!(explored(&all, &[choice(3, 0)]), []);
}

#[test]
fn an_actor_is_asleep_with_all_its_outcomes() {
    let all = [choice(1, 0), choice(2, 0), choice(3, 0), choice(3, 1)];
    assert_eq!(explored(&all, &[]), [choice(3, 0), choice(3, 1)]);
    assert_eq!(explored(&all, &[choice(3, 0)]), [choice(3, 1)]);
    assert_eq!(explored(&all, &[choice(3, 0), choice(3, 1)]), []);
}
