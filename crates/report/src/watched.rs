//! What watching one run of a guest showed, as one page: findings, then the races of each tool, then what was
//! watched. As the pages of findings, it needs no network and no script.

use crate::escape::{html as escape, visible};
use crate::html::opening;
use std::fmt::Write;

/// What this page needs beside what all pages have.
const STYLE: &str = "pre { white-space: pre-wrap; overflow-wrap: anywhere; }\n.side { margin-bottom: 14px; }";

/// What is told on the page, each as plain text: its first line becomes a heading.
pub struct WatchedPage<'a> {
    pub test: &'a str,
    pub findings: Vec<String>,
    /// The races of each tool, under the tool's name.
    pub races: Vec<String>,
    /// One line about the whole run.
    pub end: &'a str,
}

fn card(page: &mut String, text: &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let rest: Vec<String> = rest.trim_end().lines().map(|line| escape(&visible(line))).collect();
    let _ = write!(page, "<section class=\"side\"><h3>{}</h3>", escape(&visible(first)));
    if !rest.is_empty() {
        let _ = write!(page, "<pre>{}</pre>", rest.join("\n"));
    }
    page.push_str("</section>\n");
}

/// The whole page.
#[must_use]
pub fn watched_html(watched: &WatchedPage<'_>) -> String {
    let test = escape(&visible(watched.test));
    let mut page = opening(&format!("{}, watched", visible(watched.test)), STYLE);
    let _ = write!(
        page,
        "<main class=\"wrap\">\n<div class=\"crumbs\"><span class=\"brand\">Rockfall</span><span><code>{test}</code></span></div>\n\
         <p class=\"headline\">{}</p>\n",
        escape(&visible(watched.end))
    );
    for (title, cards) in [("Findings", &watched.findings), ("Data races", &watched.races)] {
        if !cards.is_empty() {
            let _ = writeln!(page, "<h2>{title}</h2>");
            cards.iter().for_each(|text| card(&mut page, text));
        }
    }
    page.push_str(
        "<footer>Made by Rockfall. This page needs no network.</footer>\n</main>\n</body>\n</html>\n",
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_text_stays_text() {
        let findings = vec!["Lock order: <b>\n  t1 \u{1b}[2J & more\n".to_owned()];
        let page = watched_html(&WatchedPage { test: "a<b", findings, races: Vec::new(), end: "1 finding" });
        assert!(page.contains("<h3>Lock order: &lt;b&gt;</h3><pre>  t1 \\x1b[2J &amp; more</pre>"), "{page}");
        assert!(page.contains("<code>a&lt;b</code>") && !page.contains("Data races"), "{page}");
    }
}
