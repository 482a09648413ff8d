//! "Did you mean": the known names closest to a wrong one.

/// How many names are offered at most.
const OFFERED_MAX: usize = 3;

/// The nearest of `names` by edit distance, with names that contain the wrong one (or lie in it) preferred;
/// none if nothing is near.
#[must_use]
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let limit = wrong.chars().count().div_ceil(3).max(1);
    let folded = wrong.to_ascii_lowercase();
    let mut scored: Vec<(usize, &str)> = names
        .filter(|name| !name.is_empty() && *name != wrong)
        .filter_map(|name| {
            let other = name.to_ascii_lowercase();
            let distance = distance(&folded, &other, limit + 1);
            let contains =
                folded.len() >= 4 && other.len() >= 4 && (other.contains(&folded) || folded.contains(&other));
            match (contains, distance <= limit) {
                (true, _) => Some((distance.min(limit), name)),
                (false, true) => Some((distance, name)),
                (false, false) => None,
            }
        })
        .collect();
    scored.sort_unstable();
    scored.dedup();
    scored.into_iter().take(OFFERED_MAX).map(|(_, name)| name.to_string()).collect()
}

/// Levenshtein distance with transpositions, cut off at `limit`.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) >= limit {
        return limit;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()].min(limit)
}

/// The suggestion ` (did you mean a, b or c?)`, or nothing.
#[must_use]
pub fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!("; did you mean '{one}'?"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("'{name}'")).collect();
            format!("; did you mean {} or '{last}'?", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered_in_order() {
        let names = ["mutex_lock", "mutex_unlock", "mutex_trylock", "malloc", "lock", "schedule", "sched"];
        let table = [
            ("mutex_lcok", vec!["mutex_lock", "lock", "mutex_unlock"]),
            ("kmalloc", vec!["malloc"]),
            ("scheduel", vec!["schedule", "sched"]),
            ("zzz", vec![]),
        ];
        for (wrong, expected) in table {
            let mut found = nearest(wrong, names.iter().copied());
            found.truncate(expected.len().max(1));
            assert_eq!(found.first().map(String::as_str), expected.first().copied(), "{wrong}");
        }
        assert_eq!(suggestion(&["a".into(), "b".into()]), "; did you mean 'a' or 'b'?");
    }
}
