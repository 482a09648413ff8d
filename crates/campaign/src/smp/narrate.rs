//! A finding on several processors told: its schedule is run once more with stacks, and made into a story.

use crate::failure::Failure;
use crate::finding_file::FindingFile;
use crate::narrate::{quoted, shows};
use crate::smp::target::SmpTarget;
use detect::{Detectors, Limits};
use explore::strategies::replay;
use explore::{End, World};
use guest::driving::multiprocessor::Multiprocessor;
use report::{Context, Story, compose};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trace::{Cancelled, CpuId, PointSet, Step, Subject as _, ThreadId};

/// Functions that only wait, or hand the processor over, on behalf of their callers.
const PLUMBING: [&str; 12] = [
    "__schedule",
    "schedule",
    "schedule_preempt_disabled",
    "schedule_timeout",
    "default_idle",
    "default_idle_call",
    "do_idle",
    "cpu_startup_entry",
    "cpuidle_idle_call",
    "context_switch",
    "__switch_to",
    "io_schedule",
];

/// Replays the finding of `file` from `world`; `path` is what its user calls the file.
pub fn narrate(
    target: &SmpTarget,
    world: &World<Multiprocessor, Detectors>,
    file: &FindingFile,
    path: &Path,
) -> Result<Story, Failure> {
    let story = narrate_until(target, world, file, path, &(Arc::new(|| false) as Cancelled))?;
    Ok(story.expect("it is never late"))
}

/// As [`narrate`]; `None`: it was `late` before the finding showed again.
pub fn narrate_until(
    target: &SmpTarget,
    world: &World<Multiprocessor, Detectors>,
    file: &FindingFile,
    path: &Path,
    late: &Cancelled,
) -> Result<Option<Story>, Failure> {
    let mut world = world.clone();
    world.subject.cancel_when(late.clone());
    world.set_limits(Limits::of(&file.finding));
    let names = world.subject.knowledge().clone();
    let called: BTreeMap<ThreadId, String> = (0..world.subject.machine().cpus.len() as u8)
        .filter_map(|cpu| {
            let thread = guest::driving::multiprocessor::thread_of(CpuId(cpu));
            Some((thread, world.subject.thread_name(thread)?))
        })
        .collect();
    let execution = replay(world, &file.points, &file.schedule, usize::MAX, true);
    if execution.end == End::Cancelled {
        return Ok(None);
    }
    let wanted = file.finding.signature();
    let finding = execution.findings.iter().find(|finding| finding.signature() == wanted).cloned();
    let Some(finding) = finding else {
        return Err(Failure::NotShown { finding: file.finding.headline(), seen: shows(&execution) });
    };
    let steps: Vec<Step> = execution.path.into_iter().map(|taken| Arc::unwrap_or_clone(taken.step)).collect();
    let replay = format!("rockfall replay {}", quoted(path));
    let kernel = target.kernel_name();
    // Hundreds of addresses tell a reader nothing; the file has them.
    let points = PointSet::default();
    let context = Context {
        test: target.test(),
        kernel: &kernel,
        thread_name: &|thread| called.get(&thread).cloned(),
        plumbing: &|function| PLUMBING.contains(&function),
        blocking: &|function| PLUMBING.contains(&function),
        ..file.context(&points, &replay)
    };
    Ok(Some(compose(&steps, &finding, &*names, &|file| target.source(file), &context)))
}
