//! One file per command: its flags, and what it does with them.

pub mod check;
pub mod demo;
pub mod doctor;
pub mod explore;
pub mod init;
pub mod linux;
pub mod model;
pub mod new;
pub mod races;
pub mod replay;
pub mod report;
pub mod run;
pub mod test;
