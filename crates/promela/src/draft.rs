//! A first check file, written from the source alone.
//!
//! What can be translated is left to the translation. For what cannot, a rule is proposed that keeps as much
//! as possible: a call nobody knows is hidden, a value nobody knows may be true or false in a condition and
//! is zero elsewhere, and what is stored where no model looks is stored nowhere. Objects begin as the source
//! itself begins them. Every proposal is a guess for a person to look at; the comments say what each
//! statement became.

mod beginnings;

use crate::c::tokens::tokens;
use crate::c::{Expr, Stmt, Type, Unit};
use crate::check::{Check, Process, WaitFunctions};
use crate::lower::extract;
use crate::model::{Gap, Model};
use crate::table::Rule;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How many rounds of proposing rules there are.
const ROUNDS_MAX: usize = 64;
/// How many objects are proposed for a structure that has none.
const OBJECTS: u32 = 2;

/// A draft: the check, the model it makes, and the file to write.
pub struct Draft {
    pub check: Check,
    pub model: Model,
    pub text: String,
}

/// Writes a check for functions of a unit. `begin` has the source, and what is known of the kernel's locks
/// and heap; `functions` are those that run beside one another.
pub fn draft(begin: Check, unit: &Unit, functions: &[String]) -> Result<Draft, String> {
    let mut check = begin;
    check.waits.extend(sleepers(unit, &check));
    check.functions = closure(unit, functions, &check);
    check.processes = processes(unit, functions);
    for _ in 0..ROUNDS_MAX {
        let model = extract(&check, unit)?;
        let mut changed = false;
        for gap in &model.gaps {
            changed |= propose(gap, &mut check);
        }
        if !changed {
            keep_used(&mut check, unit);
            let text = model.text();
            let begun = beginnings::beginnings(unit, &check, |field| has_word(&text, field));
            // What a person says of it comes later, and counts.
            check.environment.insert_str(0, &begun);
            let model = extract(&check, unit)?;
            let text = write(&check, &model)?;
            return Ok(Draft { check, model, text });
        }
    }
    Err(format!("no set of rules translates all of this after {ROUNDS_MAX} rounds: write the check by hand"))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|part| part == word)
}

/// The functions, and those of the same files that they call.
fn closure(unit: &Unit, functions: &[String], check: &Check) -> Vec<String> {
    let mut known = known_functions(check);
    for waits in &check.waits {
        known.extend(
            [Some(&waits.sleep), waits.wake_all.as_ref(), waits.wake_one.as_ref()]
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    let mut found: Vec<String> = functions.to_vec();
    let mut at = 0;
    while at < found.len() {
        if let Some(function) = unit.functions.get(&found[at]) {
            let mut calls = BTreeSet::new();
            called(&function.body, &mut calls);
            for name in calls {
                let read = unit.errors.iter().all(|(inside, _)| inside.as_ref() != Some(&name));
                if read
                    && unit.functions.contains_key(&name)
                    && !found.contains(&name)
                    && !known.contains(&name)
                {
                    found.push(name);
                }
            }
        }
        at += 1;
    }
    found
}

fn known_functions(check: &Check) -> BTreeSet<String> {
    let locks = check.locks.iter().flat_map(|lock| [&lock.lock, &lock.unlock]);
    let heaps = check.heaps.iter().flat_map(|heap| [&heap.alloc, &heap.free]);
    let exclusives = check.exclusives.iter().flat_map(|pair| [&pair.off, &pair.on]);
    locks.chain(heaps).chain(exclusives).cloned().collect()
}

fn called(stmt: &Stmt, found: &mut BTreeSet<String>) {
    fn inside(value: &Expr, found: &mut BTreeSet<String>) {
        if let Some((name, _)) = value.called() {
            found.insert(name.to_owned());
        }
        for part in value.parts() {
            inside(part, found);
        }
    }
    for value in stmt.expressions() {
        inside(value, found);
    }
    for part in stmt.parts() {
        called(part, found);
    }
}

/// Functions that sleep on a channel with a lock given back, and those that wake: by the usual names and
/// parameters.
fn sleepers(unit: &Unit, check: &Check) -> Vec<WaitFunctions> {
    let locks: BTreeSet<Type> = check
        .locks
        .iter()
        .filter_map(|lock| Some(unit.resolve(unit.signatures.get(&lock.lock)?.get(lock.argument)?)))
        .collect();
    let has = |name: &str| unit.signatures.contains_key(name).then(|| name.to_owned());
    let mut found = Vec::new();
    for (name, parameters) in &unit.signatures {
        let Some(stem) = ["sleep", "wait"].iter().find_map(|end| name.strip_suffix(end)) else { continue };
        let [_, second] = parameters.as_slice() else { continue };
        if !locks.contains(&unit.resolve(second)) {
            continue;
        }
        let wake_all =
            ["wakeup", "wake_all", "broadcast", "wake"].iter().find_map(|end| has(&format!("{stem}{end}")));
        let wake_one = ["signal", "wake_one"].iter().find_map(|end| has(&format!("{stem}{end}")));
        if wake_all.is_some() || wake_one.is_some() {
            found.push(WaitFunctions { sleep: name.clone(), channel: 0, lock: Some(1), wake_all, wake_one });
        }
    }
    found
}

fn processes(unit: &Unit, functions: &[String]) -> Vec<Process> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let twice: Vec<String> = match functions {
        [one] => vec![one.clone(), one.clone()],
        more => more.to_vec(),
    };
    twice
        .iter()
        .map(|name| {
            let count = counts.entry(functions.iter().find(|f| *f == name).map_or("", |f| f)).or_default();
            *count += 1;
            let arguments = unit.functions.get(name).map_or_else(Vec::new, |function| {
                function.parameters.iter().map(|(_, ty)| argument(unit, ty)).collect()
            });
            let suffix = if twice.iter().filter(|other| *other == name).count() > 1 {
                format!("_{count}")
            } else {
                String::new()
            };
            let name_of = format!("p_{}{suffix}", name.trim_start_matches('_'));
            Process { name: name_of, function: name.clone(), arguments, ..Process::default() }
        })
        .collect()
}

/// An argument for a parameter: a variable of the right type, or the first object of the pool, or one.
fn argument(unit: &Unit, ty: &Type) -> String {
    let ty = unit.resolve(ty);
    match ty.points_to() {
        Some(structure) => {
            let object = unit
                .globals
                .values()
                .find(|global| matches!(unit.resolve(&global.ty), Type::Struct(name) if name == structure));
            object.map_or_else(|| "@0".to_owned(), |global| format!("&{}", global.name))
        }
        None => match ty {
            Type::Pointer(_) => "0".to_owned(),
            _ => "1".to_owned(),
        },
    }
}

/// Adds a rule that closes a gap; `false`: nothing is left to try.
fn propose(gap: &Gap, check: &mut Check) -> bool {
    if gap.why.starts_with("set '") {
        let note = format!("skip; /* {} */", gap.text.replace("*/", "* /"));
        let known = check.environment.contains(&note);
        check.environment += &format!("{note}\n");
        return !known;
    }
    if gap.statement.is_empty() {
        let Some(structure) = gap.text.strip_prefix("struct ") else { return false };
        return check.pools.insert(structure.to_owned(), OBJECTS).is_none();
    }
    if let Some(rest) = gap.why.strip_prefix("say how many there can be: [pools] ")
        && let Some((structure, _)) = rest.split_once(" = ")
    {
        return check.pools.insert(structure.to_owned(), OBJECTS).is_none();
    }
    let (c, promela) = match role(gap) {
        Role::Condition => (gap.text.clone(), "either"),
        Role::Target => (gap.text.clone(), "hide"),
        Role::Value => (gap.text.clone(), "0"),
        Role::Statement => (gap.statement.clone(), "hide"),
    };
    let exists = |check: &Check, c: &str| {
        check.rules.iter().any(|rule| rule.c == c && rule.function.as_ref() == Some(&gap.function))
    };
    let rule = |c: String, promela: &str| Rule {
        c,
        promela: promela.to_owned(),
        otherwise: None,
        function: Some(gap.function.clone()),
    };
    if !exists(check, &c) {
        check.rules.push(rule(c, promela));
        return true;
    }
    // The piece has its rule, and the whole still has no translation.
    let whole = gap.statement.clone();
    if exists(check, &whole) {
        return false;
    }
    check.rules.insert(0, rule(whole, if gap.in_condition { "either" } else { "hide" }));
    true
}

enum Role {
    Statement,
    Condition,
    Target,
    Value,
}

fn role(gap: &Gap) -> Role {
    let (piece, whole) = (tokens(&gap.text), tokens(gap.statement.trim_end_matches(';')));
    if gap.in_condition {
        return Role::Condition;
    }
    if piece == whole {
        return Role::Statement;
    }
    let after = whole.get(piece.len()).copied().unwrap_or("");
    let assigned = after.ends_with('=') && !matches!(after, "==" | "!=" | "<=" | ">=");
    if whole.starts_with(&piece) && (assigned || matches!(after, "++" | "--")) {
        return Role::Target;
    }
    if let Some(("++" | "--", rest)) = whole.split_first().map(|(first, rest)| (*first, rest))
        && rest == piece
    {
        return Role::Target;
    }
    // What is initialised cannot be left without its name.
    Role::Value
}

/// Leaves out what the functions do not use.
fn keep_used(check: &mut Check, unit: &Unit) {
    let mut calls = BTreeSet::new();
    for name in &check.functions {
        if let Some(function) = unit.functions.get(name) {
            called(&function.body, &mut calls);
        }
    }
    let uses = |name: &String| calls.contains(name);
    check.locks.retain(|lock| uses(&lock.lock) || uses(&lock.unlock));
    check.heaps.retain(|heap| uses(&heap.alloc) || uses(&heap.free));
    check.waits.retain(|waits| uses(&waits.sleep) || waits.wake_all.as_ref().is_some_and(uses));
}

/// The check as a file, with what became of each statement as comments.
fn write(check: &Check, model: &Model) -> Result<String, String> {
    let body = toml::to_string(check).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let share = model.share;
    let _ = writeln!(
        text,
        "# A draft. {} statements and conditions are translated by themselves, {} by the rules below, which are guesses.",
        share.by_itself, share.by_rule
    );
    if !model.variables.is_empty() {
        let names: Vec<&str> = model.variables.keys().map(String::as_str).collect();
        let _ = writeln!(text, "# Shared variables: {}.", names.join(", "));
    }
    for (pool, index, name) in &model.objects {
        let _ = writeln!(text, "# Object {index} of {pool}: {name}.");
    }
    let _ = writeln!(text, "\n{body}");
    let _ = writeln!(text, "# What each statement becomes:");
    let mut seen = BTreeSet::new();
    for line in &model.lines {
        let structure = matches!(line.text.as_str(), "if" | "fi;") || line.text.starts_with(":: else");
        if let Some(origin) = line.origin.as_ref().filter(|_| !structure)
            && seen.insert((origin.at.clone(), line.text.clone()))
        {
            let _ =
                writeln!(text, "#   {}: {}  =>  {}", origin.at, shortened(&origin.text), line.text.trim());
        }
    }
    Ok(text)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
