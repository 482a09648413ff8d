//! The bundled kernel at the start of a test, and spaces of its interleavings.

use detect::{Config, Constants, Detectors};
use explore::tree::Reduction;
use explore::{Options, Order, Search, Until, Verdict, Workers, World};
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use guests::Build;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trace::PointSet;

pub type KernelWorld = World<Uniprocessor, Detectors>;

const DESCRIPTION: &str = include_str!("../../../../kernels/pebbles.toml");
/// A search that takes longer than this is not one for a test.
const INTERLEAVINGS_MAX: u64 = 50_000;

/// A folder of this test's own.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_faults").join(name)
}

/// Builds a kernel; its path.
pub fn kernel(name: &str, build: &Build) -> PathBuf {
    build.image(&folder(name)).unwrap_or_else(|error| panic!("{name}: {error}")).kernel
}

/// Boots a kernel and brings it to the start of a test.
pub fn world(kernel: &Path, test: &str) -> KernelWorld {
    let file = std::fs::read(kernel).expect("just built");
    let image = Image::parse("kernel", &file).expect("an ELF file");
    let description = Description::parse("pebbles.toml", DESCRIPTION).expect("it is bundled");
    let resolved = Kernel::resolve(&description, &image).expect("it fits the bundled kernel");
    let setup = Setup { test: test.to_owned(), ..Setup::default() };
    let started = lifecycle::start(&resolved, &file, &setup).expect("the test starts");
    let console = resolved.console.iter().map(|console| console.pattern.clone()).collect();
    let mut detectors = Detectors::new(&Config { console, ..Config::default() });
    detectors.observe(&started.prologue, &mut Vec::new());
    World::new(started.subject, detectors)
}

/// Explores a space with one worker, to its end or to the first finding.
pub fn explore<R: Reduction>(
    world: &KernelWorld,
    points: &str,
    reduction: R,
    order: Order,
    until: Until,
) -> Search<R, ()> {
    let points: PointSet = points.parse().expect("points");
    let options = Options {
        order,
        until,
        constants: Some(Constants::default()),
        interleavings_max: Some(INTERLEAVINGS_MAX),
        ..Options::default()
    };
    let mut workers = Workers::new(1, world, &points, options.depth_max, 64 << 20);
    let mut search = Search::new(reduction, options);
    search.run(&mut workers, &|| false, &mut |_| {});
    search
}

/// The signatures of all findings in a space.
pub fn signatures<R: Reduction>(world: &KernelWorld, points: &str, reduction: R) -> BTreeSet<String> {
    let search = explore(world, points, reduction, Order::Forwards, Until::Exhausted);
    assert!(search.is_exhausted(), "{points}: {}", search.verdict(None));
    search.found().iter().map(|found| found.finding.signature().to_string()).collect()
}

/// Whether a search found something; it must have come to an end.
pub fn finds(verdict: &Verdict) -> Option<bool> {
    match verdict {
        Verdict::Bug(_) => Some(true),
        Verdict::Exhausted { .. } => Some(false),
        _ => None,
    }
}
