//! A story for the terminal: a column for each thread, a row for each turn, then the bug with its sides.
//!
//! Three layouts, by what fits: columns with the text in them; lanes with the text beside them, when columns
//! would be too narrow to read; and the thread's name in front of the text, when there are more threads than
//! lanes fit.

use crate::escape::{columns, visible, width};
use crate::fold::{self, Decisive, Ranks};
use crate::story::{EndKind, Folded, Lane, NoteKind, Row, SideView, Story};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// Terminal columns to use.
    pub width: usize,
    /// Whether escape sequences for colour may be written.
    pub colour: bool,
    /// How many rows are shown; longer traces show their beginning and their end.
    pub rows_max: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { width: 100, colour: false, rows_max: 60 }
    }
}

/// The least width of a thread's column: narrower ones are unpleasant to read, and lanes with the text beside
/// them are better.
const CELL_MIN: usize = 40;
/// The least width of the text beside lanes.
const BESIDE_MIN: usize = 28;
/// The greatest width of a column: in wider ones the eye loses the line.
const CELL_MAX: usize = 78;
const WIDTH_MIN: usize = 40;
const NOTES_MAX: usize = 6;
const FRAMES_MAX: usize = 12;
const CONFLICTS_SHOWN: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Yellow,
    Thread(usize),
}

struct Pen {
    out: String,
    options: TextOptions,
}

impl Pen {
    fn put(&mut self, style: Style, text: &str) {
        let code = match style {
            Style::Plain => None,
            Style::Bold => Some("1"),
            Style::Dim => Some("2"),
            Style::Red => Some("1;31"),
            Style::Yellow => Some("33"),
            // Six colours that are told apart on dark and light grounds.
            Style::Thread(column) => Some(["36", "35", "32", "34", "33", "96"][column % 6]),
        };
        match code.filter(|_| self.options.colour && !text.is_empty()) {
            Some(code) => {
                self.out.push_str("\x1b[");
                self.out.push_str(code);
                self.out.push('m');
                self.out.push_str(text);
                self.out.push_str("\x1b[0m");
            }
            None => self.out.push_str(text),
        }
    }

    /// A blank, a line of a cell, and blanks up to `to` columns.
    fn pieces(&mut self, line: &Line, to: usize) {
        self.put(Style::Plain, " ");
        for (style, text) in line {
            self.put(*style, text);
        }
        let used: usize = line.iter().map(|(_, text)| width(text)).sum();
        self.put(Style::Plain, &" ".repeat(to.saturating_sub(used + 1)));
    }

    fn end_line(&mut self) {
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }

    fn line(&mut self, style: Style, text: &str) {
        self.put(style, text);
        self.end_line();
    }

    /// A paragraph, wrapped, with `first` in front and later lines indented as far, or less when that is too
    /// far.
    fn paragraph(&mut self, first: &str, style: Style, text: &str) {
        self.led(Style::Bold, first, style, text);
    }

    fn led(&mut self, first_style: Style, first: &str, style: Style, text: &str) {
        let first = cut(first, self.options.width);
        let indent = if width(&first) * 2 > self.options.width { 4 } else { width(&first) };
        self.put(first_style, &first);
        let mut room = self.options.width - width(&first);
        let mut words = visible(text);
        let mut at_first = true;
        while !words.is_empty() {
            let mut lines = wrap(&words, room);
            // A first line without room for a word is left to the prefix alone.
            if at_first && room < 12 && width(&lines[0]) > room {
                lines.insert(0, String::new());
            }
            let line = lines.remove(0);
            if !at_first {
                self.put(Style::Plain, &" ".repeat(indent));
            }
            self.line(style, &line);
            words = lines.join(" ");
            room = self.options.width - indent;
            at_first = false;
        }
        if at_first {
            self.end_line();
        }
    }
}

/// Breaks at blanks, and inside words that are longer than a line. Leading blanks of the text are repeated.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(8);
    let indent: String = text.chars().take_while(|&c| c == ' ').take(room / 2).collect();
    let mut lines = Vec::new();
    let mut line = indent.clone();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let blank = usize::from(line.len() > indent.len());
        if width(&line) + blank + width(word) <= room {
            if blank == 1 {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if blank == 1 {
            lines.push(std::mem::replace(&mut line, indent.clone()));
        }
        for c in word.chars() {
            if width(&line) + columns(c) > room {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            }
            line.push(c);
        }
    }
    if line.len() > indent.len() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_string();
    }
    let mut out = String::new();
    for c in text.chars() {
        if width(&out) + columns(c) + 1 > room {
            break;
        }
        out.push(c);
    }
    out + "…"
}

fn pad(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

/// The trace as text.
#[must_use]
pub fn text(story: &Story, options: TextOptions) -> String {
    let options = TextOptions { width: options.width.max(WIDTH_MIN), ..options };
    let mut pen = Pen { out: String::new(), options };
    head(&mut pen, story);
    trace(&mut pen, story);
    bug(&mut pen, story);
    shared(&mut pen, story);
    foot(&mut pen, story);
    pen.out
}

fn head(pen: &mut Pen, story: &Story) {
    let title = format!("{}  ", visible(&story.title));
    pen.led(Style::Red, &title, Style::Dim, &format!("in test {} of {}", story.test, story.kernel));
    pen.paragraph("", Style::Bold, &story.headline);
    pen.end_line();
    pen.paragraph("Look at: ", Style::Plain, &story.advice);
    pen.end_line();
}

/// A line of a cell: pieces, each in its own style.
type Line = Vec<(Style, String)>;

/// Text with a place after it, which goes to a line of its own when it does not fit.
fn labelled(lines: &mut Vec<Line>, style: Style, text: &str, label: Option<String>, room: usize) {
    let from = lines.len();
    // Lines after the first hang under the text behind the mark.
    for (at, line) in wrap(&visible(text), room.saturating_sub(2)).into_iter().enumerate() {
        let line = if at == 0 { line } else { format!("  {line}") };
        lines.push(vec![(style, line)]);
    }
    let Some(label) = label.map(|label| visible(&label)) else { return };
    let used = lines[from..].last().map_or(0, |line| width(&line[0].1));
    match lines.last_mut().filter(|_| used + 2 + width(&label) <= room) {
        Some(line) => line.push((Style::Dim, format!("  {label}"))),
        None => lines.push(vec![(Style::Dim, cut(&format!("  {label}"), room))]),
    }
}

/// What a row says, line by line.
fn cell(row: &Row, room: usize, passing: bool, decisive: &Decisive<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in fold::lines(row, decisive, NOTES_MAX) {
        let note = match line {
            fold::Line::Note(note) => note,
            fold::Line::Hidden(count) => {
                labelled(&mut lines, Style::Dim, &format!("· … {count} more"), None, room);
                continue;
            }
        };
        let (mark, style) = match note.kind {
            NoteKind::Bug => ("✗", Style::Red),
            NoteKind::Conflict => ("≈", Style::Yellow),
            NoteKind::Parting => ("↳", Style::Dim),
            _ => ("·", Style::Plain),
        };
        labelled(&mut lines, style, &format!("{mark} {}", note.text), note.place.line_of_file(), room);
    }
    let call = row.system_call.as_ref().map(|call| format!("in system call {call}"));
    let at: Vec<String> = row.to.line_of_file().into_iter().chain(call).collect();
    let at = (!at.is_empty()).then(|| at.join("  "));
    labelled(&mut lines, Style::Bold, &format!("to {}", row.to.function()), at, room);
    if let Some(source) = &row.to.source {
        lines.push(vec![(Style::Plain, cut(&visible(&format!("   {source}")), room))]);
    }
    let (mark, style) = match row.end.kind {
        EndKind::Preempted => ("⇢", Style::Yellow),
        EndKind::Bug => ("✗", Style::Red),
        _ => ("→", Style::Dim),
    };
    labelled(&mut lines, style, &format!("{mark} {}", row.end.text), None, room);
    if passing {
        labelled(&mut lines, Style::Dim, "↳ here the nearest passing schedule parts", None, room);
    }
    lines
}

const fn lane(lane: Lane) -> &'static str {
    match lane {
        Lane::Unborn | Lane::Gone => " ",
        Lane::Ready => "┊",
        Lane::Running => "┃",
        Lane::Blocked => "╳",
    }
}

enum Layout {
    Columns { cell: usize },
    Lanes { lane: usize },
    Names,
}

fn trace(pen: &mut Pen, story: &Story) {
    let threads = story.threads.len().max(1);
    let gutter = story.rows.len().to_string().len().max(2) + 2;
    let room = pen.options.width - gutter;
    let names = story.threads.iter().map(|thread| format!("t{}", thread.id).len()).max().unwrap_or(2);
    let layout = if room / threads >= CELL_MIN {
        Layout::Columns { cell: (room / threads).min(CELL_MAX) }
    } else if (names + 1) * threads + BESIDE_MIN <= room {
        Layout::Lanes { lane: names + 1 }
    } else {
        Layout::Names
    };

    let blank = " ".repeat(gutter);
    pen.put(Style::Plain, &blank);
    match layout {
        Layout::Columns { cell } => {
            for (column, thread) in story.threads.iter().enumerate() {
                let title = cut(&visible(&thread.title), cell.saturating_sub(2));
                pen.put(Style::Thread(column), &pad(&title, cell));
            }
        }
        Layout::Lanes { lane } => {
            for (column, thread) in story.threads.iter().enumerate() {
                pen.put(Style::Thread(column), &pad(&format!("t{}", thread.id), lane));
            }
        }
        Layout::Names => pen.put(Style::Dim, "who did what"),
    }
    pen.end_line();
    if !matches!(layout, Layout::Columns { .. }) {
        let named: Vec<_> = story.threads.iter().filter(|thread| thread.title.contains(' ')).collect();
        let named: Vec<_> = named.iter().map(|thread| thread.title.as_str()).collect();
        if !named.is_empty() {
            pen.paragraph(&blank, Style::Dim, &named.join(", "));
        }
    }

    let decisive = Decisive::of(story);
    let shown: Vec<usize> = (0..story.rows.len()).filter(|at| story.rows[*at].folded.is_none()).collect();
    let max = pen.options.rows_max.max(4);
    let left_out =
        if shown.len() > max { shown[max / 4]..shown[shown.len() - (max - max / 4)] } else { 0..0 };
    for (index, row) in story.rows.iter().enumerate() {
        if left_out.contains(&index) {
            if index == left_out.start {
                pen.line(Style::Dim, &format!("{blank}… rows {} to {} left out …", index + 1, left_out.end));
            }
            continue;
        }
        if row.folded.is_some() {
            let first = index == 0 || story.rows[index - 1].folded.is_none() || index == left_out.end;
            if first {
                pen.line(Style::Dim, &folded_rows(&story.rows[index..], story, &blank));
            }
            continue;
        }
        let parts = story.passing.as_ref().is_some_and(|passing| passing.after_row == Some(index));
        let text_room = match layout {
            Layout::Columns { cell } => cell - 3,
            Layout::Lanes { lane } => (room - lane * threads - 1).min(CELL_MAX * 2),
            Layout::Names => room - names - 2,
        };
        for (at, line) in cell(row, text_room, parts, &decisive).iter().enumerate() {
            let number =
                if at == 0 { format!("{:>w$}  ", row.number, w = gutter - 2) } else { blank.clone() };
            pen.put(Style::Dim, &number);
            match layout {
                Layout::Columns { cell } => {
                    for (column, state) in row.lanes.iter().enumerate() {
                        pen.put(Style::Thread(column), lane(*state));
                        match column == row.column {
                            true => pen.pieces(line, cell - 1),
                            false => pen.put(Style::Plain, &" ".repeat(cell - 1)),
                        }
                    }
                }
                Layout::Lanes { lane: wide } => {
                    for (column, state) in row.lanes.iter().enumerate() {
                        pen.put(Style::Thread(column), &pad(lane(*state), wide));
                    }
                    pen.pieces(line, 0);
                }
                Layout::Names => {
                    let name = format!("t{}", story.threads[row.column].id);
                    let name = if at == 0 { name } else { String::new() };
                    pen.put(Style::Thread(row.column), &pad(&name, names + 1));
                    pen.pieces(line, 0);
                }
            }
            pen.end_line();
        }
    }
    pen.end_line();
}

/// What is said in place of rows in which nothing matters.
fn folded_rows(rows: &[Row], story: &Story, blank: &str) -> String {
    let folded: Vec<&Row> = rows.iter().take_while(|row| row.folded.is_some()).collect();
    let waiting: Vec<&Row> =
        folded.iter().copied().filter(|row| row.folded == Some(Folded::DeviceWait)).collect();
    let who = |rows: &[&Row]| {
        let ids: BTreeSet<u32> = rows.iter().map(|row| story.threads[row.column].id).collect();
        let names: Vec<String> = ids.iter().map(|id| format!("t{id}")).collect();
        names.join(", ")
    };
    let (first, last) = (folded[0].number, folded[folded.len() - 1].number);
    let numbers = if first == last { format!("row {first}") } else { format!("rows {first} to {last}") };
    let what = match waiting.len() {
        0 => format!("{} had no part in it", who(&folded)),
        1 => format!("{} waits for a device once more", who(&waiting)),
        more => format!("{} waits for a device {more} more times", who(&waiting)),
    };
    format!("{blank}… {numbers}: {what} …")
}

fn bug(pen: &mut Pen, story: &Story) {
    if story.sides.is_empty() {
        return;
    }
    pen.line(Style::Bold, "Who took part");
    for side in &story.sides {
        side_view(pen, side);
    }
    pen.end_line();
}

fn side_view(pen: &mut Pen, side: &SideView) {
    let mut more = Vec::new();
    if let Some(what) = &side.waits_for {
        more.push(format!("for {what}"));
    }
    if let Some(row) = side.row {
        more.push(format!("in row {}", row + 1));
    }
    more.extend(side.locks.as_ref().map(|locks| match locks.is_empty() {
        true => "holding no lock".to_string(),
        false => format!("holding {}", locks.join(", ")),
    }));
    let style = side.column.map_or(Style::Bold, Style::Thread);
    pen.led(style, &format!("  {} ", visible(&side.title)), Style::Plain, &more.join(", "));
    let frame_max = (pen.options.width / 2).saturating_sub(6).max(28);
    let all = &side.stack[side.scheduler_frames.min(side.stack.len())..];
    let shown = all.iter().take(FRAMES_MAX);
    let names =
        shown.clone().map(|place| width(&visible(&place.in_words()))).max().unwrap_or(0).min(frame_max);
    for place in shown {
        let words = pad(&cut(&visible(&place.in_words()), frame_max), names);
        let source = place.source.as_deref().map(visible).unwrap_or_default();
        pen.put(Style::Plain, &format!("      {words}  "));
        pen.put(Style::Dim, &cut(&source, pen.options.width.saturating_sub(names + 8)));
        pen.end_line();
    }
    if side.stack.is_empty() {
        pen.led(Style::Plain, "      ", Style::Plain, &side.place.in_words());
    }
    if all.len() > FRAMES_MAX {
        pen.line(Style::Dim, &format!("      … {} more frames", all.len() - FRAMES_MAX));
    }
}

fn shared(pen: &mut Pen, story: &Story) {
    if story.conflicts.is_empty() {
        return;
    }
    pen.line(Style::Bold, "Memory that they share");
    let ranks = Ranks::of(story);
    let mut shown = fold::folded(&story.conflicts);
    let all = shown.len();
    shown.sort_by_key(|(_, conflict)| ranks.rank(conflict));
    shown.truncate(CONFLICTS_SHOWN);
    shown.sort_by_key(|(_, conflict)| conflict.rows);
    for (what, conflict) in shown {
        let (a, b) = conflict.rows;
        let atomic = |yes| if yes { " (atomic)" } else { "" };
        let who = |row: usize| format!("t{}", story.threads[story.rows[row].column].id);
        let sentence = format!(
            "{} {}{} in row {}, {}; {} {}{} in row {}, {}",
            who(a),
            conflict.earlier.verb,
            atomic(conflict.earlier.atomic),
            a + 1,
            conflict.earlier.in_words(),
            who(b),
            conflict.later.verb,
            atomic(conflict.later.atomic),
            b + 1,
            conflict.later.in_words(),
        );
        let style = if conflict.bug { Style::Yellow } else { Style::Plain };
        pen.paragraph(&format!("  {}: ", visible(&what)), style, &sentence);
    }
    let more = all.saturating_sub(CONFLICTS_SHOWN) + story.conflicts_left_out;
    if more > 0 {
        pen.line(Style::Dim, &format!("  … {more} more, in the HTML report"));
    }
    pen.end_line();
}

fn foot(pen: &mut Pen, story: &Story) {
    if let Some(missing) = &story.sources_missing {
        pen.paragraph("Sources:  ", Style::Plain, missing);
    }
    if let Some(passing) = &story.passing {
        pen.paragraph("Passes:   ", Style::Plain, &passing.sentence);
        pen.paragraph("          ", Style::Dim, &beginning(&passing.schedule));
    }
    let noun = if story.preemptions == 1 { "preemption" } else { "preemptions" };
    let mut facts = vec![format!("{} {noun}", story.preemptions)];
    facts.extend(story.facts.iter().cloned());
    if !story.points.is_empty() {
        facts.push(format!("points {}", points_in_short(&story.points)));
    }
    pen.paragraph("Search:   ", Style::Plain, &facts.join(" · "));
    pen.paragraph("Schedule: ", Style::Plain, &beginning(&story.schedule));
    pen.put(Style::Bold, "Replay:   ");
    // Unwrapped, so that it can be copied.
    pen.line(Style::Plain, &visible(&story.replay));
}
/// How many characters of a schedule are shown.
const SCHEDULE_MAX: usize = 2000;

/// A schedule, or as much of it as can be of use to a reader.
fn beginning(schedule: &str) -> Cow<'_, str> {
    if schedule.len() <= SCHEDULE_MAX {
        return schedule.into();
    }
    let end = schedule[..SCHEDULE_MAX].rfind(' ').unwrap_or(0);
    format!("{} … and so on; the finding's file has all of it", &schedule[..end]).into()
}

/// How many points are reported one by one.
const POINTS_SHOWN_MAX: usize = 12;

/// The points of a search; of many, lines and racing instructions are counted: the finding's file has all of
/// them.
fn points_in_short(points: &str) -> String {
    let all: Vec<&str> = points.split(',').collect();
    if all.len() <= POINTS_SHOWN_MAX {
        return points.to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    let mut races = 0_usize;
    for point in all {
        if let Some((file, _)) = point.strip_prefix("line:").and_then(|place| place.rsplit_once(':')) {
            *lines.entry(file).or_default() += 1;
        } else if point.starts_with("race:") {
            races += 1;
        } else {
            parts.push(point.to_owned());
        }
    }
    let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    parts.extend(lines.into_iter().map(|(file, count)| format!("{} of {file}", counted(count, "line"))));
    if races > 0 {
        parts.push(counted(races, "racing instruction"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::points_in_short;

    #[test]
    fn many_points_are_counted() {
        assert_eq!(points_in_short("lock,line:a.c:1,race:0x10"), "lock,line:a.c:1,race:0x10");
        let lines: String = (1..=12).map(|line| format!(",line:a.c:{line}")).collect();
        let many = format!("lock{lines},line:b.c:1,race:0x10,race:0x20/t3,within:f");
        assert_eq!(
            points_in_short(&many),
            "lock, within:f, 12 lines of a.c, 1 line of b.c, 2 racing instructions"
        );
    }
}
