//! Whether two outcomes agree; and if not, where they differ, and for which shortest sequence.

use crate::emulated::{Emulated, Tier};
use crate::layout::PAGE;
use crate::native::{Host, plain_registers};
use crate::screen::{
    comparable, disassemble, has_branch, is_image_store, operand_address, reachable, undefined_codes,
    undefined_flags,
};
use crate::state::{CS, Case, End, FS, FxImage, Memory, Mode, Outcome, Registers};
use crate::system::in_supervisor_region;
use crate::undefined;
use iced_x86::{Formatter, Instruction, Mnemonic, NasmFormatter};
use std::fmt::Write;

const STATUS_FLAGS: u64 = 0x8d5;
/// RF is set in pushed flags of faults, and Linux changes it on its way to a signal handler.
const RESUME_FLAG: u64 = 0x1_0000;

/// The verdict on a case.
pub enum Verdict {
    Agree,
    /// One side did not finish, so there is nothing to compare.
    Unfinished,
    /// The machine reports something that it does not have.
    Unsupported(String),
    Differ(Vec<String>),
}

/// Both processors in one mode, and the memory that cases start from.
pub struct Pair {
    pub mode: Mode,
    pub host: Host,
    machines: Vec<Emulated>,
    memory: Memory,
    host_memory: Memory,
    machine_memory: Memory,
}

impl Pair {
    /// Each tier is compared with the host, and so with the other.
    pub fn new(mode: Mode, tiers: &[Tier]) -> Result<Pair, String> {
        let read_only: [u8; PAGE] = std::array::from_fn(|i| (i * 7 + 3) as u8);
        Ok(Pair {
            mode,
            host: Host::new(mode, &read_only)?,
            machines: tiers.iter().map(|&tier| Emulated::new(mode, &read_only, tier)).collect(),
            memory: Memory::zeroed(mode),
            host_memory: Memory::zeroed(mode),
            machine_memory: Memory::zeroed(mode),
        })
    }

    pub fn set_memory(&mut self, memory: Memory) {
        self.machines.iter_mut().for_each(|machine| machine.set_memory(&memory));
        self.memory = memory;
    }

    fn run_host(&mut self, case: &Case) -> Outcome {
        self.host_memory.bytes.copy_from_slice(&self.memory.bytes);
        self.host.run(case, &mut self.host_memory)
    }

    /// The outcomes on the host and in the first machine.
    pub fn run(&mut self, case: &Case) -> (Outcome, Outcome) {
        (self.run_host(case), self.machines[0].run(case, &mut self.machine_memory))
    }

    pub fn check(&mut self, case: &Case) -> Verdict {
        self.check_tiers(case).0
    }

    /// The verdict, and the number of the machine that it is about.
    fn check_tiers(&mut self, case: &Case) -> (Verdict, usize) {
        let host = self.run_host(case);
        for i in 0..self.machines.len() {
            let machine = self.machines[i].run(case, &mut self.machine_memory);
            match self.compare(case, host.clone(), machine) {
                Verdict::Agree => {}
                other => return (other, i),
            }
        }
        let mut logged = (0..self.machines.len()).filter(|&i| self.machines[i].tier != Tier::First);
        let Some(first) = logged.next() else { return (Verdict::Agree, 0) };
        for i in logged {
            if let Some(difference) = compare_logs(&self.machines[first], &self.machines[i]) {
                return (Verdict::Differ(vec![difference]), first);
            }
        }
        (Verdict::Agree, 0)
    }

    fn compare(&self, case: &Case, mut host: Outcome, mut machine: Outcome) -> Verdict {
        match (host.end, machine.end) {
            (End::Unfinished, _) | (_, End::Unfinished) => return Verdict::Unfinished,
            (_, End::Unsupported) => return Verdict::Unsupported(self.machines[0].refused.clone()),
            _ => {}
        }
        // AMD's processors have a bit of MXCSR that the machine, like Intel's, refuses.
        if host.registers.fx.u32(24) & !0xffff != 0 {
            return Verdict::Unfinished;
        }
        // A far transfer to code that was not screened.
        let code_selector = case.registers.segments[CS];
        if [&host, &machine].iter().any(|side| side.registers.segments[CS] != code_selector) {
            return Verdict::Unfinished;
        }
        if !self.mode.wide_system() && jumped_into_data(host.end) {
            return Verdict::Unfinished;
        }
        let mut differences = Vec::new();
        let at = |ip| reachable(case).into_iter().find(|instr| instr.ip() == ip);
        let (last, machines_last) = (at(host.registers.ip), at(machine.registers.ip));
        let together = (host.end, host.registers.ip) == (machine.end, machine.registers.ip);
        if !together
            && is_access_fault(machine.end)
            && machines_last
                .is_some_and(|instr| undefined::may_not_fault(&instr, machine.end, &machine.registers))
        {
            return Verdict::Unfinished;
        }
        let (mut host_end, mut machine_end) = (host.end, machine.end);
        if let Some(instr) = last {
            let either = undefined::fault_order(&instr)
                || self.mode.wide_code() && undefined::based_offset(&instr, &host.registers)
                || undefined::over_the_top(self.mode, &instr, &host.registers);
            if either && is_access_fault(host_end) && is_access_fault(machine_end) {
                machine_end = host_end;
            }
            if undefined::large_operand(&instr) {
                (host_end, machine_end) = (by_page(host_end), by_page(machine_end));
            }
        }
        if last.is_some_and(|instr| undefined::done_in_parts(&instr))
            && is_access_fault(host_end)
            && is_access_fault(machine_end)
        {
            machine_end = host_end;
        }
        compare_ends(self.mode, host_end, machine_end, &mut differences);
        if last.is_some_and(|instr| undefined::done_in_parts(&instr))
            && host.registers.ip == machine.registers.ip
        {
            return if differences.is_empty() { Verdict::Agree } else { Verdict::Differ(differences) };
        }
        let Some(codes) = undefined_codes(case) else { return Verdict::Unfinished };
        let instructions = disassemble(case);
        let mut lost: Vec<_> = instructions.iter().map(undefined::last_instruction).collect();
        if at(machine.registers.fx.u64(8)).is_some_and(|instr| !undefined::in_memory(&instr)) {
            lost.push(16..24);
        }
        for fx in [&mut host.registers.fx, &mut machine.registers.fx] {
            fx.set_u16(2, fx.u16(2) & !codes);
            lost.iter().for_each(|bytes| fx.0[bytes.clone()].fill(0));
        }
        let excused = undefined_flags(case, host.registers.ip).unwrap_or(0)
            | last.as_ref().map_or(0, undefined::flags_halfway);
        let cleared = is_access_fault(host_end) && last.as_ref().is_some_and(undefined::clears_top);
        if cleared && host.registers.fx.top() == 0 {
            host.registers.fx.set_top(machine.registers.fx.top());
        }
        for &i in instructions.iter().flat_map(undefined::halves) {
            let whole = &mut machine.registers.gpr[i];
            if host.registers.gpr[i] == *whole & 0xffff_ffff {
                *whole = host.registers.gpr[i];
            }
        }
        compare_registers(&host.registers, &machine.registers, excused.into(), &mut differences);
        self.compare_memory(case, &host, last.as_ref(), &mut differences);
        if differences.is_empty() { Verdict::Agree } else { Verdict::Differ(differences) }
    }

    fn compare_memory(
        &self,
        case: &Case,
        host: &Outcome,
        at: Option<&Instruction>,
        differences: &mut Vec<String>,
    ) {
        if self.host_memory == self.machine_memory {
            return;
        }
        let excused = excused_bytes(case, host, at);
        let half_pushed = has_branch(case) && reachable(case).iter().any(undefined::half_pushed);
        let mut shown = 0;
        let pairs = self.host_memory.bytes.iter().zip(self.machine_memory.bytes.iter());
        for (i, (h, m)) in pairs.enumerate().filter(|(_, (h, m))| h != m) {
            let address = self.host_memory.address(i);
            // The machine's upper half is zero. Where a branch may find the PUSH inside of another instruction, its
            // slot is unknown.
            let excused = excused.contains(&address) || half_pushed && *m == 0;
            if !excused && shown < 16 {
                differences.push(format!("[{address:#x}] host {h:02x} machine {m:02x}"));
                shown += 1;
            }
        }
    }

    /// Removes instructions and simplifies registers while the sides still differ.
    pub fn minimize(&mut self, case: &Case) -> Case {
        let mut best = case.clone();
        let mut differs =
            |candidate: &Case| comparable(candidate) && matches!(self.check(candidate), Verdict::Differ(_));
        loop {
            let mut progress = false;
            let instructions = disassemble(&best);
            for instr in instructions {
                let mut shorter = best.clone();
                let at = (instr.ip() - best.registers.ip) as usize;
                shorter.code.drain(at..best.code.len().min(at + instr.len()));
                if !shorter.code.is_empty() && differs(&shorter) {
                    best = shorter;
                    progress = true;
                    break;
                }
            }
            if !progress {
                break;
            }
        }
        let plain = plain_registers(case.mode);
        for i in 0..16 {
            let mut simpler = best.clone();
            simpler.registers.gpr[i] = plain.gpr[i];
            if differs(&simpler) {
                best = simpler;
            }
        }
        let changes: [fn(&mut Registers, &Registers); 9] = [
            |r, plain| r.fx = plain.fx.clone(),
            |r, plain| r.fx.0[..32].copy_from_slice(&plain.fx.0[..32]),
            |r, plain| r.fx.0[..4].copy_from_slice(&plain.fx.0[..4]),
            |r, plain| r.fx.0[24..28].copy_from_slice(&plain.fx.0[24..28]),
            |r, _| r.fx.0[32..160].fill(0),
            |r, _| r.fx.0[160..].fill(0),
            |r, plain| r.flags = plain.flags,
            |r, plain| {
                // A selector that names a segment has its base.
                for i in (0..2).filter(|i| r.segments[FS + i] < 4) {
                    r.bases[i] = plain.bases[i];
                }
            },
            |r, plain| (r.segments, r.bases) = (plain.segments, plain.bases),
        ];
        for change in changes {
            let mut simpler = best.clone();
            change(&mut simpler.registers, &plain);
            if differs(&simpler) {
                best = simpler;
            }
        }
        best
    }

    /// What the difference is about: the last instruction and what differs first. Cases alike in that most
    /// likely have the same cause.
    pub fn topic(&mut self, case: &Case) -> String {
        let last = disassemble(case).pop().map_or(String::new(), |instr| format!("{:?}", instr.code()));
        let (verdict, which) = self.check_tiers(case);
        match verdict {
            Verdict::Differ(differences) => {
                let first = differences[0].split(':').next().unwrap_or("");
                format!(
                    "{last} {:?}: {}",
                    self.machines[which].tier,
                    if first.starts_with('[') { "memory" } else { first }
                )
            }
            _ => last,
        }
    }

    /// The case as a reader wants it: assembly, before, after on both sides.
    pub fn describe(&mut self, case: &Case) -> String {
        let mut text = String::new();
        let mut formatter = NasmFormatter::new();
        for instr in disassemble(case) {
            let mut line = String::new();
            formatter.format(&instr, &mut line);
            let at = (instr.ip() - case.registers.ip) as usize;
            let bytes: String = case.code[at..case.code.len().min(at + instr.len())]
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            let _ = writeln!(text, "  {:#x}  {bytes:<24} {line}", instr.ip());
        }
        let (verdict, which) = self.check_tiers(case);
        let host = self.run_host(case);
        let machine = self.machines[which].run(case, &mut self.machine_memory);
        let _ = writeln!(text, "  tier: {:?}", self.machines[which].tier);
        let differences = match verdict {
            Verdict::Differ(differences) => differences,
            _ => Vec::new(),
        };
        let float = case.registers.fx != FxImage::initial()
            || differences.iter().any(|d| ["f", "m", "st", "x"].iter().any(|prefix| d.starts_with(prefix)));
        show(&mut text, "before", None, &case.registers, float);
        show(&mut text, "host", Some(host.end), &host.registers, float);
        show(&mut text, "machine", Some(machine.end), &machine.registers, float);
        for difference in differences {
            let _ = writeln!(text, "  differs: {difference}");
        }
        text
    }
}

/// The first access that only one of them told, or told differently.
fn compare_logs(a: &Emulated, b: &Emulated) -> Option<String> {
    let at = (0..a.log.len().max(b.log.len())).find(|&i| a.log.get(i) != b.log.get(i))?;
    Some(format!("log: {:?} {:x?} {:?} {:x?}", a.tier, a.log.get(at), b.tier, b.log.get(at)))
}

/// Data pages are not executable on the host; the machine's 32-bit page tables cannot say that.
fn jumped_into_data(end: End) -> bool {
    matches!(end, End::Exception { vector: 14, error, .. } if error & undefined::FETCH_BIT != 0 && error & 1 != 0)
}

/// Whether the end is a fault of a memory access.
fn is_access_fault(end: End) -> bool {
    matches!(end, End::Exception { vector: 12 | 13 | 14 | 17, .. })
}

fn by_page(end: End) -> End {
    match end {
        End::Exception { vector, error, address: Some(address) } => {
            End::Exception { vector, error, address: Some(address & !(PAGE as u64 - 1)) }
        }
        other => other,
    }
}

fn compare_ends(mode: Mode, host: End, machine: End, differences: &mut Vec<String>) {
    let normal = |end: End| match end {
        End::Exception { vector: 14, error, address } => {
            let hidden = address.is_some_and(|address| in_supervisor_region(mode, address));
            let fetch = if mode.wide_system() { 0 } else { undefined::FETCH_BIT };
            let error = error & !fetch & if hidden { !1 } else { !0 };
            End::Exception { vector: 14, error, address }
        }
        other => other,
    };
    if normal(host) != normal(machine) {
        differences.push(format!("end: host {host:x?} machine {machine:x?}"));
    }
}

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
const SEGMENT_NAMES: [&str; 6] = ["es", "cs", "ss", "ds", "fs", "gs"];

fn compare_registers(host: &Registers, machine: &Registers, excused: u64, differences: &mut Vec<String>) {
    for (i, name) in NAMES.iter().enumerate() {
        if host.gpr[i] != machine.gpr[i] {
            differences.push(format!("{name}: host {:#x} machine {:#x}", host.gpr[i], machine.gpr[i]));
        }
    }
    if host.ip != machine.ip {
        differences.push(format!("rip: host {:#x} machine {:#x}", host.ip, machine.ip));
    }
    let mask = !(excused & STATUS_FLAGS | RESUME_FLAG);
    if (host.flags ^ machine.flags) & mask != 0 {
        let (h, m) = (host.flags & mask, machine.flags & mask);
        differences.push(format!("rflags: host {h:#x} machine {m:#x} (differing {:#x})", h ^ m));
    }
    for (i, name) in SEGMENT_NAMES.iter().enumerate() {
        // A null selector is a null selector: the host's kernel clears its privilege level on the way to us.
        let null = |selector: u16| if selector < 4 { 0 } else { selector };
        if null(host.segments[i]) != null(machine.segments[i]) {
            differences
                .push(format!("{name}: host {:#x} machine {:#x}", host.segments[i], machine.segments[i]));
        }
    }
    for (i, name) in ["fs base", "gs base"].iter().enumerate() {
        if host.bases[i] != machine.bases[i] {
            differences.push(format!("{name}: host {:#x} machine {:#x}", host.bases[i], machine.bases[i]));
        }
    }
    compare_fx(&host.fx, &machine.fx, differences);
}

/// Compares the x87, MMX and SSE state. The addresses of the last instruction and operand count while an
/// exception waits for them.
fn compare_fx(host: &FxImage, machine: &FxImage, differences: &mut Vec<String>) {
    const SUMMARY: u16 = 0x80;
    if host.u16(2) & machine.u16(2) & SUMMARY != 0 {
        for (at, name) in [(8, "fip"), (16, "fdp")] {
            if undefined::kept(machine.u64(at)) && host.u64(at) != machine.u64(at) {
                differences.push(format!("{name}: host {:#x} machine {:#x}", host.u64(at), machine.u64(at)));
            }
        }
        if host.u16(6) != machine.u16(6) {
            differences.push(format!("fop: host {:#x} machine {:#x}", host.u16(6), machine.u16(6)));
        }
    }
    for (at, name) in [(0, "fcw"), (2, "fsw"), (4, "ftw")] {
        if host.u16(at) != machine.u16(at) {
            differences.push(format!("{name}: host {:#06x} machine {:#06x}", host.u16(at), machine.u16(at)));
        }
    }
    if host.u32(24) != machine.u32(24) {
        differences.push(format!("mxcsr: host {:#06x} machine {:#06x}", host.u32(24), machine.u32(24)));
    }
    for i in 0..8 {
        if host.st(i) != machine.st(i) {
            differences.push(format!("st{i}: host {} machine {}", hex(host.st(i)), hex(machine.st(i))));
        }
    }
    for i in 0..16 {
        if host.xmm(i) != machine.xmm(i) {
            differences.push(format!("xmm{i}: host {} machine {}", hex(host.xmm(i)), hex(machine.xmm(i))));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}

/// Bytes that are left open: those of a stored x87 image that hold pointers, selectors and opcode of the instruction
/// before, the half of a slot that not every processor writes, and what a fault leaves behind of the instruction where
/// the host ended.
fn excused_bytes(case: &Case, host: &Outcome, at: Option<&Instruction>) -> Vec<u64> {
    let top = host.registers.gpr[4];
    match at.filter(|_| is_access_fault(host.end)) {
        // The return address is below the stack pointer when the target is found to be no address (volume 3, "Fault
        // Handling Effects on the Stack").
        Some(instr) if instr.is_call_near_indirect() => {
            return (1..=8).map(|i| top.wrapping_sub(i)).collect();
        }
        // The first of two parts may be stored before the second faults (volume 3, "Guaranteed Atomic Operations").
        Some(instr) if undefined::in_two_parts(instr) => {
            let address = operand_address(case.mode, instr, &host.registers);
            return (0..8).map(|i| address.wrapping_add(i)).collect();
        }
        _ => {}
    }
    let Some(last) = disassemble(case).pop() else { return Vec::new() };
    if undefined::half_pushed(&last) {
        return (2..4).map(|i| top.wrapping_add(i)).collect();
    }
    if !is_image_store(&last) {
        return Vec::new();
    }
    let address = operand_address(case.mode, &last, &host.registers);
    let bytes = match (last.mnemonic(), last.memory_size().size()) {
        (Mnemonic::Fxsave | Mnemonic::Fxsave64, _) => &[6..24, 28..32][..],
        (_, 14 | 94) => &[6..14, 0..0],
        // The upper halves of the three words are reserved.
        _ => &[2..4, 6..8, 10..28],
    };
    bytes.iter().cloned().flatten().map(|i: u64| address.wrapping_add(i)).collect()
}

fn show(text: &mut String, title: &str, end: Option<End>, registers: &Registers, float: bool) {
    let _ = write!(text, "  {title:<8}");
    for (i, name) in NAMES.iter().enumerate() {
        let _ = write!(text, " {name} {:x}", registers.gpr[i]);
    }
    let _ = write!(
        text,
        " rip {:x} rflags {:x} segments {:x?} bases {:x?}",
        registers.ip, registers.flags, registers.segments, registers.bases
    );
    if let Some(end) = end {
        let _ = write!(text, " {end:x?}");
    }
    let fx = &registers.fx;
    if float {
        let _ = write!(
            text,
            "\n           fcw {:04x} fsw {:04x} ftw {:02x} mxcsr {:x}",
            fx.u16(0),
            fx.u16(2),
            fx.0[4],
            fx.u32(24)
        );
        for i in 0..8 {
            let _ = write!(text, "\n           st{i} {}  xmm{i} {}", hex(fx.st(i)), hex(fx.xmm(i)));
        }
        for i in (8..16).filter(|&i| fx.xmm(i) != [0; 16]) {
            let _ = write!(text, "\n           xmm{i} {}", hex(fx.xmm(i)));
        }
    }
    text.push('\n');
}
