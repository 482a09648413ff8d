//! A whole program on top of the library: `cargo run --release --example check_kernel -- KERNEL DESCRIPTION TEST` explores a
//! test of a kernel on one core for a minute, and prints the bug with the schedule that shows it, or what was proved.
#![expect(clippy::disallowed_types, reason = "a program may look at the clock")]

use campaign::Failure;
use campaign::campaign::{Campaign, Setting};
use campaign::code::Code;
use campaign::described::{description, memory_needed};
use campaign::host::Host;
use campaign::initial::plan;
use campaign::recipe::Recipe;
use campaign::shorten::Shortened;
use campaign::statement::Statement;
use campaign::target::{Races, Target};
use campaign::view::Unseen;
use explore::jobs::Mode;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The files and the clock of this host; nobody interrupts.
struct Here(std::time::SystemTime);

impl Host for Here {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn folder(&self, path: &Path) -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn now(&self) -> Duration {
        self.0.elapsed().unwrap_or_default()
    }

    fn stop_asked(&self) -> bool {
        false
    }
}

fn check(kernel: &str, described: &str, test: &str) -> Result<String, Failure> {
    let host: Arc<dyn Host> = Arc::new(Here(std::time::SystemTime::now()));
    let (description_name, description) = description(&*host, described)?;
    let memory_bytes = memory_needed(&description_name, &description)?;
    let recipe = Recipe {
        kernel: kernel.into(),
        description_name,
        description,
        test: test.to_owned(),
        memory_bytes,
        ..Recipe::default()
    };
    let target = Target::make(recipe, host)?;
    let world = target.world(target.start_checked(None)?.started);
    let code = Code::new(&target.kernel);
    let setting = Setting::new(&target, &world, &code, Races::Limited, Duration::from_secs(60));
    let mut campaign = Campaign::begin(setting, plan(&target, Mode::Deepening, Races::Limited, &[]));
    let Some((job, found)) = campaign.run(&mut Unseen) else {
        return Ok(Statement::of(&campaign, &target, campaign.ending()).text());
    };
    let points = &campaign.plan.job(job).points;
    let short = Shortened::of(&world, points, &campaign.wider(points), &found, 1, target.host());
    Ok(format!("{}\n  schedule: {}\n", short.found.finding.headline(), short.found.schedule))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, description, test] = &arguments[..] else {
        return eprintln!("usage: check_kernel KERNEL DESCRIPTION TEST");
    };
    match check(kernel, description, test) {
        Ok(told) => print!("{told}"),
        Err(failure) => eprintln!("{failure}"),
    }
}
