//! Plain depth-first: every choice at every decision. What all reductions are measured against.

use crate::execution::{Execution, Taken};
use crate::footprint::Footprint;
use crate::tree::{Node, Nodes, Reduction};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trace::ChoiceSet;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DepthFirst;

impl Reduction for DepthFirst {
    fn learn(&mut self, _path: &[Taken], _nodes: &mut Nodes) {}

    fn forget(&mut self, _len: usize) {}

    fn end(&mut self, _execution: &Execution, _nodes: &mut Nodes) {}

    fn arrive(&mut self, node: &mut Node, _path: &[Taken], _nodes: &mut Nodes) -> ChoiceSet {
        node.marked = node.enabled.actors().collect();
        node.enabled.clone()
    }

    fn explored(&self, _at: usize) -> Option<Arc<Footprint>> {
        Some(Arc::default())
    }
}
