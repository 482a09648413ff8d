//! `rockfall doctor`: a description checked against a run.

use crate::commands::explore::parse_duration;
use crate::interrupt::lateness;
use crate::target::{self, TargetArguments};
use crate::verdict::Verdict;
use campaign::Failure;
use clap::Args;
use guest::hooks::doctor::{Severity, examine};
use std::time::Duration;

/// Runs a test once and checks the kernel description against what happens.
#[derive(Args)]
#[command(after_help = "Example:\n  rockfall doctor kernel -k my.toml -t vanish_vanish")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub budget: Duration,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::end_at_once();
    let mut target = target::load(&arguments.target)?;
    target.stop_when(lateness(Some(arguments.budget)));
    println!("ok      every name in {} exists in the kernel", target.recipe.description_name);
    if let Some(tested) = &target.recipe.tested {
        println!("ok      every name in {} exists in the program, or may be missing", tested.library_name);
    }
    let started = target.start_counting().map_err(|failure| match failure {
        Failure::Interrupted(_) if !crate::interrupt::asked() => Failure::BadInput(format!(
            "the time was up before the test began: give more with --budget, which was {} s",
            arguments.budget.as_secs_f64()
        )),
        failure => failure,
    })?;
    let test = match target.recipe.test.as_str() {
        "" => "the test".into(),
        test => format!("the test '{test}'"),
    };
    println!(
        "ok      the kernel booted and {test} started after {} instructions",
        started.subject.machine.instructions()
    );
    let advice = examine(&started).advice;
    for advice in &advice {
        let word = match advice.severity {
            Severity::Wrong | Severity::Doubtful | Severity::Failed => "wrong",
            Severity::Remark => "remark",
            Severity::Fine => "ok",
        };
        match advice.line {
            Some(line) => println!("{word:7} {}:{line}: {}", target.recipe.description_name, advice.text),
            None => println!("{word:7} {}", advice.text),
        }
    }
    let wrong = advice.iter().filter(|advice| advice.severity < Severity::Remark).count();
    if wrong > 0 {
        let things = if wrong == 1 { "thing does" } else { "things do" };
        return Err(Failure::BadInput(format!(
            "{wrong} {things} not fit; each line above says what to mend"
        )));
    }
    Ok(Verdict::Fine)
}
