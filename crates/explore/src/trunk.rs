//! The decisions of a search that lie above all of its tasks; see `search.rs`.

use crate::tree::{Node, Request, Siblings, Sleeper};
use serde::{Deserialize, Serialize};
use trace::Choice;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum State {
    Waiting,
    Task(u32),
    Trunk(u32),
    Explored,
}

/// A child of a decision of the trunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Child {
    pub choice: Choice,
    /// The first step of the child, once that was taken.
    pub entry: Option<Sleeper>,
    /// How many interleavings end with the child's first step; when the child is explored, all of its
    /// interleavings.
    pub interleavings: u64,
    pub state: State,
}

/// A decision of the trunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Branching {
    pub parent: Option<u32>,
    pub depth: usize,
    pub node: Node,
    pub children: Vec<Child>,
}

impl Branching {
    /// A decision of the trunk made from one of a tree, whose current choice goes on as `state`.
    pub fn of(node: Node, parent: Option<u32>, depth: usize, state: State, entry: Option<Sleeper>) -> Self {
        let mut children: Vec<Child> = Vec::new();
        let mut interleavings = node.interleavings;
        for done in node.done() {
            let (choice, entry, state) = (done.choice, Some(done.clone()), State::Explored);
            children.push(Child { choice, entry, interleavings: std::mem::take(&mut interleavings), state });
        }
        children.push(Child { choice: node.chosen, entry, interleavings: 0, state });
        for choice in node.waiting() {
            children.push(Child { choice, entry: None, interleavings: 0, state: State::Waiting });
        }
        Self { parent, depth, node, children }
    }

    pub fn mark(&mut self, request: &Request) {
        if request.all {
            for actor in request.initials.iter() {
                self.node.marked.insert(actor);
            }
        } else {
            self.node.mark_one(&request.initials, request.prefer);
        }
        let children = &mut self.children;
        let new: Vec<Choice> = self
            .node
            .to_explore()
            .filter(|&choice| children.iter().all(|child| child.choice != choice))
            .collect();
        let waiting = |choice| Child { choice, entry: None, interleavings: 0, state: State::Waiting };
        children.extend(new.into_iter().map(waiting));
    }

    pub fn child_of_task(&mut self, task: u32) -> &mut Child {
        let is_this = |child: &&mut Child| matches!(child.state, State::Task(id) if id == task);
        self.children.iter_mut().find(is_this).expect("a task is a child of its parent")
    }

    /// How many children wait.
    pub fn waiting(&self) -> usize {
        self.children.iter().filter(|child| matches!(child.state, State::Waiting)).count()
    }

    /// Whether nothing below is left to explore.
    pub fn is_explored(&self) -> bool {
        self.children.iter().all(|child| matches!(child.state, State::Explored))
    }

    /// The first child that waits, if the first steps of those before are known.
    pub fn ready_child(&self) -> Option<usize> {
        let first = self.children.iter().position(|child| matches!(child.state, State::Waiting))?;
        let known = |child: &Child| child.entry.is_some() || matches!(child.state, State::Explored);
        self.children[..first].iter().all(known).then_some(first)
    }

    /// The decision as seen from below `child`: its elder siblings are explored.
    pub fn choosing(&self, child: usize) -> Node {
        let Node { enabled, current, preemptions, marked, interleavings, .. } = &self.node;
        let done = self.children[..child].iter().filter_map(|child| child.entry.clone()).collect();
        Node {
            enabled: enabled.clone(),
            current: *current,
            preemptions: *preemptions,
            chosen: self.children[child].choice,
            marked: marked.clone(),
            siblings: Siblings::new(done, self.node.sleep().to_vec()),
            ends: false,
            interleavings: *interleavings,
        }
    }
}
