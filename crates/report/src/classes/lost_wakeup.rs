//! Nobody can go on, and no lock explains it.

use super::Class;
use crate::story::SideView;
use crate::words::{Facts, list, who};

pub struct LostWakeup;

impl Class for LostWakeup {
    fn title(&self, _program: bool) -> &'static str {
        "Lost wakeup"
    }

    fn ending(&self) -> String {
        "nobody is left to run".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let parts: Vec<_> = facts.sides.iter().map(|side| wait_in_words(facts, side)).collect();
        match parts.is_empty() {
            true => "Nobody can run, yet the test is not over.".to_string(),
            false => format!("Nobody can run, yet the test is not over: {}.", parts.join("; ")),
        }
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        let (since, stale) = (facts.since(), &facts.stale);
        if !facts.forgotten.is_empty() {
            return format!(
                "{} can run, but the scheduler never picks it. Look at how a thread gets into the run queue: who else \
                 changes the queue before that is done?{since}{stale}",
                list(&facts.forgotten)
            );
        }
        if !facts.rounds.is_empty() {
            return format!(
                "{} and would have to see a change that nobody is left to make. Look at what the condition of that loop \
                 reads: which thread should have changed it, or has another one changed it back?{}{since}{stale}",
                list(&facts.rounds),
                facts.noticed
            );
        }
        format!(
            "Somebody was woken before it slept, or is never woken. Look for a check of a condition and the sleep that \
             follows it: can another thread change the condition and wake in between?{since}{stale}{}",
            facts.premature
        )
    }
}

fn wait_in_words(facts: &Facts<'_>, side: &SideView) -> String {
    let (who, at) = (who(side), side.place.in_words());
    match &side.waits_for {
        Some(what) => format!("{who} waits for {what} in {at}"),
        None if facts.forgotten.iter().any(|forgotten| forgotten == who) => {
            format!("{who} is ready to run, and never does")
        }
        None if side.loops => format!("{who} goes round in a loop in {at}"),
        None => format!("{who} waits in {at}"),
    }
}
