//! Points of a set that no execution came to: whatever is claimed with them is claimed without them.

use guest::hooks::kernel::Kernel;
use std::collections::BTreeSet;
use trace::{PointKind, PointRule, VirtAddr};

/// The points that were asked for and at which a thread was.
pub type PointsMet = BTreeSet<(PointKind, VirtAddr)>;

/// What is said of an exhausted space none of whose points was met.
pub const NOWHERE: &str = "This is no proof: the test came to none of the points, so nobody was preempted. 'rockfall explore \
                           --list-points' tells where this test comes.";

/// Whether it is known if a thread stood at one of the rule's points. Where a thread is created or woken, the
/// kernel may go over to it by itself: then everybody can be chosen there, and the point has no name.
#[must_use]
pub fn is_known(rule: &PointRule) -> bool {
    !matches!(rule, PointRule::Wake | PointRule::Create)
}

/// Whether a thread stood at one of the rule's points, as far as that is known.
#[must_use]
pub fn is_met(rule: &PointRule, kernel: &Kernel, met: &PointsMet) -> bool {
    let image = kernel.subject();
    let any = |kind: PointKind| met.iter().any(|(met, _)| *met == kind);
    let one_of =
        |kind: PointKind, places: Vec<VirtAddr>| places.iter().any(|place| met.contains(&(kind, *place)));
    match rule {
        PointRule::Lock => any(PointKind::Lock),
        PointRule::Unlock => any(PointKind::Unlock),
        PointRule::InterruptsOff => any(PointKind::InterruptsOff),
        PointRule::InterruptsOn => any(PointKind::InterruptsOn),
        PointRule::Wake | PointRule::Create => true,
        PointRule::Everywhere => any(PointKind::Access),
        PointRule::Function(name) => {
            let entries = image.function(name).iter().map(|&function| image.get(function).start);
            one_of(PointKind::Function, entries.chain(image.inlined_at(name)).collect())
        }
        PointRule::Line { file, line } => one_of(PointKind::Line, image.lines(file, *line)),
        PointRule::Race { pc, .. } => one_of(PointKind::Race, vec![*pc]),
    }
}
