//! The same schedules on one core and on two.
//!
//! A run that ends with its time comes to other parts of the space on two cores than on one, whose schedules
//! are longer or shorter, so schedules a second do not tell what a second core is worth. Here the work is
//! what is given: the first schedules of a plan up to a number, which are the same however many workers there
//! are, because searches go in rounds; the time for them is measured. The budget is so long that no part of
//! the plan is left for it.

use campaign::host::Host;
use campaign::recipe::{LinuxRecipe, Recipe};
use campaign::smp::plan::Plan;
use campaign::smp::target::SmpTarget;
use campaign::store::Nowhere;
use guest::driving::multiprocessor::Multiprocessor;
use guest::linux::Linux;
use guests::linux::Pack;
use guests::linux::debian::Kernel;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trace::Cancelled;

const CPUS: u8 = 2;
const MEMORY_BYTES: u64 = 512 << 20;
/// Much more than any of the measured runs takes.
const BUDGET: Duration = Duration::from_secs(600);

/// How long some schedules took.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Those of the rounds that were begun: a round is finished.
    pub schedules: u64,
    pub seconds: f64,
}

impl Work {
    pub fn rate(&self) -> f64 {
        self.schedules as f64 / self.seconds.max(1e-3)
    }
}

/// A clock that began with the run, and a wish that it end.
struct Clock {
    began: Instant,
    enough: AtomicBool,
}

impl Host for Clock {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn folder(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn stop_asked(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }
}

/// The test at its beginning.
fn start(kernel: &Kernel, test: &str) -> Result<Multiprocessor, String> {
    let file = guests::sources().join("linux/speed").join(test).with_extension("c");
    let path = kernel.image();
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let linux = Linux::parse(&path.display().to_string(), &bytes);
    let initramfs = Pack { tests: vec![file], ..Pack::default() }.build().map_err(|e| e.to_string())?;
    let recipe = Recipe {
        kernel: path,
        test: test.to_owned(),
        memory_bytes: MEMORY_BYTES,
        linux: Some(LinuxRecipe { cpus: CPUS, ..LinuxRecipe::default() }),
        ..Recipe::default()
    };
    let never: Cancelled = Arc::new(|| false);
    let target = SmpTarget::linux(recipe, bytes, linux, initramfs);
    target.start(&Nowhere, &never).map_err(|failure| failure.to_string())
}

/// Runs the first schedules of the plan of a test.
fn work(subject: &Multiprocessor, cores: usize, schedules_min: u64) -> Result<Work, String> {
    let clock = Arc::new(Clock { began: Instant::now(), enough: AtomicBool::new(false) });
    let never: Cancelled = Arc::new(|| false);
    let mut plan = Plan::new(subject.clone(), cores, BUDGET, clock.clone(), never);
    let mut done = None;
    plan.run(&mut |_, schedules| {
        if schedules >= schedules_min && done.is_none() {
            done = Some(Work { schedules, seconds: clock.now().as_secs_f64() });
            clock.enough.store(true, Ordering::Relaxed);
        }
    });
    match (done, &plan.found) {
        (Some(done), None) => Ok(done),
        (None, None) => Err(format!("there are only {} schedules", plan.interleavings)),
        (_, Some((found, _))) => Err(found.finding.headline()),
    }
}

/// The same work on one core and on two, one after the other.
pub fn one_and_two(kernel: &Kernel, test: &str, schedules_min: u64) -> Result<[Work; 2], String> {
    let failed = |why: String| format!("{test}: {why}");
    let subject = start(kernel, test).map_err(failed)?;
    let mut both = [Work { schedules: 0, seconds: 0.0 }; 2];
    for (cores, done) in [1, 2].into_iter().zip(&mut both) {
        *done = work(&subject, cores, schedules_min).map_err(failed)?;
        eprintln!("bench: {test}: {} schedules in {:.2} s, cores: {cores}", done.schedules, done.seconds);
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use campaign::recipe::FunctionsRecipe;
    use campaign::target::Target;

    /// However many cores there are, a number of schedules is reached with the same round.
    #[test]
    fn as_many_schedules_on_one_core_as_on_two() {
        let folder = crate::guests::folder().expect("a folder").join("equal_work");
        let kernel = guests::smp::build(&["TEST_TABLES", "MENDED"], &folder).expect("it builds");
        let description = folder.join("smp.toml");
        std::fs::write(&description, guests::smp::DESCRIPTION).expect("written");
        let clock = Clock { began: Instant::now(), enough: AtomicBool::new(false) };
        let recipe = Recipe::described(&clock, &kernel, &description.display().to_string(), "part");
        let [begin, end] = ["part", "done"].map(|name| vec![name.to_owned()]);
        let recipe = Recipe {
            functions: Some(FunctionsRecipe { cpus: CPUS, begin, end }),
            ..recipe.unwrap_or_else(|failure| panic!("{failure}"))
        };
        let target = Target::make(recipe, Arc::new(clock)).unwrap_or_else(|failure| panic!("{failure}"));
        let target = SmpTarget::described(target.recipe.clone(), target);
        let target = target.unwrap_or_else(|failure| panic!("{failure}"));
        let never: Cancelled = Arc::new(|| false);
        let subject = target.start(&Nowhere, &never).unwrap_or_else(|failure| panic!("{failure}"));
        for schedules_min in [1, 300] {
            let done = [1, 2].map(|cores| work(&subject, cores, schedules_min).expect("done").schedules);
            assert!(done[0] >= schedules_min && done[0] == done[1], "{schedules_min}: {done:?}");
        }
    }
}
