//! Which interleavings to run next.
//!
//! A [`Strategy`] names executions, a [`Runner`] executes them on a [`World`] (a [`trace::Subject`] and its
//! [`Observer`]s). Systematic strategies are a [`Tree`] with a [`tree::Reduction`] that says which branches
//! matter.
//!
//! A [`Search`] divides one tree among [`Workers`] and can be written down between rounds; `icb` raises a
//! preemption bound step by step; `sample` lets chance decide; `minimize` makes a found schedule readable.
//!
//! ```
//! use explore::strategies::{Dpor, replay};
//! use explore::toy::{Program, Toy};
//! use explore::{Options, Search, Verdict, Workers, World};
//!
//! let program: Program = "lock0 lock1 unlock1 unlock0 | lock1 lock0 unlock0 unlock1".parse().unwrap();
//! let points = "lock".parse().unwrap();
//! let detectors = detect::Detectors::new(&detect::Config::default());
//! let world = World::new(Toy::new(program), detectors);
//!
//! let options = Options::default();
//! let mut workers = Workers::new(2, &world, &points, options.depth_max, 1 << 20);
//! let mut search: Search<Dpor, ()> = Search::new(Dpor::default(), options);
//! search.run(&mut workers, &|| false, &mut |search| println!("{:?}", search.forecast()));
//!
//! let Verdict::Bug(found) = search.verdict(None) else { panic!("a deadlock") };
//! let again = replay(world, &points, &found.schedule, usize::MAX, true);
//! assert!(again.findings.contains(&found.finding));
//! ```
//!
//! This crate knows no CPU, no kernel and no symbol; it is developed and proved on the toy programs of
//! [`toy`]. Nothing here reads a clock: budgets come as counts or as a question put to the caller.

pub mod communication;
pub mod crash;
pub mod estimate;
pub mod execution;
pub mod footprint;
pub mod history;
pub mod icb;
pub mod jobs;
pub mod minimize;
pub mod notes;
pub mod order;
pub mod prove;
pub mod random;
pub mod run;
pub mod sample;
pub mod scout;
pub mod search;
pub mod strategies;
pub mod sweep;
pub mod tally;
pub mod toy;
pub mod trail;
pub mod tree;
mod trunk;
pub mod verdict;
pub mod watch;
pub mod workers;
pub mod world;

pub use communication::{Communication, Noted};
pub use execution::{Decision, End, Execution, Taken};
pub use footprint::{Footprint, LockOrder};
pub use notes::Notes;
pub use order::Order;
pub use run::{Bounds, Effort, Runner, Strategy};
pub use scout::Scout;
pub use search::{Options, Search, Until};
pub use sweep::Sweep;
pub use trail::Trail;
pub use tree::Tree;
pub use verdict::{Bound, Found, Verdict};
pub use watch::RaceWatch;
pub use workers::Workers;
pub use world::{Observed, Observer, World};
