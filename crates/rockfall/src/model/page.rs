//! A page with the model's steps and the kernel's execution side by side.

use crate::model::drive::{Driven, Round, Verdict};
use promela::check::Check;
use promela::trail::Trail;
use report::escape::html;
use std::fmt::Write as _;

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2rem;max-width:80rem}table{border-collapse:collapse;\
    width:100%;table-layout:fixed}.leg{width:2.5rem}td,th{vertical-align:top;text-align:left;padding:.35rem .6rem;border-top:1px solid #8884}code{font:12px/1.5 \
    ui-monospace,monospace;white-space:pre-wrap}.who{font-weight:600}.note{opacity:.7}@media(prefers-color-scheme:dark){body{\
    background:#16181d;color:#dde}}";

/// How many kernel steps are shown in one row.
const STEPS_SHOWN: usize = 12;

/// The page; it opens with the first line of `verdict`.
pub fn page(check: &Check, trail: &Trail, driven: &Driven, verdict: &str) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1><p>{1}</p>",
        html(&check.name),
        html(verdict.lines().next().unwrap_or_default())
    );
    text.push_str("<table><tr><th class=leg>leg<th>the model<th>the kernel</tr>");
    let mut from = 0;
    for (leg, (begin, end)) in driven.plan.steps.iter().enumerate() {
        let process = &check.processes[driven.plan.route.legs[leg].process].name;
        let _ = write!(text, "<tr><td>{}<td><span class=who>{}</span><br><code>", leg + 1, html(process));
        for (at, step) in trail.steps.iter().enumerate().take(*end).skip(*begin) {
            if trail.cycle == Some(at) {
                text.push_str("from here on for ever:\n");
            }
            let _ = writeln!(text, "{}  {}", html(&step.at().to_string()), html(&step.statement));
        }
        text.push_str("</code><td>");
        match driven.guided.done_at().get(leg) {
            Some(&done) => {
                kernel_steps(&mut text, driven, from, done);
                from = done;
                if driven.guided.inexact().contains(&leg) {
                    text.push_str(
                        "<p class=note>beyond the switch of the model: to the end of the line, or of code in which \
                         nobody else can run</p>",
                    );
                }
            }
            None if leg == driven.guided.legs_done() => {
                kernel_steps(&mut text, driven, from, driven.execution.path.len());
                text.push_str("<p class=note>never comes to the end of this</p>");
            }
            None => {}
        }
        text.push_str("</tr>");
    }
    text.push_str("</table>");
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

fn kernel_steps(text: &mut String, driven: &Driven, from: usize, to: usize) {
    let path = &driven.execution.path[from.min(to)..to.min(driven.execution.path.len())];
    text.push_str("<code>");
    for (at, taken) in path.iter().enumerate() {
        let hidden = path.len().saturating_sub(STEPS_SHOWN);
        if at == STEPS_SHOWN / 2 && hidden > 0 {
            let _ = writeln!(text, "... {hidden} more");
        }
        if at >= STEPS_SHOWN / 2 && at < STEPS_SHOWN / 2 + hidden {
            continue;
        }
        let place = taken.step.stack.first().map_or_else(String::new, |frame| {
            let function = frame.function.as_deref().unwrap_or("?");
            match (&frame.file, frame.line) {
                (Some(file), Some(line)) => {
                    format!("to {function}  {}:{line}", file.rsplit('/').next().unwrap_or(file))
                }
                _ => format!("to {function}"),
            }
        });
        let actor = html(&taken.actor().to_string());
        for line in driven.passed.get(from + at).into_iter().flatten() {
            let _ = writeln!(text, "{actor} by {}", html(line));
        }
        let _ = writeln!(text, "{actor} {}", html(&place));
    }
    text.push_str("</code>");
}

fn ending(text: &mut String, driven: &Driven) {
    match &driven.verdict {
        Verdict::Violated { found, console } => {
            let _ = write!(text, "<h2>On the kernel</h2><p>{}</p>", html(&found.finding.headline()));
            printed(text, console);
        }
        Verdict::Replayed { compared, console } => {
            text.push_str(
                "<h2>After the last step</h2><table><tr><th>in the model<th><th>in the kernel<th></tr>",
            );
            for pair in compared {
                let _ = write!(
                    text,
                    "<tr><td>{}<td>{}<td>{}<td>{}</tr>",
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
            text.push_str("<h2>Where the threads stand</h2><code>");
            text.push_str(&html(&crate::model::told::standing(&never.standing)));
            text.push_str("</code>");
            if let Some(proposal) = &never.proposal {
                let _ = write!(text, "<p>{}</p>", html(&proposal.sentence));
            }
        }
    }
}

fn printed(text: &mut String, console: &[String]) {
    if !console.is_empty() {
        let _ = write!(text, "<h2>What the test printed</h2><code>{}</code>", html(&console.join("\n")));
    }
}
