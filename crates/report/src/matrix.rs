//! The results of many pairs of calls as one table.

use crate::escape::{html as escape, visible};
use crate::words::grouped;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many bugs the text names one by one.
const BUGS_NAMED_MAX: usize = 20;
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}\
table{border-collapse:collapse}th{font-weight:normal;text-align:left;padding:1px 6px;white-space:nowrap}\
thead th{writing-mode:vertical-rl;transform:rotate(180deg);padding:4px 1px}\
td{width:1.4em;height:1.4em;text-align:center;border:1px solid #ddd}\
.bug{background:#d33;color:#fff;font-weight:bold}.all{background:#8c8}.some{background:#cde8cd}\
.none{background:#eee;color:#888}.own{background:#fc6}ul{line-height:1.5}";

/// The result for a pair of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Result {
    Bug {
        headline: String,
        /// The finding file from which it can be replayed.
        file: String,
    },
    /// No schedule shows a bug.
    Exhausted,
    /// No schedule with at most so many preemptions shows a bug.
    Bounded { preemptions: u32 },
    /// There was no time for all schedules with one preemption.
    Unfinished,
    /// The machine could not go on.
    Unsupported,
}

impl Result {
    /// A letter for the table, and the class that colours it.
    fn sign(&self) -> (String, &'static str) {
        match self {
            Self::Bug { .. } => ("!".to_owned(), "bug"),
            Self::Exhausted => ("\u{2713}".to_owned(), "all"),
            Self::Bounded { preemptions } => (preemptions.to_string(), "some"),
            Self::Unfinished => ("\u{b7}".to_owned(), "none"),
            Self::Unsupported => ("?".to_owned(), "own"),
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Bug { headline, .. } => headline.clone(),
            Self::Exhausted => "no bug in any schedule".to_owned(),
            Self::Bounded { preemptions: 1 } => "no bug with at most one preemption".to_owned(),
            Self::Bounded { preemptions } => format!("no bug with at most {preemptions} preemptions"),
            Self::Unfinished => "no bug found, not even one preemption exhausted".to_owned(),
            Self::Unsupported => "the machine could not go on".to_owned(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    pub result: Result,
    pub schedules: u64,
    /// How many words of memory the two calls share.
    pub words: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    pub what: String,
    pub names: Vec<String>,
    /// The pairs by the numbers of the two calls, the smaller first.
    pub cells: BTreeMap<(u32, u32), Cell>,
}

impl Matrix {
    fn pair(&self, (first, second): (u32, u32)) -> String {
        let name = |number: u32| self.names.get(number as usize).map_or("?", String::as_str);
        format!("{} || {}", name(first), name(second))
    }

    /// How many pairs had each result, in words, the worst first.
    fn counts(&self) -> Vec<String> {
        let count =
            |is: &dyn Fn(&Result) -> bool| self.cells.values().filter(|cell| is(&cell.result)).count();
        let bounded = |most: u32| count(&|result| *result == Result::Bounded { preemptions: most });
        let mut counts = vec![
            (count(&|result| matches!(result, Result::Bug { .. })), "with a bug".to_owned()),
            (
                count(&|result| *result == Result::Unsupported),
                "on which the machine could not go on".to_owned(),
            ),
            (count(&|result| *result == Result::Unfinished), "without a bug, unfinished".to_owned()),
        ];
        let bounds = self.cells.values().filter_map(|cell| match cell.result {
            Result::Bounded { preemptions } => Some(preemptions),
            _ => None,
        });
        for most in 1..=bounds.max().unwrap_or(0) {
            let plural = if most == 1 { "" } else { "s" };
            counts.push((bounded(most), format!("without a bug up to {most} preemption{plural}")));
        }
        counts.push((
            count(&|result| *result == Result::Exhausted),
            "without a bug in any schedule".to_owned(),
        ));
        counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }

    fn schedules(&self) -> u64 {
        self.cells.values().map(|cell| cell.schedules).sum()
    }

    /// The bugs, each once, with the file that replays it and the pairs that show it.
    fn bugs(&self) -> BTreeMap<(&str, &str), Vec<String>> {
        let mut bugs: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for (pair, cell) in &self.cells {
            if let Result::Bug { headline, file } = &cell.result {
                bugs.entry((headline, file)).or_default().push(self.pair(*pair));
            }
        }
        bugs
    }

    /// A summary for a terminal; `pairs`: how many there are in all.
    #[must_use]
    pub fn text(&self, pairs: usize) -> String {
        let mut out = format!("{}, {} of {pairs} pairs of calls:\n", visible(&self.what), self.cells.len());
        for count in self.counts() {
            let _ = writeln!(out, "  {count}");
        }
        let _ = writeln!(out, "  {} schedules", grouped(self.schedules()));
        let bugs = self.bugs();
        for ((headline, file), pairs) in bugs.iter().take(BUGS_NAMED_MAX) {
            let others =
                if pairs.len() > 1 { format!(", and {} more pairs", pairs.len() - 1) } else { String::new() };
            let _ = writeln!(
                out,
                "bug: {}\n  {}{others}\n  rockfall replay {file}",
                visible(headline),
                visible(&pairs[0])
            );
        }
        if bugs.len() > BUGS_NAMED_MAX {
            let _ = writeln!(out, "and {} more bugs", bugs.len() - BUGS_NAMED_MAX);
        }
        out
    }

    /// The matrix as one self-contained page.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(&format!("Pairs of calls, {}", self.what));
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<ul>\n"
        );
        for count in self.counts() {
            let _ = writeln!(page, "<li>{}</li>", escape(&count));
        }
        let _ = writeln!(page, "<li>{} schedules</li>\n</ul>", grouped(self.schedules()));
        let bugs = self.bugs();
        if !bugs.is_empty() {
            page.push_str("<h2>Bugs</h2>\n<ul>\n");
            for ((headline, file), pairs) in bugs {
                let _ = writeln!(
                    page,
                    "<li><b>{}</b>: {}. <code>rockfall replay {}</code></li>",
                    escape(headline),
                    escape(&pairs.join(", ")),
                    escape(file)
                );
            }
            page.push_str("</ul>\n");
        }
        page.push_str(
            "<p>! a bug; \u{2713} no bug in any schedule; a number: none with at most so many preemptions; \u{b7} not \
             finished; ? the machine could not go on; empty: not run.</p>\n<table>\n<thead><tr><th></th>",
        );
        for name in &self.names {
            let _ = write!(page, "<th>{}</th>", escape(name));
        }
        page.push_str("</tr></thead>\n<tbody>\n");
        for (row, name) in self.names.iter().enumerate() {
            let _ = write!(page, "<tr><th>{}</th>", escape(name));
            for column in 0..self.names.len() {
                let pair = (row.min(column) as u32, row.max(column) as u32);
                page.push_str(
                    &self
                        .cells
                        .get(&pair)
                        .map_or_else(|| "<td></td>".to_owned(), |cell| self.data(pair, cell)),
                );
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</tbody>\n</table>\n</body>\n</html>\n");
        page
    }

    fn data(&self, pair: (u32, u32), cell: &Cell) -> String {
        let (sign, class) = cell.result.sign();
        let about = format!(
            "{}: {} ({} schedules, {} shared words)",
            self.pair(pair),
            cell.result.in_words(),
            grouped(cell.schedules),
            cell.words
        );
        format!("<td class=\"{class}\" title=\"{}\">{sign}</td>", escape(&about))
    }

    /// The matrix for programs.
    #[must_use]
    pub fn json(&self) -> String {
        let pairs: Vec<_> = self
            .cells
            .iter()
            .map(|(pair, cell)| {
                let file = if let Result::Bug { file, .. } = &cell.result { Some(file) } else { None };
                json!({
                    "pair": [self.names[pair.0 as usize], self.names[pair.1 as usize]],
                    "result": cell.result.in_words(),
                    "finding": file,
                    "schedules": cell.schedules,
                    "words": cell.words,
                })
            })
            .collect();
        json!({ "what": self.what, "pairs": pairs }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_page() {
        let cell = |result, schedules| Cell { result, schedules, words: 3 };
        let bug = Result::Bug { headline: "oops <here>".to_owned(), file: "calls-1.finding.json".to_owned() };
        let matrix = Matrix {
            what: "test calls of Linux 6.1 on 2 processors".to_owned(),
            names: vec!["open".to_owned(), "un<link".to_owned()],
            cells: [
                ((0, 0), cell(Result::Exhausted, 12)),
                ((0, 1), cell(bug, 4000)),
                ((1, 1), cell(Result::Bounded { preemptions: 1 }, 9)),
            ]
            .into(),
        };
        expect_test::expect![[r#"
            test calls of Linux 6.1 on 2 processors, 3 of 3 pairs of calls:
              1 with a bug
              1 without a bug up to 1 preemption
              1 without a bug in any schedule
              4,021 schedules
            bug: oops <here>
              open || un<link
              rockfall replay calls-1.finding.json
        "#]]
        .assert_eq(&matrix.text(3));
        let page = matrix.html();
        assert!(page.contains("un&lt;link") && !page.contains("un<link") && !page.contains("<here>"));
        assert_eq!(page.matches("<td class=\"bug\"").count(), 2);
    }
}
