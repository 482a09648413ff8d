//! Results: a named value with its unit, and where there is one the target it must reach. As a table and as
//! lines of JSON.

use std::fmt::Write;

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
        }
    }
}

/// One line of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Stable, for machines.
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// For people.
    pub what: String,
    pub target: Option<Target>,
}

/// Measures under headings.
#[derive(Clone, Debug, Default)]
pub struct Table {
    sections: Vec<(String, Vec<Measure>)>,
}

impl Table {
    pub fn section(&mut self, title: &str) {
        self.sections.push((title.to_owned(), Vec::new()));
    }

    /// Adds to the section begun last.
    pub fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str, what: impl Into<String>) {
        self.push(Measure { name: name.into(), value, unit, what: what.into(), target: None });
    }

    /// Adds a value that has a target.
    pub fn aim(&mut self, name: &str, value: f64, unit: &'static str, what: &str, target: Target) {
        let (name, what) = (name.to_owned(), what.to_owned());
        self.push(Measure { name, value, unit, what, target: Some(target) });
    }

    fn push(&mut self, measure: Measure) {
        if self.sections.is_empty() {
            self.section("Results");
        }
        if let Some((_, measures)) = self.sections.last_mut() {
            measures.push(measure);
        }
    }

    pub fn measures(&self) -> impl Iterator<Item = &Measure> {
        self.sections.iter().flat_map(|(_, measures)| measures)
    }

    /// One object a line.
    pub fn json(&self) -> String {
        self.measures().fold(String::new(), |mut out, m| {
            let object = serde_json::json!({ "name": m.name, "value": rounded(m.value), "unit": m.unit });
            let _ = writeln!(out, "{object}");
            out
        })
    }

    /// Aligned columns that are also a Markdown table.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for (title, measures) in &self.sections {
            let mut rows =
                vec![["", "value", "unit", "target", "name"].map(str::to_owned), ["-"; 5].map(str::to_owned)];
            rows.extend(measures.iter().map(row));
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let widths: [usize; 5] = std::array::from_fn(width);
            let _ = writeln!(out, "### {title}\n");
            for row in &rows {
                for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                    let _ = match (cell.as_str(), column) {
                        ("-", 1) => write!(out, "| {:->1$}: ", "", width - 1),
                        ("-", _) => write!(out, "| {:->width$} ", ""),
                        (_, 1) => write!(out, "| {cell:>width$} "),
                        _ => write!(out, "| {cell:<width$} "),
                    };
                }
                out.push_str("|\n");
            }
            out.push('\n');
        }
        out
    }
}

fn row(m: &Measure) -> [String; 5] {
    let target = m.target.map_or(String::new(), |target| {
        let (sign, limit) = match target {
            Target::AtLeast(limit) => ('≥', limit),
            Target::AtMost(limit) => ('≤', limit),
        };
        format!("{sign} {limit} {}", if target.met(m.value) { "reached" } else { "missed" })
    });
    [m.what.clone(), rounded(m.value).to_string(), m.unit.to_owned(), target, format!("`{}`", m.name)]
}

/// Three significant digits, or all of the whole part.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = (2 - value.abs().log10().floor() as i32).max(0);
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The middle one; of an even number, the lower middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let mut table = Table::default();
        table.section("Speed");
        table.add("hot", 1234.56, "M/s", "hot code");
        table.aim("ratio", 0.4567, "×", "to QEMU", Target::AtLeast(0.5));
        let expected = "### Speed\n\n\
            |          | value | unit | target       | name    |\n\
            | -------- | ----: | ---- | ------------ | ------- |\n\
            | hot code |  1235 | M/s  |              | `hot`   |\n\
            | to QEMU  | 0.457 | ×    | ≥ 0.5 missed | `ratio` |\n\n";
        assert_eq!(table.markdown(), expected);
        let expected = "{\"name\":\"hot\",\"unit\":\"M/s\",\"value\":1235.0}\n\
            {\"name\":\"ratio\",\"unit\":\"×\",\"value\":0.457}\n";
        assert_eq!(table.json(), expected);
    }

    #[test]
    fn middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([]), 0.0);
    }
}
