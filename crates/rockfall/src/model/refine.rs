//! A check file with a refinement that the kernel taught: a lock that callers hold.

use crate::model::drive::Proposal;
use campaign::Failure;
use promela::Check;

/// The check with the locks of a proposal; `None` if it has them already.
pub fn refined(check: &Check, proposal: &Proposal) -> Option<Check> {
    let mut check = check.clone();
    let mut changed = false;
    for process in &mut check.processes {
        if let Some(held) = proposal.holds.get(&process.name)
            && process.holds.iter().all(|known| known.lock != held.lock)
        {
            process.holds.push(held.clone());
            changed = true;
        }
    }
    changed.then_some(check)
}

/// The text of a check file with the same locks added, everything else as its author wrote it.
pub fn rewritten(text: &str, proposal: &Proposal) -> Result<String, Failure> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (process, held) in &proposal.holds {
        let named = |line: &String| {
            let mut parts = line.splitn(2, '=');
            parts.next().is_some_and(|key| key.trim() == "name")
                && parts.next().is_some_and(|value| value.trim().trim_matches(['"', '\'']) == process)
        };
        let Some(at) = lines.iter().position(named) else {
            return Err(Failure::BadInput(format!(
                "the check file cannot be rewritten: no line names process '{process}'"
            )));
        };
        let line = format!(
            "holds = [{{ lock = \"{}\", taken-in = \"{}\", at = \"{}\" }}]",
            held.lock, held.taken_in, held.at
        );
        lines.insert(at + 1, line);
    }
    Ok(lines.join("\n") + "\n")
}
