//! The catalogue speaks of what is there, and everything in it compiles in every design.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use guests::{Build, Design, Place, Size, all_builds, check, faults};

/// Kinds of finding that the detectors know.
const KINDS: &[&str] = &[
    "panic",
    "fault",
    "use-after-free",
    "double-free",
    "deadlock",
    "lost-wakeup",
    "check-failed",
    "console",
    "lock-order",
    "leak",
    "tight-loop",
    "endless-points",
    "triple-fault",
    "invalid-free",
];

fn sources(folder: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(path).expect("a folder of sources").map(|e| e.expect("an entry").path());
    entries
        .filter(|p| p.extension().is_some_and(|e| e == "c" || e == "S" || e == "h"))
        .map(|p| {
            let name = p.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&p).expect("text"))
        })
        .collect()
}

#[test]
fn says_what_is_there() {
    let programs: BTreeSet<String> = sources("programs").into_iter().map(|(name, _)| name).collect();
    let mut names = BTreeSet::new();
    for fault in faults() {
        assert!(names.insert(fault.name.clone()), "{} is there twice", fault.name);
        assert!(programs.contains(&fault.test), "{}: no program {}", fault.name, fault.test);
        for kind in &fault.findings {
            assert!(KINDS.contains(&kind.as_str()), "{}: no finding {kind}", fault.name);
        }
        let folders: &[&str] = match fault.place {
            Place::Kernel => &["pebbles"],
            Place::Library => &["threadlib"],
            Place::Program => &["programs"],
        };
        let mentions = |flag: &str| folders.iter().flat_map(|f| sources(f)).any(|(_, t)| t.contains(flag));
        match &fault.flag {
            Some(flag) => {
                assert_eq!(*flag, format!("FAULT_{}", fault.name.to_uppercase()));
                assert!(mentions(flag), "{flag} is not in {folders:?}");
                assert!(!fault.findings.is_empty() && fault.preemptions.is_some(), "{}", fault.name);
            }
            // The program is there as it is: wrong, or told to be no fault.
            None => assert_eq!(fault.findings.is_empty(), fault.preemptions.is_none(), "{}", fault.name),
        }
    }
}

/// Every macro in the sources is in the catalogue or a design.
#[test]
fn leaves_nothing_out() {
    let known: BTreeSet<String> = faults()
        .into_iter()
        .filter_map(|f| f.flag)
        .chain(Design::NAMES.iter().map(|n| format!("DESIGN_{}", n.to_uppercase())))
        .collect();
    for folder in ["pebbles", "threadlib", "programs", "runtime", "lib"] {
        for (name, text) in sources(folder) {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|w| w.starts_with("FAULT_") || w.starts_with("DESIGN_")) {
                assert!(known.contains(word), "{folder}/{name}: {word}");
            }
        }
    }
}

#[test]
fn compiles_in_every_design() {
    let builds = all_builds();
    assert_eq!(builds.len(), 48 * (1 + faults().iter().filter(|f| f.flag.is_some()).count()));
    let compilations = check(&builds).unwrap_or_else(|error| panic!("{error}"));
    assert!(compilations > 200, "{compilations}");
}

#[test]
fn names_what_it_does_not_know() {
    let out = std::env::temp_dir();
    let fault = Build { faults: vec!["no_such".to_owned()], ..Build::default() }.image(&out);
    assert!(fault.unwrap_err().to_string().starts_with("no fault `no_such`; there are vanish_circular, "));
    let size = Build::default().image_sized(Size { threads: Some(1), iterations: None }, &out);
    assert_eq!(size.unwrap_err().to_string(), "no programs of 1 threads: 2 to 30 are possible");
    let size = Build::default().image_sized(Size { threads: Some(2), iterations: Some(31) }, &out);
    assert_eq!(size.unwrap_err().to_string(), "no programs of 31 iterations: 1 to 30 are possible");
    let design = Design::parse(&["no_such"]);
    assert!(design.unwrap_err().to_string().starts_with("no design `no_such`; there are current_on_queue, "));
    let design = Design::parse(&["idle_loop", "idle_user"]);
    assert!(design.unwrap_err().to_string().ends_with("with the first there is no idle thread"));
}
