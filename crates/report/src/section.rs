//! A section of a page of results that a command writes, while people write the rest.
//!
//! It lies between two comments, `<!-- NAME -->` and `<!-- end of NAME -->`, each on a line of its own.

/// The page with another section; `None` if the page has no such section.
#[must_use]
pub fn replaced(page: &str, name: &str, section: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let from = page.find(&begin)? + begin.len();
    let to = from + page[from..].find(&end)?;
    Some(format!("{}\n{}\n\n{}", &page[..from], section.trim(), &page[to..]))
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn only_the_section_changes() {
        let page = "above\n<!-- a -->\nold\n<!-- end of a -->\nbelow\n";
        let new = replaced(page, "a", "new\n\n").expect("it is there");
        assert_eq!(new, "above\n<!-- a -->\n\nnew\n\n<!-- end of a -->\nbelow\n");
        assert_eq!(replaced(&new, "a", "new"), Some(new.clone()));
        assert_eq!(replaced(page, "b", "new"), None);
        assert_eq!(replaced("<!-- a -->\nno end", "a", "new"), None);
    }
}
