//! What its software means: descriptions, expressions, hooks, annotations, threads.

pub mod annotation;
pub mod description;
pub mod doctor;
pub mod expression;
pub mod init;
pub mod kernel;
pub mod program;
pub mod threads;
pub mod tracker;
