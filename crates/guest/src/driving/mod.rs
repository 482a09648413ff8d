//! How it is driven: subjects, steps, points, the way to the test.

mod cache_lines;
mod cancellation;
pub mod compiled;
pub mod everywhere;
pub mod lifecycle;
pub mod linux_run;
pub mod multiprocessor;
pub mod recorder;
pub mod spinning;
pub mod step_builder;
mod store_buffers;
mod transaction;
pub mod uniprocessor;
