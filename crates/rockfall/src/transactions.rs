//! Flags about hardware transactions: whether the processors have them, and how they are explored.
//!
//! Unless a flag says whether the processors have them, the code decides: the kernel's functions, the program
//! under test, and the program of the test's name. Programs that merely lie on the kernel's disk do not
//! count.

use campaign::Failure;
use campaign::recipe::TransactionRecipe;
use clap::{Args, ValueEnum};
use guest::uniprocessor::transactions::Mode;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum How {
    /// One step, or an abort at once with the status "retry"
    Retry,
    /// As 'retry', and also "conflict" where another thread's access makes one possible
    Codes,
    /// As software does it: no abort without a reason
    Stm,
    /// As software without strong atomicity: code outside of transactions may come in between
    Weak,
    /// Executed speculatively, with preemption inside and roll-back: slow, to check the others
    Real,
}

impl How {
    const fn mode(self) -> Mode {
        match self {
            Self::Retry => Mode::Retry,
            Self::Codes => Mode::Codes,
            Self::Stm => Mode::Stm,
            Self::Weak => Mode::Weak,
            Self::Real => Mode::Real,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Args, Clone, Debug, Default)]
pub struct TransactionArguments {
    /// Processors with hardware transactional memory (RTM) or without [default: with, if the code has transactions]
    #[arg(long, value_enum, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub tsx: Option<Switch>,
    /// How transactions are explored [default: codes]; see docs/transactions.md
    #[arg(long, value_enum, value_name = "HOW")]
    pub transactions: Option<How>,
    /// With --transactions real or weak: bytes of a cache line, by which conflicts are told [default: 64]
    #[arg(long, value_name = "BYTES")]
    pub line_size: Option<u32>,
}

/// Bytes that a cache line may have.
const LINE_BYTES: std::ops::RangeInclusive<u32> = 8..=4096;

impl TransactionArguments {
    /// Whether any of these flags is given.
    pub const fn is_given(&self) -> bool {
        self.tsx.is_some() || self.transactions.is_some() || self.line_size.is_some()
    }

    pub fn recipe(&self) -> Result<TransactionRecipe, Failure> {
        let refuse = |what: &str| Err(Failure::BadFlag(what.to_owned()));
        let speculative = self.transactions.is_some_and(|how| how.mode().is_speculative());
        if self.tsx == Some(Switch::Off) && self.transactions.is_some() {
            return refuse(
                "--transactions says how transactions are explored, and --tsx=off that there are none",
            );
        }
        if let Some(bytes) = self.line_size {
            if !speculative {
                return refuse(
                    "--line-size needs --transactions real or weak: elsewhere a transaction is one step, whose conflicts \
                     are told to the byte",
                );
            }
            if !bytes.is_power_of_two() || !LINE_BYTES.contains(&bytes) {
                let (low, high) = LINE_BYTES.into_inner();
                return refuse(&format!(
                    "--line-size {bytes}: a power of two from {low} to {high} is needed"
                ));
            }
        }
        Ok(TransactionRecipe {
            tsx: self.tsx.map(|tsx| tsx == Switch::On),
            mode: self.transactions.map(How::mode),
            line_bytes: self.line_size,
        })
    }
}
