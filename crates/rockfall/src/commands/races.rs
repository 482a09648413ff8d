//! `rockfall races`: the data races of one run, by a detector of one's choice. Nothing is explored.

use crate::commands::test::Races;
use crate::target::{self, TargetArguments};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::campaign::options;
use campaign::code::Code;
use campaign::narrate::Names;
use campaign::race_witness::{RaceWitness, stories};
use campaign::words::counted;
use clap::Args;
use detect::{Race, RaceLog};
use explore::strategies::Dpor;
use explore::{Options, Search, Workers};
use report::Detail;
use std::collections::BTreeMap;
use trace::PointSet;

/// Runs a test once and lists its data races.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall races kernel -k pebbles -t vanish_vanish\n  \
    rockfall races kernel -k pebbles --program programs/counter_test --races lockset")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// How data races are reported
    #[arg(long, value_enum, default_value = "limited")]
    pub races: Races,
    /// Print one object for programs instead of text
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::end_at_once();
    let target = target::load(&arguments.target)?;
    crate::target::caution(&target);
    let started = target.start()?;
    let plain = target.world(started);
    let world = target.watched(&plain, arguments.races.into());
    let points = PointSet::default();
    let once = Options { interleavings_max: Some(1), ..options() };
    let mut workers = Workers::new(1, &world, &points, once.depth_max, 0);
    let mut search: Search<Dpor, Race> = Search::new(Dpor::default(), once);
    search.run(&mut workers, &|| false, &mut |_| {});
    let ending = search.verdict(None);
    let code = Code::new(&target.kernel);
    let (mut log, mut witnesses) = (RaceLog::default(), BTreeMap::new());
    // Words of stacks on which threads meet count once they are known to.
    let words = points.words.with(search.words().iter().copied());
    let points = PointSet { words, ..points };
    for (race, schedule) in search.notes().iter().filter(|(race, _)| code.counts(race)) {
        log.add(race, true);
        let witness =
            || RaceWitness { race: race.clone(), points: points.clone(), schedule: schedule.clone() };
        witnesses.entry(race.key()).or_insert_with(witness);
    }
    let stories = stories(log.iter(), &witnesses, &target, &plain, &code, None);
    if arguments.json {
        println!("{}", report::races_json(stories, &Names::of(&target)));
    } else {
        let what = target.what();
        println!("{what}: {} in one run", counted(log.iter().count(), "data race"));
        print!(
            "{}",
            report::races(
                stories,
                &Names::of(&target),
                &|file| target.source(file),
                Detail::Worst { rest: "--json" }
            )
        );
    }
    match ending {
        explore::Verdict::Bug(found) => {
            eprintln!("rockfall: the run ended with a bug: {}", found.finding.headline());
            Ok(Verdict::GuestBug)
        }
        explore::Verdict::Unsupported { .. } => {
            eprintln!("rockfall: the run did not come to its end: {ending}");
            Ok(Verdict::OwnBug)
        }
        _ => Ok(Verdict::Fine),
    }
}
