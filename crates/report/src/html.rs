//! A story as one self-contained page: no network, no framework, works from a file.
//!
//! The trace and the bug are plain markup that is there without any script; the script adds the panel with
//! stack, source and shared memory, the arcs between conflicting rows, and the keyboard. What the script
//! needs is embedded as JSON and only ever becomes text nodes. The page forbids itself everything but its own
//! inline style and script, so that text of the guest that should slip through could still load nothing.

use crate::escape::{html as escape, json_in_script, visible};
use crate::fold::{self, Decisive, Line};
use crate::story::{EndKind, Lane, NoteKind, Place, Row, SideView, Story};
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

const STYLE: &str = include_str!("page/report.css");
const SCRIPT: &str = include_str!("page/report.js");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";
/// How many columns fit; with more, the trace scrolls sideways.
const COLUMNS_FIT: usize = 4;
const NOTES_MAX: usize = 8;
/// How many rows a page has: browsers are slow with more, and nobody reads them.
const ROWS_MAX: usize = 4000;
/// How many frames of a stack are shown; further outer ones are folded.
const FRAMES_SHOWN: usize = 9;

/// A page up to the beginning of its body, with more rules of style than all pages have.
pub(crate) fn opening(title: &str, style: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n",
        escape(title)
    )
}

/// The rows that a page does without: of a long story the beginning and the end say most.
fn rows_left_out(story: &Story) -> Range<usize> {
    match story.rows.len() {
        rows if rows > ROWS_MAX => ROWS_MAX / 4..rows - (ROWS_MAX - ROWS_MAX / 4),
        _ => 0..0,
    }
}

/// The story without these rows, and what is told of them alone.
fn without<'a>(story: &'a Story, left_out: &Range<usize>) -> Cow<'a, Story> {
    if left_out.is_empty() {
        return Cow::Borrowed(story);
    }
    let place = |row: usize| match row {
        row if row < left_out.start => Some(row),
        row if row < left_out.end => None,
        row => Some(row - left_out.len()),
    };
    let mut story = story.clone();
    story.rows.drain(left_out.clone());
    let told = story.conflicts.len();
    story.conflicts.retain_mut(|conflict| {
        let rows = place(conflict.rows.0).zip(place(conflict.rows.1));
        conflict.rows = rows.unwrap_or_default();
        rows.is_some()
    });
    story.conflicts_left_out += told - story.conflicts.len();
    for side in &mut story.sides {
        side.row = side.row.and_then(place);
    }
    if let Some(passing) = &mut story.passing {
        passing.after_row = passing.after_row.and_then(place);
    }
    Cow::Owned(story)
}

/// The whole page.
#[must_use]
pub fn html(story: &Story) -> String {
    let left_out = rows_left_out(story);
    let story = &*without(story, &left_out);
    let mut page = opening(&format!("{} in {}", story.title, story.test), "");
    page.push_str("<main class=\"wrap\">\n<div class=\"top\">\n");
    head(&mut page, story);
    run(&mut page, story);
    page.push_str("</div>\n");
    sides(&mut page, story);
    trace(&mut page, story, &left_out);
    page.push_str("<footer>Made by Rockfall. This page needs no network.</footer>\n</main>\n");
    let mut data = serde_json::to_value(story).expect("plain data with string keys");
    make_visible(&mut data);
    let _ = write!(
        page,
        "<script type=\"application/json\" id=\"story\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        json_in_script(&data.to_string())
    );
    page
}

/// The script shows strings as they are, so they must be harmless before.
fn make_visible(data: &mut serde_json::Value) {
    match data {
        serde_json::Value::String(text) => *text = visible(text),
        serde_json::Value::Array(all) => all.iter_mut().for_each(make_visible),
        serde_json::Value::Object(all) => all.values_mut().for_each(make_visible),
        _ => {}
    }
}

fn head(page: &mut String, story: &Story) {
    let _ = write!(
        page,
        "<header>\n<div class=\"crumbs\"><span class=\"brand\">Rockfall</span>\
         <span>test <code>{}</code></span><span>kernel <code>{}</code></span></div>\n\
         <h1>{}</h1>\n<p class=\"headline\">{}</p>\n<p class=\"advice\"><b>Look at</b><span>{}</span></p>\n</header>\n",
        escape(&story.test),
        escape(&story.kernel),
        escape(&story.title),
        escape(&story.headline),
        escape(&story.advice),
    );
}

fn hue(column: usize) -> usize {
    column % 8
}

fn at(place: &Place) -> String {
    match place.line_of_file() {
        Some(at) => format!("<span class=\"at\">{}</span>", escape(&at)),
        None => String::new(),
    }
}

fn sides(page: &mut String, story: &Story) {
    if story.sides.is_empty() {
        return;
    }
    let alone = if story.sides.len() == 1 { " alone" } else { "" };
    let _ = writeln!(page, "<h2>Who took part</h2>\n<div class=\"sides{alone}\">");
    for side in &story.sides {
        side_card(page, side);
    }
    page.push_str("</div>\n");
}

fn side_card(page: &mut String, side: &SideView) {
    let class = side.column.map(|column| format!(" c{}", hue(column))).unwrap_or_default();
    let (who, verb) = side.title.split_once(' ').unwrap_or((&side.title, ""));
    let _ = write!(
        page,
        "<article class=\"side{class}\"><h3><span class=\"who\">{}</span> {}",
        escape(who),
        escape(verb)
    );
    if let Some(row) = side.row {
        let _ = write!(page, "<button class=\"goto\" data-row=\"{row}\">row {}</button>", row + 1);
    }
    page.push_str("</h3>");
    if let Some(what) = &side.waits_for {
        let _ = write!(page, "<p class=\"wants\">wants <b>{}</b></p>", escape(what));
    }
    if let Some(locks) = &side.locks {
        page.push_str("<div class=\"held\">");
        page.push_str(if locks.is_empty() { "holds no lock" } else { "holds" });
        for lock in locks {
            let _ = write!(page, " <span class=\"chip\">{}</span>", escape(lock));
        }
        page.push_str("</div>");
    }
    if let Some(source) = &side.place.source {
        let _ = write!(page, "<pre class=\"src\">{}</pre>", escape(source));
    }
    page.push_str("<ol class=\"stack\">");
    let only = [side.place.clone()];
    let stack = if side.stack.is_empty() { &only[..] } else { &side.stack[..] };
    let frame = |page: &mut String, place: &Place| {
        let source = place.source.as_deref().unwrap_or_default();
        let _ = write!(
            page,
            "<li{} title=\"{}\"><span class=\"fn\">{}</span>{}</li>",
            if *place == side.place { " class=\"tells\"" } else { "" },
            escape(source),
            escape(&place.function()),
            at(place)
        );
    };
    let (inner, rest) = stack.split_at(side.scheduler_frames.min(stack.len()));
    let (shown, outer) = rest.split_at(if rest.len() > FRAMES_SHOWN + 2 { FRAMES_SHOWN } else { rest.len() });
    let folded = |page: &mut String, frames: &[Place], what: &str| {
        if !frames.is_empty() {
            let noun = if frames.len() == 1 { "frame" } else { "frames" };
            let _ = write!(
                page,
                "<li class=\"fold\"><details><summary>{} {noun} {what}</summary><ol>",
                frames.len()
            );
            frames.iter().for_each(|place| frame(page, place));
            page.push_str("</ol></details></li>");
        }
    };
    folded(page, inner, "of the scheduler");
    shown.iter().for_each(|place| frame(page, place));
    folded(page, outer, "more");
    page.push_str("</ol></article>\n");
}

fn run(page: &mut String, story: &Story) {
    page.push_str("<dl class=\"run\" aria-label=\"See it again\">\n");
    let mut copyable = |term: &str, id: &str, text: &str| {
        let _ = writeln!(
            page,
            "<dt>{term}</dt><dd><code id=\"{id}\">{}</code><button class=\"copy\" data-copy=\"{id}\">copy</button></dd>",
            escape(text)
        );
    };
    copyable("Replay", "replay", &story.replay);
    copyable("Schedule", "schedule", &story.schedule);
    if let Some(passing) = &story.passing {
        let _ = writeln!(
            page,
            "<dt class=\"ok\">Passes</dt><dd><span>{}</span><code id=\"passing\">{}</code>\
             <button class=\"copy\" data-copy=\"passing\">copy</button></dd>",
            escape(&passing.sentence),
            escape(&passing.schedule)
        );
    }
    if let Some(missing) = &story.sources_missing {
        let _ = writeln!(page, "<dt>Sources</dt><dd><span>{}</span></dd>", escape(missing));
    }
    let noun = if story.preemptions == 1 { "preemption" } else { "preemptions" };
    let mut facts = vec![format!("{} {noun}", story.preemptions)];
    facts.extend(story.facts.iter().cloned());
    let _ = write!(page, "<dt>Search</dt><dd><span>{}</span>", escape(&facts.join(" · ")));
    for point in story.points.split(',').filter(|point| !point.is_empty()) {
        let _ = write!(page, "<span class=\"chip\">{}</span>", escape(point));
    }
    page.push_str("</dd>\n</dl>\n");
}

fn trace(page: &mut String, story: &Story, left_out: &Range<usize>) {
    let decisive = Decisive::of(story);
    let threads = story.threads.len().max(1);
    let wide = if threads > COLUMNS_FIT { " wide" } else { "" };
    let column = match threads {
        0..COLUMNS_FIT => 200,
        COLUMNS_FIT => 170,
        _ => 250,
    };
    let _ = write!(
        page,
        "<div class=\"bar\"><h2>What happened</h2><span class=\"keys\"><kbd>↑</kbd> <kbd>↓</kbd> rows \
         <kbd>←</kbd> <kbd>→</kbd> same thread <kbd>B</kbd> the bug</span></div>\n\
         <div class=\"stage{wide}\">\n<div class=\"scroller\">\n\
         <div class=\"trace\" id=\"trace\" style=\"--n:{threads};--w:{column}px\" role=\"grid\">\n\
         <div class=\"head\" role=\"row\"><div>row</div>"
    );
    for (column, thread) in story.threads.iter().enumerate() {
        let title = escape(&thread.title);
        let _ = write!(
            page,
            "<div class=\"c{}\" role=\"columnheader\" title=\"{title}\">{title}</div>",
            hue(column)
        );
    }
    page.push_str("</div>\n<svg class=\"arcs\" id=\"arcs\" width=\"76\" aria-hidden=\"true\"></svg>\n");
    for (index, row) in story.rows.iter().enumerate() {
        if index == left_out.start && !left_out.is_empty() {
            let (first, last) = (left_out.start + 1, left_out.end);
            let _ = writeln!(page, "<div class=\"parts\">rows {first} to {last} left out</div>");
        }
        row_of(page, row, &decisive);
        if let Some(passing) = story.passing.as_ref().filter(|passing| passing.after_row == Some(index)) {
            let _ = writeln!(page, "<div class=\"parts\">{}</div>", escape(&passing.sentence));
        }
    }
    page.push_str(
        "</div>\n</div>\n<aside class=\"panel\" id=\"panel\" aria-live=\"polite\"></aside>\n</div>\n",
    );
}

const fn lane_class(lane: Lane) -> &'static str {
    match lane {
        Lane::Unborn => "unborn",
        Lane::Ready => "ready",
        Lane::Running => "running",
        Lane::Blocked => "blocked",
        Lane::Gone => "gone",
    }
}

const fn note_class(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::Lock => "lock",
        NoteKind::Unlock => "unlock",
        NoteKind::Thread => "thread",
        NoteKind::Wait => "wait",
        NoteKind::Heap => "heap",
        NoteKind::Print => "print",
        NoteKind::Point => "point",
        NoteKind::Enter => "enter",
        NoteKind::Interrupts => "interrupts",
        NoteKind::Conflict => "conflict",
        NoteKind::Parting => "parting",
        NoteKind::Bug => "bug",
    }
}

const fn end_class(kind: EndKind) -> &'static str {
    match kind {
        EndKind::Preempted => "preempted",
        EndKind::Yielded => "yielded",
        EndKind::Blocked => "blocked",
        EndKind::Exited => "exited",
        EndKind::Switched => "switched",
        EndKind::Bug => "bug",
        EndKind::Finished => "finished",
        EndKind::Stopped => "stopped",
    }
}

fn row_of(page: &mut String, row: &Row, decisive: &Decisive<'_>) {
    let bug = match (row.end.kind, row.folded) {
        (EndKind::Bug, _) => " bug",
        (_, Some(_)) => " minor",
        _ => "",
    };
    let _ = write!(
        page,
        "<div class=\"row{bug}\" role=\"row\" tabindex=\"0\" aria-selected=\"false\"><div class=\"num\">{}</div>",
        row.number
    );
    for (column, lane) in row.lanes.iter().enumerate() {
        let _ = write!(page, "<div class=\"lane c{} {}\">", hue(column), lane_class(*lane));
        if column == row.column {
            card(page, row, decisive);
        }
        page.push_str("</div>");
    }
    page.push_str("</div>\n");
}

fn card(page: &mut String, row: &Row, decisive: &Decisive<'_>) {
    page.push_str("<div class=\"card\">");
    let lines = fold::lines(row, decisive, NOTES_MAX);
    if !lines.is_empty() {
        page.push_str("<ul class=\"notes\">");
        for line in lines {
            let _ = match line {
                Line::Note(note) => write!(
                    page,
                    "<li class=\"{}\">{}{}</li>",
                    note_class(note.kind),
                    escape(&note.text),
                    at(&note.place)
                ),
                Line::Hidden(count) => write!(page, "<li>… {count} more</li>"),
            };
        }
        page.push_str("</ul>");
    }
    let _ = write!(
        page,
        "<div class=\"place\"><span class=\"to\">to</span> <span class=\"fn\">{}</span>{}</div>",
        escape(&row.to.function()),
        at(&row.to)
    );
    if let Some(source) = &row.to.source {
        let _ = write!(page, "<pre class=\"src\">{}</pre>", escape(source));
    }
    let _ =
        write!(page, "<div class=\"end {}\">{}</div></div>", end_class(row.end.kind), escape(&row.end.text));
}
