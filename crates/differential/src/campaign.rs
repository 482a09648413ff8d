//! Many cases in a row, and what came of them.

use crate::compare::{Pair, Verdict};
use crate::generate::{Generator, Kind};
use crate::screen::disassemble;
use iced_x86::Code;
use std::collections::{BTreeMap, BTreeSet};

/// How many cases start from the same contents of memory.
const BATCH: u64 = 256;

#[derive(Default)]
pub struct Summary {
    pub agreed: u64,
    /// Instruction forms, by operand types, that sequences which agreed were made of.
    pub forms: BTreeSet<Code>,
    pub unfinished: u64,
    /// How many sequences reached something that the machine does not have, by its name.
    pub unsupported: BTreeMap<String, u64>,
    pub differed: u64,
    /// Reports of differing cases, minimized: one for each topic, with the number of its cases.
    pub differences: BTreeMap<String, (u64, String)>,
}

/// Runs until `sequences` cases agreed or `differences_max` differed.
pub fn run(
    pair: &mut Pair,
    seed: u64,
    kind: Kind,
    sequences: u64,
    differences_max: u64,
    mut progress: impl FnMut(&Summary),
) -> Summary {
    let mut summary = Summary::default();
    let mut generator = Generator::new(seed, pair.mode, kind);
    let mut tried = 0;
    while summary.agreed < sequences && summary.differed < differences_max {
        if tried % BATCH == 0 {
            pair.set_memory(generator.memory());
            progress(&summary);
        }
        tried += 1;
        let case = generator.case();
        match pair.check(&case) {
            Verdict::Agree => {
                summary.agreed += 1;
                summary.forms.extend(disassemble(&case).iter().map(|instr| instr.code()));
            }
            Verdict::Unfinished => summary.unfinished += 1,
            Verdict::Unsupported(what) => *summary.unsupported.entry(what).or_default() += 1,
            Verdict::Differ(found) => {
                let small = pair.minimize(&case);
                summary.differed += 1;
                let topic = pair.topic(&small);
                let entry = summary.differences.entry(topic).or_insert_with(|| {
                    let again = matches!(pair.check(&small), Verdict::Differ(_));
                    let once = if again { String::new() } else { format!("  seen only once: {found:?}\n") };
                    (0, pair.describe(&small) + &once)
                });
                entry.0 += 1;
            }
        }
    }
    summary
}
