//! What a path teaches, whether its decisions were arrived at one by one or, by a search that was written
//! down and taken up again, are learned all at once.

use super::*;
use crate::history::tests::path;
use trace::Choice;

/// The decisions of a path. At the first one a thread is asleep that would do what `asleep` says.
fn nodes(path: &[Taken], asleep: &Taken) -> Nodes {
    let node = |taken: &Taken| Node {
        enabled: taken.enabled.clone(),
        current: None,
        preemptions: 0,
        chosen: taken.step.choice,
        marked: std::iter::once(taken.actor()).collect(),
        siblings: None,
        ends: false,
        interleavings: 0,
    };
    let mut list: Vec<Node> = path.iter().map(node).collect();
    let footprint = Arc::new(Footprint::of(&asleep.step));
    list[0].siblings = Siblings::new(Vec::new(), vec![Sleeper { choice: asleep.step.choice, footprint }]);
    of(list)
}

fn of(list: Vec<Node>) -> Nodes {
    let mut nodes = Nodes::default();
    nodes.list = list;
    nodes
}

/// What is to be explored at the first decision.
fn explored(nodes: &Nodes) -> Vec<Choice> {
    nodes.list[0].to_explore().collect()
}

#[test]
fn a_sleeper_that_is_disabled_still_races() {
    // Step 0 disables t2, which sleeps and would have written what t3 reads in step 1. So t3 must be tried in
    // place of t1.
    let path = path(
        "t1 of t1 t2 t3: w20
         t3 of t1 t3: r10
         t1 of t1 t3: w20",
    );
    let asleep = crate::history::tests::path("t2 of t1 t2 t3: w10").remove(0);
    let expected: Vec<Choice> = [&path[0], &path[1]].map(|taken| taken.step.choice).to_vec();

    let mut at_once = nodes(&path, &asleep);
    Dpor::default().learn(&path, &mut at_once);
    assert_eq!(explored(&at_once), expected);

    let mut one_by_one = nodes(&path, &asleep);
    let mut dpor = Dpor::default();
    for len in 1..path.len() {
        dpor.learn(&path[..len], &mut one_by_one);
        let mut node = one_by_one.list[len].clone();
        let mut before = of(one_by_one.list[..len].to_vec());
        dpor.arrive(&mut node, &path[..len], &mut before);
        one_by_one.list[..len].clone_from_slice(&before.list);
    }
    assert_eq!(explored(&one_by_one), expected);
}
