//! A page with the model's steps and the kernel's execution side by side.

use crate::model::drive::{Driven, Round, Verdict};
use promela::check::Check;
use promela::trail::Trail;
use report::escape::html;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--dim:#6b7280;--line:#8883;--bad:#b3261e;--good:#1b7f4b;--band:#8881}\
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:84rem;padding:0 1.5rem}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .4rem}\
.verdict{display:inline-block;margin:.8rem 0;padding:.35rem .7rem;border-left:.3rem solid var(--good);background:var(--band)}\
.verdict.bad{border-color:var(--bad)}\
table{border-collapse:collapse;width:100%;table-layout:fixed}\
th,td{vertical-align:top;text-align:left;padding:.12rem .6rem .12rem 0}\
thead th{font-weight:600;border-bottom:2px solid var(--line)}\
.leg td{padding-top:.9rem;border-bottom:1px solid var(--line);font-weight:600}\
.leg:first-child td{padding-top:.3rem}\
.at{width:9rem;color:var(--dim)}\
code,.at,pre{font:12px/1.5 ui-monospace,monospace}code{white-space:pre-wrap;overflow-wrap:anywhere}pre{margin:0;white-space:pre-wrap}\
.step,.note{color:var(--dim)}.step{padding-left:1.2rem;display:block}\
.note{margin:.2rem 0;font-size:.92em}\
.wrong{color:var(--bad);font-weight:600}\
td.gap{color:var(--dim)}\
@media(prefers-color-scheme:dark){:root{--dim:#9aa3b2;--bad:#ff8a80;--good:#7bd8a6}body{background:#16181d;color:#dde}}";

/// Places of one run of kernel steps that have no counterpart in the model and are shown.
const STANDS_SHOWN: usize = 4;
/// Pairs of a model's and a kernel's place that are compared to bring the two beside one another.
const PAIRS_MAX: usize = 1 << 20;

/// A C line of the model, as it was come to once.
struct ModelLine {
    place: String,
    c: String,
    steps: Vec<String>,
    /// The last step of all, if that is what is wrong.
    wrong: bool,
    cycle: bool,
}

/// Where a thread of the kernel was stopped, or went by.
#[derive(PartialEq)]
struct Stand {
    place: Option<String>,
    text: String,
}

/// The page; it opens with the first line of `verdict`.
pub fn page(check: &Check, trail: &Trail, driven: &Driven, verdict: &str) -> String {
    let bad = if matches!(driven.verdict, Verdict::Violated { .. }) { " bad" } else { "" };
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1><p class=\"verdict{bad}\">{1}</p>",
        html(&check.name),
        html(verdict.lines().next().unwrap_or_default())
    );
    text.push_str(
        "<table><thead><tr><th class=at>line<th>the model<th class=at>line<th>the kernel</tr></thead><tbody>",
    );
    let mut from = 0;
    for (leg, (begin, end)) in driven.plan.steps.iter().enumerate() {
        let process = &check.processes[driven.plan.route.legs[leg].process].name;
        let done = driven.guided.done_at().get(leg).copied();
        let here = done.is_none() && leg == driven.guided.legs_done();
        let to = done.or(here.then_some(driven.execution.path.len())).unwrap_or(from);
        let _ = write!(text, "<tr class=leg><td colspan=2>{}. {}<td colspan=2></tr>", leg + 1, html(process));
        rows(&mut text, &model_lines(trail, *begin, *end), &stands(driven, from, to));
        from = to;
        let note = match done {
            Some(_) if driven.guided.inexact().contains(&leg) => {
                "beyond the switch of the model: to the end of the line, or of code in which nobody else can run"
            }
            None if here => "never comes to the end of this",
            _ => continue,
        };
        let _ = write!(text, "<tr><td colspan=2><td><td class=note>{note}</tr>");
    }
    text.push_str("</tbody></table>");
    if let Some(round) = driven.round {
        text.push_str(match round {
            Round::Closed => {
                "<p>After one round of the loop every thread stands where it stood before it.</p>"
            }
            Round::Open => {
                "<p>After one round of the loop the threads do not stand where they stood before it.</p>"
            }
        });
    }
    ending(&mut text, driven);
    text + "</html>\n"
}

fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Whether the statement checks that nothing freed is used. Almost every step has one; it is shown only where
/// it does not hold.
fn is_check(statement: &str) -> bool {
    statement.starts_with("assert(!(") && statement.ends_with(".freed))")
}

/// The steps of a leg, those of one visit to a C line together.
fn model_lines(trail: &Trail, begin: usize, end: usize) -> Vec<ModelLine> {
    let mut lines: Vec<(u32, ModelLine)> = Vec::new();
    for (at, step) in trail.steps.iter().enumerate().take(end).skip(begin) {
        let place = format!("{}:{}", base(&step.at().file), step.at().line);
        let last = at + 1 == trail.steps.len();
        let cycle = trail.cycle == Some(at);
        let known = lines.last().is_some_and(|(visit, line)| *visit == step.visit && line.place == place);
        if !known || cycle {
            let c = step.origin.text.split_whitespace().collect::<Vec<_>>().join(" ");
            lines.push((step.visit, ModelLine { place, c, steps: Vec::new(), wrong: false, cycle }));
        }
        let Some((_, line)) = lines.last_mut() else { continue };
        let check = is_check(&step.statement);
        line.wrong |= last && check;
        if !check || last {
            let shown = |(name, _): &&(String, String)| !name.contains("):t");
            let values = step.values.iter().filter(shown);
            let value = |(name, value): &(String, String)| {
                format!("{} = {value}", name.rsplit("):").next().unwrap_or(name))
            };
            let values: Vec<String> = values.map(value).collect();
            let becomes = if values.is_empty() { "" } else { "  → " };
            line.steps.push(format!("{}{becomes}{}", step.statement, values.join(", ")));
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Where the kernel's threads stood between two decisions, the same in a row once.
fn stands(driven: &Driven, from: usize, to: usize) -> Vec<Stand> {
    let mut stands: Vec<Stand> = Vec::new();
    let mut add = |stand: Stand| {
        if stands.last() != Some(&stand) {
            stands.push(stand);
        }
    };
    let path = &driven.execution.path[from.min(to)..to.min(driven.execution.path.len())];
    for (at, taken) in path.iter().enumerate() {
        let actor = taken.actor();
        for line in driven.passed.get(from + at).into_iter().flatten() {
            add(Stand { place: Some(line.clone()), text: format!("{actor} goes by") });
        }
        let Some(frame) = taken.step.stack.first() else { continue };
        let function = frame.function.as_deref().unwrap_or("?");
        let place = frame.file.as_ref().zip(frame.line).map(|(file, line)| format!("{}:{line}", base(file)));
        add(Stand { place, text: format!("{actor} comes to {function}") });
    }
    stands
}

/// The model's lines and the kernel's places, those that agree beside one another: a longest common
/// subsequence of both.
fn pairs(model: &[ModelLine], kernel: &[Stand]) -> Vec<(usize, usize)> {
    let (m, k) = (model.len(), kernel.len());
    if m * k > PAIRS_MAX {
        return Vec::new();
    }
    let agree = |i: usize, j: usize| kernel[j].place.as_ref() == Some(&model[i].place);
    let mut longest = vec![vec![0_u32; k + 1]; m + 1];
    for i in (0..m).rev() {
        for j in (0..k).rev() {
            longest[i][j] = match agree(i, j) {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < m && j < k {
        if agree(i, j) {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}

fn rows(text: &mut String, model: &[ModelLine], kernel: &[Stand]) {
    let mut next = 0;
    let mut pairs = pairs(model, kernel).into_iter().peekable();
    for (at, line) in model.iter().enumerate() {
        let beside = pairs.next_if(|(model, _)| *model == at).map(|(_, kernel)| kernel);
        if let Some(beside) = beside {
            alone(text, &kernel[next..beside]);
            next = beside + 1;
        }
        if line.cycle {
            text.push_str("<tr><td><td class=note>from here on for ever:<td colspan=2></tr>");
        }
        let wrong = if line.wrong { " class=wrong" } else { "" };
        let _ =
            write!(text, "<tr><td class=at>{}<td><code{wrong}>{}</code>", html(&line.place), html(&line.c));
        for step in &line.steps {
            let _ = write!(text, "<code class=step>{}</code>", html(step));
        }
        match beside.map(|beside| &kernel[beside]) {
            Some(stand) => cell(text, stand),
            None => text.push_str("<td><td>"),
        }
        text.push_str("</tr>");
    }
    alone(text, &kernel[next..]);
}

/// Places of the kernel that the model does not have.
fn alone(text: &mut String, stands: &[Stand]) {
    let hidden = stands.len().saturating_sub(STANDS_SHOWN);
    for (at, stand) in stands.iter().enumerate() {
        if hidden > 0 && at == STANDS_SHOWN / 2 {
            let _ = write!(text, "<tr><td><td><td><td class=gap>… {hidden} more places</tr>");
        }
        if at < STANDS_SHOWN / 2 || at >= STANDS_SHOWN / 2 + hidden {
            text.push_str("<tr><td><td>");
            cell(text, stand);
            text.push_str("</tr>");
        }
    }
}

fn cell(text: &mut String, stand: &Stand) {
    let place = stand.place.as_deref().unwrap_or_default();
    let _ = write!(text, "<td class=at>{}<td><code>{}</code>", html(place), html(&stand.text));
}

fn ending(text: &mut String, driven: &Driven) {
    match &driven.verdict {
        Verdict::Violated { console, .. } => printed(text, console),
        Verdict::Replayed { compared, console } => {
            text.push_str(
                "<h2>After the last step</h2><table><tr><th>in the model<th><th>in the kernel<th></tr>",
            );
            for pair in compared {
                let differs = if pair.model_value == pair.kernel_value { "" } else { " class=wrong" };
                let _ = write!(
                    text,
                    "<tr{differs}><td>{}<td>{}<td>{}<td>{}</tr>",
                    html(&pair.model),
                    html(&pair.model_value),
                    html(&pair.kernel),
                    html(&pair.kernel_value)
                );
            }
            text.push_str("</table>");
            printed(text, console);
        }
        Verdict::NeverReached(never) => {
            text.push_str("<h2>Where the threads stand</h2><pre>");
            text.push_str(&html(&crate::model::words::standing(&never.standing)));
            text.push_str("</pre>");
            if let Some(proposal) = &never.proposal {
                let _ = write!(text, "<p>{}</p>", html(&proposal.sentence));
            }
        }
    }
}

fn printed(text: &mut String, console: &[String]) {
    if !console.is_empty() {
        let _ = write!(text, "<h2>What the test printed</h2><pre>{}</pre>", html(&console.join("\n")));
    }
}
