//! The bundled kernel: every function of its locks, scheduler and file system goes through the translation,
//! and the case studies' models are checked by Spin.

use expect_test::expect;
use promela::check::{Check, HeapFunctions, LockFunctions, Source};
use promela::spin::{Spin, Verdict};
use promela::{c, draft, extract, source, trail};
use std::path::{Path, PathBuf};
use std::process::Command;

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests")
}

/// What the kernel's description says.
fn described(check: &mut Check) {
    check.locks.push(LockFunctions {
        lock: "mutex_lock".to_owned(),
        unlock: "mutex_unlock".to_owned(),
        ..LockFunctions::default()
    });
    check.heaps.push(HeapFunctions { alloc: "malloc".to_owned(), free: "free".to_owned() });
}

fn read(file: &str) -> (Check, c::Unit) {
    let flags = ["-m32", "-std=gnu11", "-ffreestanding"].map(str::to_owned).to_vec();
    let source = Source { files: vec![file.to_owned()], flags, ..Source::default() };
    let unit = source::read(&source, &guests().join("pebbles"), &|_| true).expect("gcc reads it");
    let mut check = Check { name: file.to_owned(), source, ..Check::default() };
    described(&mut check);
    (check, unit)
}

/// Spin reads the model without a complaint.
fn accepted(model: &promela::Model, what: &str) {
    let folder = std::env::temp_dir().join(format!("promela-drafts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.pml"), model.text()).unwrap();
    let spin = Command::new("spin").args(["-a", "model.pml"]).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&spin.stdout).into_owned() + &String::from_utf8_lossy(&spin.stderr);
    assert!(spin.status.success() && !said.contains("rror"), "{what}: {said}\n{}", model.text());
    let _ = std::fs::remove_dir_all(&folder);
}

/// Objects that processes are handed begin as the source begins them: where it allocates one, or initialises
/// it.
#[test]
fn objects_begin_as_the_source_begins_them() {
    let drafted = |text: &str| {
        let folder = std::env::temp_dir().join(format!("promela-beginnings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("box.c"), text).unwrap();
        let source = Source { files: vec!["box.c".to_owned()], ..Source::default() };
        let unit = source::read(&source, &folder, &|_| true).expect("gcc reads it");
        let _ = std::fs::remove_dir_all(&folder);
        let check = Check { name: "box".to_owned(), source, ..Check::default() };
        let drafted = draft::draft(check, &unit, &["use".to_owned()]).expect("a draft");
        accepted(&drafted.model, "box");
        drafted.check.environment
    };
    let uses = "struct box { int open, left, lid, unused; };\n\
                void use(struct box *b) { if (b->open && b->left > 0 && !b->lid) b->left--; }\n";
    let made = "void *get(void); enum { FULL = 3 };\n\
                struct box *make(int lid) { struct box *b; if ((b = (struct box *)get()) == 0) return 0;\n\
                b->open = 1; b->left = 2 * FULL; b->lid = lid; b->unused = 5; return b; }\n";
    expect![[r#"
        box[0].left = 6;
        box[0].open = 1;
    "#]]
    .assert_eq(&drafted(&format!("{uses}{made}")));
    let given = "void box_init(struct box *b) { b->open = 1; if (b->lid) b->left = 9; }\n";
    expect![[r#"
        box[0].open = 1;
    "#]]
    .assert_eq(&drafted(&format!("{uses}{given}")));
    // What somebody else does to one is not how it begins.
    let other = "void shut(struct box *b) { b->lid = 1; }\n";
    expect![[r#""#]].assert_eq(&drafted(&format!("{uses}{other}")));
}

/// Every function of a file on its own: how much is translated without a rule, and that a draft translates
/// the rest.
#[test]
fn every_function_is_translated_or_listed() {
    let mut text = String::new();
    for file in ["sync.c", "sched.c", "fs.c"] {
        let (begin, unit) = read(file);
        let (mut functions, mut by_itself, mut not) = (0, 0, 0);
        for function in unit.functions.values().filter(|function| function.at.file.ends_with(file)) {
            let mut check = begin.clone();
            // What is a lock to others is a function like any other here.
            check.locks.retain(|lock| lock.lock != function.name && lock.unlock != function.name);
            let drafted = draft::draft(check.clone(), &unit, std::slice::from_ref(&function.name));
            let drafted = drafted.unwrap_or_else(|error| panic!("{file} {}: {error}", function.name));
            assert_eq!(drafted.model.gaps, [], "{file} {}", function.name);
            accepted(&drafted.model, &format!("{file} {}", function.name));
            check.functions.clone_from(&drafted.check.functions);
            check.processes.clone_from(&drafted.check.processes);
            check.pools.clone_from(&drafted.check.pools);
            let model = extract(&check, &unit).unwrap();
            functions += 1;
            by_itself += model.share.by_itself;
            not += model.share.not;
            for line in model.lines.iter().filter_map(|line| line.origin.as_ref()) {
                assert!(
                    line.at.line > 0 && line.at.file.contains('.'),
                    "{file} {}: {}",
                    function.name,
                    line.at
                );
            }
        }
        let share = 100 * by_itself / (by_itself + not);
        text += &format!(
            "{file}: {functions} functions, {by_itself} of {} by itself ({share} %)\n",
            by_itself + not
        );
    }
    expect![[r#"
        sync.c: 5 functions, 7 of 31 by itself (22 %)
        sched.c: 21 functions, 289 of 470 by itself (61 %)
        fs.c: 17 functions, 228 of 259 by itself (88 %)
    "#]]
    .assert_eq(&text);
}

fn spin(name: &str, change: impl Fn(&mut Check)) -> String {
    let folder = std::env::temp_dir().join(format!("promela-case-{}-{name}", std::process::id()));
    let path = guests().join("models").join(format!("{name}.toml"));
    let mut check = Check::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    described(&mut check);
    change(&mut check);
    let unit = source::read(&check.source, path.parent().unwrap(), &|_| true).unwrap();
    let model = extract(&check, &unit).unwrap();
    let gaps: Vec<String> = model.gaps.iter().map(promela::Gap::sentence).collect();
    assert!(gaps.is_empty(), "{gaps:#?}");
    assert_eq!(model.unused_rules, Vec::<String>::new());
    let outcome = Spin { folder: &folder, check: &check, model: &model }.run(&|_| true).unwrap();
    let text = match &outcome.verdict {
        Verdict::Violated { what } => {
            let trail = trail::read(&model, &outcome.model, None, &|_| true).unwrap();
            let switches = trail.steps.windows(2).filter(|pair| pair[0].process != pair[1].process).count();
            let last = trail.steps.last().unwrap();
            format!(
                "{}, {} steps, {switches} switches, ends in {} at {}",
                what.split(" (at depth").next().unwrap(),
                trail.model_steps,
                last.origin.function,
                last.at()
            )
        }
        other => format!("{other:?}, {} states", outcome.states),
    };
    let _ = std::fs::remove_dir_all(&folder);
    text
}

#[test]
fn case_studies_as_models() {
    let same = |_: &mut Check| {};
    let mended = |check: &mut Check| check.source.define.clear();
    let mut text = String::new();
    text += &format!("readdir_remove: {}\n", spin("readdir_remove", same));
    text += &format!("  mended: {}\n", spin("readdir_remove", mended));
    text += &format!("readdir_rmdir: {}\n", spin("readdir_rmdir", same));
    text += &format!("remove_remove: {}\n", spin("remove_remove", same));
    expect![[r#"
        readdir_remove: assertion violated  !(entry[de].freed), 107 steps, 2 switches, ends in fs_readdir at ../pebbles/fs.c:88
          mended: Exhausted, 1721 states
        readdir_rmdir: assertion violated  !(entry[de].freed), 74 steps, 3 switches, ends in dir_list at ../pebbles/fs.c:193
        remove_remove: assertion violated - invalid array index, 102 steps, 5 switches, ends in fs_remove_in at ../pebbles/fs.c:152
    "#]].assert_eq(&text);
}
