//! A finding told to a person or a program. Pure functions: no file, no clock, no terminal.
//!
//! [`compose`] turns the narrated steps of one execution and its finding into a [`Story`], in which
//! everything has a name and a source line; [`text`], [`html`] and [`json`] lay a story out. Whatever came
//! from the guest (names, messages, console lines, source text) is treated as hostile: see [`escape`].

mod brief;
mod classes;
mod compose;
pub mod escape;
mod fold;
pub mod html;
pub mod json;
pub mod matrix;
pub mod races;
pub mod section;
pub mod story;
pub mod text;
mod watched;
mod words;

pub use brief::brief;
pub use compose::{Awaited, Context, PassingSchedule, compose, worth_seeing};
pub use html::html;
pub use json::{Estimate, ExhaustedBefore, Summary, Verdict, json};
pub use races::{Detail, RaceStory, races, races_json};
pub use story::Story;
pub use text::{TextOptions, text};
pub use watched::{WatchedPage, watched_html};
pub use words::grouped;
