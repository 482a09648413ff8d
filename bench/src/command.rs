//! The subcommands.

use crate::guests::Guest;
use crate::landslide;
use crate::machine;
use crate::many_threads;
use crate::mokert;
use crate::ours::{self, Logging};
use crate::qemu::Qemu;
use crate::quicksand;
use crate::real;
use crate::sanitizers;
use crate::smp;
use crate::space::Space;
use crate::transactions;
use clap::Parser;

/// Measures Rockfall.
#[derive(Parser, Debug)]
#[command(name = "bench")]
pub enum Command {
    /// The speed of the machine, beside plain QEMU's on the same guests, and of clones.
    Machine(machine::Options),
    /// Bugs found, spaces exhausted and speed of exploring the bundled kernel, beside the figures of
    /// Landslide (2012).
    Landslide(landslide::Options),
    /// Bugs found and tests verified by each strategy in a fixed time, and how good forecasts are, as in
    /// Quicksand (2018).
    Quicksand(quicksand::Options),
    /// Models checked by Spin and tried on kernels, beside the case studies of MOKERT (2009).
    Mokert(mokert::Options),
    /// Faults in public kernels, made by edits of one line in sources that you have, looked for by plain
    /// `rockfall test`.
    Real(real::Options),
    /// Bugs of Linux modules and of released kernels found on two processors, and the speed of tests there.
    Linux(smp::Options),
    /// Bugs of one preemption among 3 to 50 threads, looked for by plain `rockfall test`.
    ManyThreads(many_threads::Options),
    /// What the sanitizers cost on guests that just run, and what they find in one run.
    Sanitizers(sanitizers::Options),
    /// Bugs found and spaces exhausted of programs with hardware transactions, as in the thesis' tables.
    Transactions(transactions::Options),
    /// Searches one space of the bundled kernel and prints what came of it as an object of JSON.
    Space(Space),
    /// Runs one benchmark guest and prints its phases as lines of JSON.
    Guest {
        /// hot, wide, hot64 or wide64
        name: String,
        /// How long.
        #[arg(long, default_value_t = 10)]
        repeat: u32,
        #[arg(long, value_enum, default_value_t = Engine::Untraced)]
        engine: Engine,
    },
}

/// What runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Engine {
    /// Plain QEMU.
    Qemu,
    /// Our machine.
    Untraced,
    /// Our machine with each memory access logged, the log read word by word and emptied.
    Traced,
    /// Our machine with each memory access logged, and handed over in full without most repetitions.
    Drained,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Untraced => "untraced",
            Self::Traced => "traced",
            Self::Drained => "drained",
        }
    }
}

impl Command {
    pub fn run(self) -> Result<(), String> {
        match self {
            Self::Machine(options) => machine::run(&options),
            Self::Landslide(options) => landslide::run(&options),
            Self::Quicksand(options) => quicksand::run(&options),
            Self::Mokert(options) => mokert::run(&options),
            Self::Real(options) => real::run(&options),
            Self::Linux(options) => smp::run(&options),
            Self::ManyThreads(options) => many_threads::run(&options),
            Self::Sanitizers(options) => sanitizers::run(&options),
            Self::Transactions(options) => transactions::run(&options),
            Self::Space(space) => {
                let outcome = space.search()?;
                println!("{}", serde_json::to_string(&outcome).map_err(|e| e.to_string())?);
                Ok(())
            }
            Self::Guest { name, repeat, engine } => {
                let guest = Guest::named(&name).ok_or_else(|| format!("no guest is called {name}"))?;
                let kernel = guest.build()?;
                let phases = match engine {
                    Engine::Qemu => {
                        Qemu::find(guest.is_long()).ok_or("QEMU is not installed")?.run(&kernel, repeat)?
                    }
                    Engine::Untraced => ours::run(&kernel, repeat, Logging::Off)?,
                    Engine::Traced => ours::run(&kernel, repeat, Logging::Words)?,
                    Engine::Drained => ours::run(&kernel, repeat, Logging::Events)?,
                };
                for phase in phases {
                    println!("{}", phase.to_json());
                }
                Ok(())
            }
        }
    }
}
