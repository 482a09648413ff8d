//! One test checked in one call, for programs that want the answer and nothing else.
//!
//! Contract: the plan, the races and the limits are those of `rockfall test` without flags, on one core.
//! Nothing is kept; the budget and the host's wish to stop end the search, after which a bug is still made
//! short.

use crate::campaign::{Campaign, Setting};
use crate::code::Code;
use crate::failure::Failure;
use crate::finding_file::FindingFile;
use crate::host::Host;
use crate::initial::plan;
use crate::recipe::Recipe;
use crate::shorten::Shortened;
use crate::statement::Statement;
use crate::target::{Races, Target};
use crate::view::Unseen;
use explore::jobs::Mode;
use std::sync::Arc;
use std::time::Duration;

/// What came of a test.
pub enum Checked {
    /// A bug, with the schedule that shows it.
    Bug(Box<FindingFile>),
    /// No bug: what was exhausted, and what was not.
    NoBug(Box<Statement>),
}

pub fn check(recipe: Recipe, host: Arc<dyn Host>, budget: Duration) -> Result<Checked, Failure> {
    let target = Target::make(recipe, host)?;
    let world = target.world(target.start_checked(None)?.started);
    let code = Code::new(&target.kernel);
    let setting = Setting::new(&target, &world, &code, Races::Limited, budget);
    let mut campaign = Campaign::begin(setting, plan(&target, Mode::Deepening, Races::Limited, &[]));
    let Some((job, found)) = campaign.run(&mut Unseen) else {
        return Ok(Checked::NoBug(Box::new(Statement::of(&campaign, &target, campaign.ending()))));
    };
    let points = &campaign.plan.job(job).points;
    let short = Shortened::of(&world, points, &campaign.wider(points), &found, 1, target.host());
    Ok(Checked::Bug(Box::new(short.file(&target.recipe, campaign.interleavings()))))
}
