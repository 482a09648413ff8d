//! A counterexample in terms of a kernel's code: lines become addresses by its debugging information.

use explore::strategies::guided::{Arrival, Leg, Route, Spot, Until};
use guest::driving::everywhere::Everywhere;
use guest::elf::image::Image;
use promela::c::Place;
use promela::{Check, Model, trail::Trail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Actor, PointRule, PointSet, Resolve as _, ThreadId, VirtAddr};

/// A counterexample that can be driven.
pub struct Plan {
    pub route: Route,
    pub points: PointSet,
    /// The steps of the trail that each leg does: the first, and the one after the last.
    pub steps: Vec<(usize, usize)>,
    /// C lines of the counterexample without code of their own in the kernel.
    pub codeless: Vec<Place>,
}

/// A step of the trail that has code.
struct Located {
    step: usize,
    process: usize,
    at: Arrival,
}

/// A path as the debugging information ends with it: without leading `..`, or, for a source that was compiled
/// as a copy somewhere else, its name alone.
fn plain<'a>(file: &'a str, image: &Image) -> &'a str {
    let mut file = file;
    while let Some(rest) = file.strip_prefix("../").or_else(|| file.strip_prefix("./")) {
        file = rest;
    }
    match image.nearest_lines(file, 1).is_empty() {
        true => file.rsplit('/').next().unwrap_or(file),
        false => file,
    }
}

impl Plan {
    /// Turns the points into instructions, for subjects that know no lines.
    pub fn by_address(&mut self) {
        let all = self.route.spots.keys().chain(self.route.entries.iter().flatten());
        let rule =
            |pc: &VirtAddr| PointRule::Race { pc: *pc, thread: None, last_call: None, system_call: None };
        self.points = PointSet { rules: all.map(rule).collect(), ..PointSet::default() };
    }
}

/// Finds the code of a counterexample; what is wrong is said in a sentence.
pub fn plan(check: &Check, model: &Model, trail: &Trail, image: &Arc<Image>) -> Result<Plan, String> {
    let wanted: BTreeSet<Place> =
        model.lines.iter().filter_map(|line| Some(line.origin.as_ref()?.at.clone())).collect();
    let mut numbers: BTreeMap<Place, u32> = BTreeMap::new();
    let mut spots: BTreeMap<VirtAddr, Spot> = BTreeMap::new();
    let mut rules = BTreeSet::new();
    for place in wanted {
        let addresses = image.lines(plain(&place.file, image), place.line);
        if addresses.is_empty() {
            continue;
        }
        let number = numbers.len() as u32;
        for addr in addresses {
            spots.insert(addr, Spot { line: number, access: false });
        }
        rules.insert(PointRule::Line { file: plain(&place.file, image).to_owned(), line: place.line });
        numbers.insert(place, number);
    }
    if numbers.is_empty() {
        return Err(
            "the kernel has no code for any line of the model: is it built from these sources, with -g?"
                .to_owned(),
        );
    }
    accesses(check, image, &numbers, &mut spots, &mut rules);
    let mut entries = Vec::new();
    let mut bound = Vec::new();
    for process in &check.processes {
        let function = &process.function;
        let called = image.function(function).iter().map(|&id| image.get(id).start);
        let at: Vec<VirtAddr> = called.chain(image.inlined_at(function)).collect();
        if at.is_empty() {
            return Err(format!("the kernel has no function '{function}' for process '{}'", process.name));
        }
        rules.insert(PointRule::Function(function.clone()));
        entries.push(at);
        bound.push(match &process.thread {
            Some(text) => {
                let number = text.strip_prefix('t').and_then(|number| number.parse().ok());
                let number = number
                    .ok_or_else(|| format!("process '{}': '{text}' is no thread such as t4", process.name))?;
                Some(Actor::Thread(ThreadId(number)))
            }
            None => None,
        });
    }
    let ends = ends(check, image, &numbers, &mut spots, &mut rules);
    let (located, codeless) = locate(trail, &numbers);
    if located.is_empty() {
        return Err("no step of the counterexample has code in the kernel".to_owned());
    }
    let (legs, steps) = legs(&located);
    // Whoever is made can go before its maker comes to anything of the model.
    rules.insert(PointRule::Create);
    let points = PointSet { rules, ..PointSet::default() };
    Ok(Plan { route: Route { legs, spots, entries, bound, ends }, points, steps, codeless })
}

/// Instructions of the extracted functions that access what others may share.
fn accesses(
    check: &Check,
    image: &Arc<Image>,
    numbers: &BTreeMap<Place, u32>,
    spots: &mut BTreeMap<VirtAddr, Spot>,
    rules: &mut BTreeSet<PointRule>,
) {
    let ranges: Vec<_> = check.functions.iter().flat_map(|function| image.ranges(function)).collect();
    let by_line: BTreeMap<(&str, u32), u32> =
        numbers.iter().map(|(place, number)| ((plain(&place.file, image), place.line), *number)).collect();
    let mut found: Vec<u64> = Everywhere::new(image, false).addresses().collect();
    found.retain(|addr| ranges.iter().any(|range| range.contains(addr)));
    found.sort_unstable();
    for addr in found {
        let frames = image.frames(VirtAddr(addr));
        let Some((file, line)) = frames.first().and_then(|frame| Some((frame.file.as_ref()?, frame.line?)))
        else {
            continue;
        };
        let number = by_line
            .iter()
            .find(|((tail, at), _)| *at == line && (file.ends_with(tail) || tail.ends_with(file.as_str())));
        if let Some((_, number)) = number {
            spots.insert(VirtAddr(addr), Spot { line: *number, access: true });
            let pc = VirtAddr(addr);
            rules.insert(PointRule::Race { pc, thread: None, last_call: None, system_call: None });
        }
    }
}

/// Where the processes' functions return: a process that has done its last step is stopped there, before it
/// goes on to what the model does not have. A jump to another function counts where it is no line's own work,
/// as the jumps that stand for returns are.
fn ends(
    check: &Check,
    image: &Arc<Image>,
    numbers: &BTreeMap<Place, u32>,
    spots: &mut BTreeMap<VirtAddr, Spot>,
    rules: &mut BTreeSet<PointRule>,
) -> Vec<u32> {
    let mut ends = Vec::new();
    let modelled: BTreeSet<u32> = numbers.keys().map(|place| place.line).collect();
    for process in &check.processes {
        // Processes of one function end at the same place.
        let same = check.processes.iter().position(|other| other.function == process.function);
        let end = (numbers.len() + same.unwrap_or_default()) as u32;
        ends.push(end);
        for &function in image.function(&process.function) {
            let leaves = image.leaves(function);
            let works = |pc: &VirtAddr| {
                let frame = image.frames(*pc).into_iter().next();
                frame.and_then(|frame| frame.line).is_some_and(|line| modelled.contains(&line))
            };
            let jumps = leaves.tail_calls.iter().filter(|pc| !works(pc));
            for &pc in leaves.returns.iter().chain(jumps) {
                if spots.contains_key(&pc) {
                    continue;
                }
                spots.insert(pc, Spot { line: end, access: false });
                rules.insert(PointRule::Race { pc, thread: None, last_call: None, system_call: None });
            }
        }
    }
    ends
}

/// The steps with code, each with its visit: lines without code do not part visits.
fn locate(trail: &Trail, numbers: &BTreeMap<Place, u32>) -> (Vec<Located>, Vec<Place>) {
    #[derive(Default)]
    struct Walk {
        line: Option<(u32, u32)>,
        visits: BTreeMap<u32, u32>,
        accesses: u32,
    }
    let mut walks: BTreeMap<usize, Walk> = BTreeMap::new();
    let mut located = Vec::new();
    let mut codeless = BTreeSet::new();
    for (step, taken) in trail.steps.iter().enumerate() {
        let Some(&line) = numbers.get(taken.at()) else {
            codeless.insert(taken.at().clone());
            continue;
        };
        let walk = walks.entry(taken.process).or_default();
        if walk.line != Some((line, taken.origin.depth)) {
            *walk.visits.entry(line).or_default() += 1;
            walk.line = Some((line, taken.origin.depth));
            walk.accesses = 0;
        }
        let at = Arrival { line, visit: walk.visits[&line], accesses: walk.accesses };
        walk.accesses += u32::from(taken.origin.access);
        located.push(Located { step, process: taken.process, at });
    }
    (located, codeless.into_iter().collect())
}

/// A leg for each stretch of one process in which it comes to another place.
fn legs(located: &[Located]) -> (Vec<Leg>, Vec<(usize, usize)>) {
    let (mut legs, mut steps): (Vec<Leg>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    let mut begin = 0;
    for (at, step) in located.iter().enumerate() {
        let last = located.get(at + 1).is_none_or(|next| next.process != step.process);
        if !last {
            continue;
        }
        let next = located[at + 1..].iter().find(|later| later.process == step.process);
        let until = match next {
            Some(next) => Until::Arrives(next.at),
            None => Until::Leaves { line: step.at.line, visit: step.at.visit },
        };
        let first = &located[begin];
        let moves = until != Until::Arrives(first.at);
        let end = located.get(at + 1).map_or(step.step + 1, |next| next.step);
        if moves {
            legs.push(Leg { process: step.process, until });
            steps.push((first.step, end));
        }
        begin = at + 1;
    }
    (legs, steps)
}
