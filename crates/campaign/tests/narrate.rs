//! A finding is told in the time that there is: what takes another look at the execution is left out when it
//! is late, and the story is the same in everything else; where there is no time to see the bug again, there
//! is no story.

use campaign::check::{Checked, check};
use campaign::host::Host;
use campaign::narrate::{narrate, narrate_until};
use campaign::recipe::Recipe;
use campaign::target::Target;
use report::Story;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trace::Cancelled;

/// The files of this host, and a clock that stands still.
struct Here;

impl Host for Here {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }
    fn folder(&self, path: &Path) -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn stop_asked(&self) -> bool {
        false
    }
}

#[test]
fn who_is_late_tells_less_of_the_same() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("narrate");
    let kernel =
        guests::tiny::build(&["FAULT_TORN_SUM", "LONG", "LONG_ROUNDS=500000", "ROCKFALL_OFF"], &folder);
    let kernel = kernel.unwrap_or_else(|error| panic!("{error}"));
    let description = folder.join("tiny.toml");
    std::fs::write(&description, guests::tiny::DESCRIPTION).expect("written");
    let recipe = || {
        let recipe = Recipe::described(&Here, &kernel, &description.display().to_string(), "2");
        recipe.unwrap_or_else(|failure| panic!("{failure}"))
    };
    let checked = check(recipe(), Arc::new(Here), Duration::from_secs(60));
    let Ok(Checked::Bug(file)) = checked else { panic!("a bug") };
    let target = Target::make(recipe(), Arc::new(Here)).unwrap_or_else(|failure| panic!("{failure}"));
    let started = target.start_checked(None).unwrap_or_else(|failure| panic!("{failure}")).started;
    let world = target.world(started);
    let path = Path::new("a.finding.json");
    let whole = narrate(&target, &world, &file, path).unwrap_or_else(|failure| panic!("{failure}"));
    // Time is how often somebody looked whether it is over.
    let told_in = |time: u64| {
        let asked = AtomicU64::new(0);
        let late: Cancelled = Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= time);
        let told = narrate_until(&target, &world, &file, path, &late);
        told.unwrap_or_else(|failure| panic!("{failure}"))
    };
    assert!(told_in(0).is_none(), "nobody asked whether there is time for it");
    // The shortest time in which there is a story lies above one in which there is none.
    let mut enough = 1;
    while told_in(enough).is_none() {
        enough *= 2;
    }
    let mut too_little = enough / 2;
    while too_little + 1 < enough {
        let between = too_little.midpoint(enough);
        if told_in(between).is_some() { enough = between } else { too_little = between }
    }
    let told = told_in(enough).expect("it was told in this time before");
    assert_eq!((&told.headline, &told.title), (&whole.headline, &whole.title));
    assert_eq!((told.rows.len(), &told.schedule), (whole.rows.len(), &whole.schedule));
    // What takes another look is left out, such as what the kernel calls its threads.
    let names = |story: &Story| story.threads.iter().filter(|thread| thread.title.contains("slot")).count();
    assert_eq!((names(&told), names(&whole) > 0), (0, true));
}
