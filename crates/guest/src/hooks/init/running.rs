//! The thread that runs, as far as names, types and code tell it.
//!
//! Three ways to keep it are known: a global pointer to the control block, by its name or by what it points
//! to; a block for each processor that holds that pointer; and a control block that the stack pointer leads
//! to when it is rounded down, which the code of the function that does so shows.

use super::{member, pointee};
use crate::elf::code;
use crate::elf::image::Image;
use crate::elf::types::{Type, TypeId};
use crate::state::Architecture;

pub struct Running {
    /// The expression for `threads.current`.
    pub expression: String,
    /// The control block's type.
    pub block: TypeId,
    /// What the expression is short for, if the thread is found by its stack.
    pub definition: Option<String>,
}

/// Functions that tell who runs.
pub const FINDERS: [&str; 12] = [
    "thread_current",
    "running_thread",
    "current_thread",
    "get_current_thread",
    "get_current",
    "thread_self",
    "myproc",
    "get_tcb",
    "get_current_tcb",
    "get_curr_tcb",
    "get_curr_thread",
    "get_running_thread",
];

/// Sizes of stacks that have their control block at the bottom.
const STACK_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 16;

pub fn running(image: &Image) -> Option<Running> {
    by_variable(image).or_else(|| by_processor(image)).or_else(|| by_stack(image)).or_else(|| by_shape(image))
}

/// A function that tells who runs, and the control block that it returns, where its code does not say how.
pub fn function_that_finds(image: &Image) -> Option<(&'static str, TypeId)> {
    FINDERS.iter().find_map(|name| {
        let function = image.get(*image.function(name).first()?);
        Some((*name, pointee(image, image.subprogram(function)?.returns?)?))
    })
}

/// The idle thread: a variable, what the scheduler's own struct points to, or what the block of the first
/// processor does, itself or in a struct that it holds, such as its queue of those who can run.
pub fn idle_thread(image: &Image) -> Option<String> {
    const NAMES: [&str; 3] = ["idle_thread", "idle_tcb", "idle"];
    let types = image.types();
    let in_struct = |ty: TypeId| {
        let pointer =
            |name: &&&str| types.member(ty, name).is_some_and(|member| pointee(image, member.ty).is_some());
        NAMES.iter().find(pointer)
    };
    let plain = NAMES.iter().find(|name| image.variable(name).is_some()).map(ToString::to_string);
    let of_scheduler = || {
        ["scheduler", "sched", "kernel_state", "kernel"]
            .iter()
            .find_map(|owner| in_struct(image.variable(owner)?.ty).map(|name| format!("{owner}.{name}")))
    };
    let of_processor = || {
        let block = processor_block(image)?;
        let own = in_struct(block).map(|name| format!("cpus[0].{name}"));
        own.or_else(|| {
            let Type::Struct { members, .. } = types.get(types.strip(block)) else { return None };
            members.iter().find_map(|member| {
                Some(format!("cpus[0].{}.{}", member.name.as_ref()?, in_struct(member.ty)?))
            })
        })
    };
    plain.or_else(of_scheduler).or_else(of_processor)
}

/// The type of the blocks that there are for each processor.
fn processor_block(image: &Image) -> Option<TypeId> {
    let types = image.types();
    let Type::Array { of, .. } = types.get(types.strip(image.variable("cpus")?.ty)) else { return None };
    Some(*of)
}

fn by_variable(image: &Image) -> Option<Running> {
    const NAMES: [&str; 8] = [
        "current",
        "current_thread",
        "curthread",
        "cur_thread",
        "running_thread",
        "current_task",
        "curproc",
        "current_tcb",
    ];
    NAMES.iter().find_map(|name| {
        let block = pointee(image, image.variable(name)?.ty)?;
        Some(Running { expression: (*name).to_string(), block, definition: None })
    })
}

/// The one variable that points to what looks like a control block: it has a number, a state and a stack. Those
/// whose names say that they are somebody or something else do not count.
fn by_shape(image: &Image) -> Option<Running> {
    const NUMBERS: [&str; 4] = ["pid", "tid", "id", "thread_id"];
    const STATES: [&str; 2] = ["state", "status"];
    const STACKS: [&str; 7] =
        ["esp", "saved_esp", "stack_pointer", "context", "regs", "kernel_stack", "stack"];
    const OTHERS: [&str; 11] =
        ["idle", "init", "first", "root", "head", "tail", "list", "queue", "next", "last", "main"];
    let has = |block: TypeId, names: &[&str]| member(image, block, names).is_some();
    let looks = |block: TypeId| has(block, &NUMBERS) && has(block, &STATES) && has(block, &STACKS);
    let mut found: Vec<(&str, TypeId)> = Vec::new();
    for variable in image.all_variables().filter(|variable| variable.function.is_none()) {
        let name: &str = &variable.name;
        let other = OTHERS.iter().any(|other| name.to_ascii_lowercase().contains(other));
        let Some(block) = pointee(image, variable.ty).filter(|block| !other && looks(*block)) else {
            continue;
        };
        // Every file that declares it has it once more.
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, block));
        }
    }
    let [(name, block)] = found.as_slice() else { return None };
    Some(Running { expression: (*name).to_string(), block: *block, definition: None })
}

fn by_processor(image: &Image) -> Option<Running> {
    let of = processor_block(image)?;
    ["proc", "thread", "current"].iter().find_map(|name| {
        let block = pointee(image, image.types().member(of, name)?.ty)?;
        Some(Running { expression: format!("cpus[0].{name}"), block, definition: None })
    })
}

fn by_stack(image: &Image) -> Option<Running> {
    if image.architecture != Architecture::X86 {
        return None;
    }
    let (block, rounded) = FINDERS.iter().find_map(|name| {
        let function = image.get(*image.function(name).first()?);
        let block = pointee(image, image.subprogram(function)?.returns?)?;
        let rounded = code::rounds_stack_down(image, function);
        Some((block, rounded.filter(|rounded| STACK_BYTES.contains(&rounded.size))?))
    })?;
    // While a program runs, the stack is its own; the processor keeps where the kernel's begins.
    let stack = match kernel_stack(image) {
        Some(top) => format!("($ring ? (unsigned){top} - 4 : $esp)"),
        None => "$esp".to_string(),
    };
    let display = image.types().display(block);
    let base = format!("({stack} & ~{:#x})", rounded.size - 1);
    let definition = match rounded.word {
        Some(offset) => format!("*({display} **)({base} + {offset:#x})"),
        None => format!("({display} *){base}"),
    };
    Some(Running { expression: "running".into(), block, definition: Some(definition) })
}

/// Where the processor finds the kernel's stack when a program is interrupted.
fn kernel_stack(image: &Image) -> Option<String> {
    let types = image.types();
    // The course's kernels have it in assembly, without a type.
    let untyped =
        ["init_tss"].iter().find(|name| image.variable(name).is_none() && image.symbol(name).is_some());
    if let Some(name) = untyped {
        return Some(format!("*(unsigned *)((unsigned)&{name} + 4)"));
    }
    ["tss", "cpu_tss", "kernel_tss"].iter().find_map(|name| {
        let ty = image.variable(name)?.ty;
        match pointee(image, ty) {
            Some(block) => types.member(block, "esp0").map(|_| format!("{name}->esp0")),
            None => types.member(ty, "esp0").map(|_| format!("{name}.esp0")),
        }
    })
}
