//! Executions in a few words, for tests.
//!
//! A line is a step: `t1: lock m; write x; unlock m`, perhaps with an end: `-> finished`, `-> crashed`, `->
//! loop 5000`, `-> stuck t1 m t2, t2` (who, lock, owner). Without one the step ends at a voluntary point.
//! Each operation has the next pc of its thread (t2's are 0x2001, 0x2002 …), or the one given as `@f00`.
//! Names get addresses in order of appearance: variables from 0x1_0000, locks from 0xa000, blocks (capitals)
//! from 0x10_0000. A place is `x`, `x+4` or `x+4:2` (offset, size); the size is 4 unless given. `x/2` is the
//! same address in another address space, `NULL` is 0.

#[cfg(test)]
use crate::{Config, Detectors, Finding};
use std::collections::BTreeMap;
use trace::{
    Access, AccessKind, Action, Event, LockId, PhysAddr, Point, PointKind, Step, StepEnd, Taking, ThreadId,
    Trusted, VirtAddr, Waiting,
};

#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u64>,
    pcs: BTreeMap<u32, u64>,
}

impl Names {
    fn number(&mut self, class: &str, name: &str, base: u64, stride: u64) -> u64 {
        let of_class = self.numbers.keys().filter(|key| key.starts_with(class)).count() as u64;
        *self.numbers.entry(format!("{class}{name}")).or_insert(base + of_class * stride)
    }

    fn lock(&mut self, name: &str) -> LockId {
        LockId(self.number("lock ", name, 0xa000, 0x100))
    }

    fn place(&mut self, text: &str) -> (u64, u32) {
        let (text, size) =
            text.split_once(':').map_or((text, 4), |(text, size)| (text, size.parse().unwrap()));
        let (name, offset) = text.split_once('+').map_or((text, 0), |(name, at)| (name, at.parse().unwrap()));
        let heap = name.starts_with(|c: char| c.is_ascii_uppercase());
        if name == "NULL" {
            return (0, size);
        }
        let base = match heap {
            true => self.number("block ", name, 0x10_0000, 0x100),
            false => self.number("var ", name, 0x1_0000, 0x10),
        };
        (base + offset, size)
    }
}

/// A lock by its name, or one in a heap block by its place.
fn lock(names: &mut Names, name: &str) -> LockId {
    match name.starts_with(|c: char| c.is_ascii_uppercase()) {
        true => LockId(names.place(name).0),
        false => names.lock(name),
    }
}

/// `lock m`, `request m`, `trylock m`, `unlock m`; with how it is taken before: `spin.lock m`, `read.lock m`,
/// `rread.lock m` (a recursive reader), `rec.lock m`, `spin.read.lock m`; with `irq.` or `soft.` in front
/// what a handler does.
fn lock_action(word: &str, rest: &str, names: &mut Names) -> Option<Action> {
    let mut taking = Taking::default();
    let mut handler = None;
    let mut parts: Vec<&str> = word.split('.').collect();
    let verb = parts.pop()?;
    for part in parts {
        match part {
            "spin" => taking.wait = trace::WaitKind::Spins,
            "read" => taking.shared = true,
            "rread" => (taking.shared, taking.recursive) = (true, true),
            "rec" => taking.recursive = true,
            "unmade" => taking.unmade = true,
            "irq" => handler = Some(trace::InterruptKind::Hard),
            "soft" => handler = Some(trace::InterruptKind::Soft),
            _ => return None,
        }
    }
    let name = rest.split_whitespace().next();
    let action = match verb {
        "block" if handler.is_some() => Action::Block { lock: None, owner: None },
        "request" => Action::LockRequest { lock: lock(names, name?), taking },
        "lock" => Action::Lock { lock: lock(names, name?), taking },
        "trylock" => Action::Lock { lock: lock(names, name?), taking: taking.tried() },
        "unlock" => Action::Unlock { lock: lock(names, name?) },
        _ => return None,
    };
    Some(match handler {
        Some(interrupt) => Action::InHandler { interrupt, action: Box::new(action) },
        None => action,
    })
}

fn trusted(text: &str) -> Trusted {
    match text {
        "lock" => Trusted::Lock,
        "heap" => Trusted::Heap,
        "guarded-heap" => Trusted::GuardedHeap,
        "reads-freed" => Trusted::ReadsFreed,
        "tested-heap" => Trusted::HeapUnderTest,
        _ => panic!("trusted code {text:?}"),
    }
}

fn thread(text: &str) -> ThreadId {
    ThreadId(text.strip_prefix('t').and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("thread {text:?}")))
}

fn end(text: &str, running: ThreadId, names: &mut Names) -> StepEnd {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "finished" => StepEnd::Finished,
        "crashed" => StepEnd::Crashed,
        "loop" => StepEnd::NoProgress { instructions: rest.parse().unwrap() },
        "stuck" => StepEnd::Stuck {
            waiting: rest
                .split(',')
                .map(|who| {
                    let mut words = who.split_whitespace();
                    Waiting {
                        thread: thread(words.next().unwrap()),
                        lock: words.next().map(|name| names.lock(name)),
                        owner: words.next().map(thread),
                        loops: false,
                        stack: Vec::new(),
                    }
                })
                .collect(),
        },
        "" => StepEnd::Point(Point { kind: PointKind::Voluntary, thread: running, pc: VirtAddr(0) }),
        _ => panic!("end {text:?}"),
    }
}

pub fn steps(script: &str) -> Vec<Step> {
    let mut names = Names::default();
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| step(line, &mut names)).collect()
}

/// Like `check`, with the rules about locks as well.
#[cfg(test)]
pub fn check_locks(script: &str, expected: expect_test::Expect) {
    check_with(Detectors::new(&Config { lockdep: true, ..Config::default() }), script, expected);
}

/// Runs the detectors that always watch over a script and compares what they say, one line for each finding.
#[cfg(test)]
pub fn check(script: &str, expected: expect_test::Expect) {
    let config = Config { console: vec!["BUG".to_string()], ..Config::default() };
    check_with(Detectors::new(&config), script, expected);
}

#[cfg(test)]
pub fn check_with(mut detectors: Detectors, script: &str, expected: expect_test::Expect) {
    let mut findings = Vec::new();
    for step in steps(script) {
        detectors.observe(&step, &mut findings);
    }
    let lines: String = findings.iter().map(|finding| format!("{}\n", described(finding))).collect();
    expected.assert_eq(&lines);
    for finding in findings {
        let text = serde_json::to_string(&finding).unwrap();
        assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), finding);
    }
}

#[cfg(test)]
fn described(finding: &Finding) -> String {
    let mut text = format!("{}\n  = {}", finding.headline(), finding.signature());
    for side in &finding.sides {
        text += &format!("\n  {} {} at {:x}", side.thread, side.role.verb(), side.pc.0);
        for lock in &side.locks {
            text += &format!(", {lock}");
        }
    }
    text
}

/// What an operation that is no access means.
fn action(word: &str, rest: &str, names: &mut Names) -> Action {
    let mut words = rest.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("{word} {rest:?} needs more"));
    match word {
        "create" => Action::Create { child: thread(next()) },
        "exit" => Action::Exit,
        "block" => {
            let mut words = rest.split_whitespace();
            Action::Block { lock: words.next().map(|name| names.lock(name)), owner: words.next().map(thread) }
        }
        "wake" => Action::Wake { thread: thread(next()) },
        "yield" => Action::Yield,
        "switch" => Action::Switch { to: thread(next()) },
        "init" => Action::LockInit { lock: lock(names, next()), subclass: 0 },
        "init1" => Action::LockInit { lock: lock(names, next()), subclass: 1 },
        "renew" => Action::LockRenew { lock: lock(names, next()) },
        "user" => Action::ReturnToUser,
        word if lock_action(word, rest, names).is_some() => {
            lock_action(word, rest, names).expect("just asked")
        }
        "handoff" => Action::HandOff { lock: names.lock(next()), to: thread(next()) },
        "down" => Action::Down { semaphore: names.lock(next()) },
        "up" => Action::Up { semaphore: names.lock(next()) },
        "xbegin" => Action::TransactionBegin,
        "xend" => Action::TransactionCommitted,
        "xabort" => Action::TransactionAborted { status: 2 },
        "off" => Action::InterruptsOff,
        "on" => Action::InterruptsOn,
        "soft-off" => Action::SoftInterruptsOff,
        "soft-on" => Action::SoftInterruptsOn,
        "found" => {
            let lock = names.lock(next());
            let at = VirtAddr(u64::from_str_radix(next(), 16).unwrap());
            let offset = rest.split_whitespace().nth(2).map(|offset| offset.parse().unwrap());
            Action::LockFound { lock, at, offset }
        }
        "join" => Action::Join { thread: thread(next()) },
        "enter" => Action::EnterTrusted { code: trusted(next()) },
        "leave" => Action::LeaveTrusted { code: trusted(next()) },
        "alloc" => {
            let addr = names.place(next()).0;
            Action::Alloc { addr: VirtAddr(addr), phys: PhysAddr(addr), size: next().parse().unwrap() }
        }
        "free" => {
            let addr = names.place(next()).0;
            let size = rest.split_whitespace().nth(1).map(|size| size.parse().unwrap());
            Action::Free { addr: VirtAddr(addr), phys: PhysAddr(addr), size }
        }
        "panic" => Action::Panic { message: rest.to_string() },
        #[cfg(test)]
        "fault" => Action::Fault {
            exception: serde_json::from_value(next().into()).unwrap(),
            error: None,
            addr: Some(VirtAddr(0)),
        },
        "triple" => Action::TripleFault { tables: PhysAddr(0) },
        "console" => Action::Console { line: rest.to_string() },
        "sys" => Action::SystemCall { number: next().parse().unwrap() },
        "check" => Action::CheckFailed { check: rest.to_string(), found: "0".to_string() },
        "start" => Action::TestStart,
        "end" => Action::TestEnd { alone: rest.is_empty() },
        _ => panic!("operation {word} {rest:?}"),
    }
}

fn step(line: &str, names: &mut Names) -> Step {
    let (who, what) = line.split_once(':').unwrap_or_else(|| panic!("step {line:?}"));
    let (what, ending) = what.split_once("->").unwrap_or((what, ""));
    let first = thread(who);
    let mut running = first;
    let (mut accesses, mut events, mut instructions) = (Vec::new(), Vec::new(), 0);
    for operation in what.split(';').map(str::trim).filter(|text| !text.is_empty()) {
        let (operation, pc) = match operation.rsplit_once('@') {
            Some((operation, pc)) => (operation.trim(), u64::from_str_radix(pc, 16).unwrap()),
            None => {
                let count = names.pcs.entry(running.0).or_default();
                *count += 1;
                (operation, u64::from(running.0) * 0x1000 + *count)
            }
        };
        let pc = VirtAddr(pc);
        let (word, rest) = operation.split_once(' ').unwrap_or((operation, ""));
        let kind = match word {
            "read" => Some(AccessKind::Read),
            "write" => Some(AccessKind::Write),
            "update" | "atomic" => Some(AccessKind::Update),
            _ => None,
        };
        instructions += 1;
        if let Some(kind) = kind {
            let (place, space) =
                rest.split_once('/').map_or((rest, 0), |(place, space)| (place, space.parse().unwrap()));
            let (addr, size) = names.place(place);
            let atomic = word == "atomic";
            let phys = PhysAddr(addr + space * 0x1000_0000);
            accesses.push(Access { phys, addr: VirtAddr(addr), size, kind, atomic, pc });
            continue;
        }
        if word == "run" {
            instructions += rest.parse::<u64>().unwrap();
            continue;
        }
        let action = action(word, rest, names);
        if let Action::Switch { to } = action {
            running = to;
        }
        events.push(Event { action, pc, accesses_before: accesses.len(), stack: None });
    }
    Step {
        choice: first.into(),
        thread: first,
        accesses,
        events,
        instructions,
        end: end(ending.trim(), running, names),
        stack: Vec::new(),
        sightings: Vec::new(),
        remarks: Vec::new(),
    }
}
