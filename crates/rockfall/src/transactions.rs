//! Flags about hardware transactions: whether the processors have them, and how they are explored.
//!
//! Unless a flag says whether the processors have them, the code decides: the kernel's functions, the program
//! under test, and the program of the test's name. Programs that merely lie on the kernel's disk do not
//! count.

use campaign::Failure;
use campaign::recipe::TransactionRecipe;
use clap::{Args, ValueEnum};
use guest::driving::uniprocessor::transactions::Mode;

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
    /// Processors with hardware transactional memory (RTM) or without [default: with, if the code has
    /// transactions]
    #[arg(long, value_enum, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub tsx: Option<Switch>,
    /// How transactions are explored [default: codes]; see docs/transactions.md
    #[arg(long, value_enum, value_name = "HOW")]
    pub transactions: Option<How>,
    /// With --transactions real or weak: bytes of a cache line, by which conflicts are found [default: 64]
    #[arg(long, value_name = "BYTES")]
    pub line_size: Option<u32>,
    /// Sets and ways of the cache that holds what a transaction writes; one that writes more aborts [default:
    /// 64x8]
    #[arg(long, value_name = "SETSxWAYS", value_parser = parse_cache)]
    pub tsx_cache: Option<(u32, u32)>,
}

/// Sets and ways that a cache may have, each.
const CACHE_MAX: u32 = 1 << 16;

fn parse_cache(text: &str) -> Result<(u32, u32), String> {
    let numbers =
        text.split_once('x').and_then(|(sets, ways)| Some((sets.parse().ok()?, ways.parse().ok()?)));
    let fits = |&(sets, ways): &(u32, u32)| {
        sets.is_power_of_two() && sets <= CACHE_MAX && (1..=CACHE_MAX).contains(&ways)
    };
    numbers.filter(fits).ok_or_else(|| {
        format!("sets and ways such as 64x8 are needed, the sets a power of two up to {CACHE_MAX}")
    })
}

/// Bytes that a cache line may have.
const LINE_BYTES: std::ops::RangeInclusive<u32> = 8..=4096;

impl TransactionArguments {
    /// For a test of Linux, whose processors have transactions only if that is said, and execute them.
    pub fn linux_recipe(&self) -> Result<TransactionRecipe, Failure> {
        if self.transactions.is_some_and(|how| how != How::Real) {
            return Err(Failure::BadFlag(
                "a test of Linux executes transactions on its processors: of --transactions there is 'real' alone".to_owned(),
            ));
        }
        let recipe = self.recipe()?;
        Ok(TransactionRecipe { tsx: recipe.tsx.or(recipe.mode.map(|_| true)), ..recipe })
    }

    pub fn recipe(&self) -> Result<TransactionRecipe, Failure> {
        let refuse = |what: &str| Err(Failure::BadFlag(what.to_owned()));
        let speculative = self.transactions.is_some_and(|how| how.mode().is_speculative());
        if self.tsx == Some(Switch::Off) && self.transactions.is_some() {
            return refuse(
                "--transactions says how transactions are explored, and --tsx=off that there are none",
            );
        }
        if self.tsx == Some(Switch::Off) && self.tsx_cache.is_some() {
            return refuse("--tsx-cache is about transactions, and --tsx=off says that there are none");
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
            cache: self.tsx_cache,
        })
    }
}
