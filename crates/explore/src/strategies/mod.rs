//! Which executions to run: one file each.

pub mod delay_bound;
pub mod depth_first;
pub mod dpor;
pub mod guided;
pub mod pct;
pub mod pos;
pub mod preemption_bound;
pub mod random;
pub mod replay;
pub mod walks;

pub use delay_bound::DelayBound;
pub use depth_first::DepthFirst;
pub use dpor::Dpor;
pub use guided::{Guided, Halt, Route};
pub use pct::{Pct, Pcts};
pub use pos::{Pos, Poss};
pub use preemption_bound::PreemptionBound;
pub use random::{RandomWalk, RandomWalks};
pub use replay::{Replay, replay};
pub use walks::{Walk, Walks};
