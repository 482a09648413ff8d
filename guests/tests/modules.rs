//! The modules of `guests/linux/modules`: each is in the catalogue, builds against Debian's headers with and
//! without its fault, and with it mended passes its test when nobody disturbs it.

use guest::hooks::annotation::{Annotation, decode};
use guest::view::{View, registers};
use guests::linux::catalogue::{ModuleFault, module_faults, released_bugs};
use guests::linux::module::Modules;
use guests::linux::{Pack, sources, test_store};
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format, Module};
use machine::{Events, Kinds, Machine, Stop, Turns};
use std::fs;

const INSTRUCTIONS_MAX: u64 = 4_000_000_000;

#[test]
fn the_catalogue_and_the_sources_agree() {
    let faults = module_faults();
    assert!(faults.len() >= 15);
    let names: Vec<String> = faults.iter().map(|fault| fault.name.clone()).collect();
    for folder in ["modules", "modules/tests"] {
        let stem = |path: &std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let found: Vec<String> = sources(folder).unwrap().iter().map(stem).collect();
        let mut wanted = names.clone();
        wanted.sort();
        assert_eq!(found, wanted, "{folder}");
    }
    for fault in &faults {
        assert!(known(&fault.shows), "{}", fault.name);
        let source = fs::read_to_string(fault.module()).unwrap();
        let mends = [ModuleFault::MENDED, "mended_barrier"].iter().any(|word| source.contains(word));
        assert!(mends, "{} has no mended twin", fault.name);
    }
}

fn known(shows: &[String]) -> bool {
    const SHOWS: [&str; 6] = ["expectation", "oops", "warning", "deadlock", "use-after-free", "double-free"];
    !shows.is_empty() && shows.iter().all(|kind| SHOWS.contains(&kind.as_str()))
}

#[test]
fn tests_for_released_bugs_build() {
    let bugs = released_bugs();
    assert!(bugs.len() >= 15);
    let mut tests: Vec<_> = bugs.iter().map(|bug| bug.test()).collect();
    tests.sort();
    assert_eq!(tests, sources("bugs").unwrap());
    assert!(bugs.iter().all(|bug| known(&bug.shows)));
    tests.extend(sources("pairs").unwrap());
    Pack { tests, ..Pack::default() }.build().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn mended_modules_pass_their_tests() {
    let kernel = test_store().kernels().into_iter().rev().find(|kernel| kernel.headers_found().is_some());
    let Some(kernel) = kernel else {
        eprintln!("passed over: no kernel with headers in target/linux; guests/linux/fetch brings one there");
        return;
    };
    let headers = kernel.headers_found().unwrap();
    let cache = kernel.folder().join("built");
    let faults = module_faults();
    let mut modules =
        Modules { sources: faults.iter().map(ModuleFault::module).collect(), macros: Vec::new() };
    let faulty = modules.build(&headers, &cache).unwrap_or_else(|error| panic!("{error}"));
    modules.macros = vec![ModuleFault::MENDED.to_owned()];
    let mended = modules.build(&headers, &cache).unwrap_or_else(|error| panic!("{error}"));
    for (faulty, mended) in faulty.iter().zip(&mended) {
        assert_ne!(fs::read(faulty).unwrap(), fs::read(mended).unwrap(), "{}", faulty.display());
    }

    let tests = faults.iter().map(ModuleFault::test).collect();
    let image = Pack { tests, modules: mended, files: Vec::new() }.build().unwrap();
    let file = fs::read(kernel.image()).unwrap();
    let config = BoardConfig { cpus: 2, memory_bytes: 256 << 20, ..BoardConfig::default() };
    let options = BootOptions {
        command_line: boot::linux::default_command_line(config.clock),
        modules: vec![Module { command_line: String::new(), bytes: image }],
    };
    let mut machine = Machine::new(config);
    let Machine { cpus, memory, board, .. } = &mut machine;
    boot::load(Format::detect(&file).unwrap(), &file, &options, memory, &mut cpus[0], board).unwrap();
    let (mut turns, mut events, mut results) = (Turns::default(), Events::off(), Vec::new());
    while machine.instructions() < INSTRUCTIONS_MAX {
        let turn = turns.take(&mut machine, 10_000_000, Kinds::HYPERCALL, &mut events).unwrap();
        if turn.stop == Stop::Hypercall {
            let view = View { machine: &machine, cpu: turn.cpu };
            if let Some(Annotation::Result { test, status }) = decode(&registers(&machine, turn.cpu), &view) {
                results.push((test, status));
            }
        } else if !turn.goes_on() {
            break;
        }
    }
    let console = String::from_utf8_lossy(&machine.board.take_serial_output()).replace('\r', "");
    let mut wanted: Vec<(String, u32)> = faults.iter().map(|fault| (fault.name.clone(), 0)).collect();
    wanted.sort();
    assert_eq!(results, wanted, "{console}");
    for bad in ["BUG:", "WARNING:", "Oops", "corruption"] {
        assert!(!console.contains(bad), "{console}");
    }
}
