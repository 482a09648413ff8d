//! The host side: a sequence runs on the processor this process runs on.
//!
//! `IRETQ` enters the sequence with every register taken from a frame it cannot know: to Linux's 32-bit user
//! code segment, which needs no 32-bit process, or to the 64-bit one. A sequence always ends in an exception,
//! at the latest in the `INT3` behind it; the signal handler copies the interrupted state and jumps back to
//! the caller instead of returning. A periodic alarm ends sequences that loop.
//!
//! Contract: the caller must have screened the bytes (see `screen::acceptable`): nothing that they may
//! execute is a system call. A filter on system calls stops those made from the code page all the same, and
//! 32-bit ones from anywhere: far transfers may lead to code of the other width, which nobody has screened.
//! What keeps a sequence away from the memory of this process: 32-bit code cannot address it, a
//! position-independent executable having nothing below 4 GiB; 64-bit code could, but no register that it can
//! read holds an address of ours (FS and GS have bases of the case while it runs), cases keep away from where
//! Linux puts programs, and a random one of 64 bits hits our few hundred megabytes less than once in 10¹⁰
//! times.
#![allow(unsafe_code)]

use crate::layout::{Island, Layout, PAGE, SEGMENTS, SegmentKind, USER_DATA};
use crate::state::{CS, Case, DS, ES, End, FS, FxImage, GS, Memory, Mode, Outcome, Registers, SS};
use std::ffi::c_void;
use std::ptr::addr_of;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Shared between [`Host::run`], the assembly and the signal handler. The order of the fields is the order in
/// which `differential_enter` pops them; the offsets in the assembly are asserted below.
#[repr(C)]
struct Frame {
    fx: FxImage,
    r15_to_rax: [u64; 15],
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
    data_segments: [u16; 4],
    host_rsp: u64,
    host_fs_base: u64,
    /// Bases of FS and GS; `KEEP` leaves what the selector gave.
    bases: [u64; 2],
    /// Whether the processor is in the sequence, or on its way there.
    running: bool,
    wide: bool,
    outcome: Option<Outcome>,
    ticks: u32,
}

/// Stands for no base: it is none that a program can have.
const KEEP: u64 = u64::MAX;

const _: () = {
    assert!(std::mem::offset_of!(Frame, r15_to_rax) == 512);
    assert!(std::mem::offset_of!(Frame, rip) == 632);
    assert!(std::mem::offset_of!(Frame, data_segments) == 672);
    assert!(std::mem::offset_of!(Frame, host_rsp) == 680);
    assert!(std::mem::offset_of!(Frame, host_fs_base) == 688);
    assert!(std::mem::offset_of!(Frame, bases) == 696);
    assert!(std::mem::offset_of!(Frame, running) == 712);
};

/// How many alarms may pass inside one sequence before it is given up.
const TICKS_MAX: u32 = 2;
const TICK_NANOSECONDS: i64 = 20_000_000;

/// From here on the kernel serves calls to addresses that programs once had their clock at.
const EMULATED_CALLS: u64 = 0xffff_ffff << 32;

/// The signals by which sequences end, beside the alarm.
const SIGNALS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGBUS, libc::SIGSYS];

static FRAME: AtomicPtr<Frame> = AtomicPtr::new(std::ptr::null_mut());
static SIGNAL_STACK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
const SIGNAL_STACK_BYTES: usize = 256 * 1024;
static TAKEN: AtomicBool = AtomicBool::new(false);

std::arch::global_asm!(
    r#"
    .globl differential_enter
differential_enter:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi + 680], rsp
    mov byte ptr [rdi + 712], 1
    fxrstor64 [rdi]
    mov es, word ptr [rdi + 672]
    mov ds, word ptr [rdi + 674]
    mov fs, word ptr [rdi + 676]
    mov gs, word ptr [rdi + 678]
    mov rbx, rdi
    mov rsi, [rbx + 696]
    cmp rsi, -1
    je 1f
    mov eax, 158
    mov edi, 0x1002
    syscall
1:
    mov rsi, [rbx + 704]
    cmp rsi, -1
    je 2f
    mov eax, 158
    mov edi, 0x1001
    syscall
2:
    lea rsp, [rbx + 512]
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    iretq
    .globl differential_entered
differential_entered:

    .globl differential_leave
differential_leave:
    mov rbx, rdi
    mov eax, 158
    mov edi, 0x1002
    mov rsi, [rbx + 688]
    syscall
    mov rsp, [rbx + 680]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

    .globl differential_signal
differential_signal:
    push 2
    popfq
    jmp {handler}
"#,
    handler = sym handle,
);

unsafe extern "C" {
    fn differential_enter(frame: *mut c_void);
    fn differential_entered();
    fn differential_leave(frame: *mut c_void) -> !;
    fn differential_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void);
}

/// Runs with whatever FS base the sequence left behind, so it must not touch thread-local storage: it copies
/// and leaves.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let frame = FRAME.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a valid context, and the frame lives as long as the handler is installed.
    let (context, frame) = unsafe { (&*context.cast::<libc::ucontext_t>(), &mut *frame) };
    let word = |register: i32| context.uc_mcontext.gregs[register as usize] as u64;
    let ip = word(libc::REG_RIP);
    let entering = differential_enter as *const () as u64..differential_entered as *const () as u64;
    let handling = SIGNAL_STACK.load(Ordering::Relaxed) as u64;
    let handling = handling..handling + SIGNAL_STACK_BYTES as u64;
    let inside = frame.running && !entering.contains(&ip) && !handling.contains(&word(libc::REG_RSP));
    if signal == libc::SIGALRM {
        frame.ticks += 1;
        if !inside || frame.ticks < TICKS_MAX {
            return;
        }
    } else if !inside {
        // A fault of this process itself: let it happen again without us.
        // SAFETY: plain system calls.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let (es, ds, fs, gs): (u16, u16, u16, u16);
    // SAFETY: reads selectors; in 64-bit mode the kernel leaves them as the sequence did.
    unsafe {
        std::arch::asm!("mov {0:x}, es", "mov {1:x}, ds", "mov {2:x}, fs", "mov {3:x}, gs",
            out(reg) es, out(reg) ds, out(reg) fs, out(reg) gs, options(nomem, nostack));
    }
    let selectors = word(libc::REG_CSGSFS);
    let mut segments = [0; 6];
    segments[ES] = es;
    segments[CS] = selectors as u16;
    segments[SS] = (selectors >> 48) as u16;
    segments[DS] = ds;
    segments[FS] = fs;
    segments[GS] = gs;
    use libc::{
        REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX,
        REG_RCX, REG_RDI, REG_RDX, REG_RSI, REG_RSP,
    };
    let gpr = [
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    ]
    .map(word);
    // SAFETY: the kernel saves the floating-point state of every interrupted context; its first 512 bytes are
    // the FXSAVE image.
    let fx = unsafe { FxImage(*context.uc_mcontext.fpregs.cast::<[u8; 512]>()) };
    let vector = word(libc::REG_TRAPNO) as u8;
    let end = match signal {
        libc::SIGALRM => End::Unfinished,
        // SAFETY: the kernel passes valid information, for this signal with the address of the call.
        libc::SIGSYS if unsafe { (*info).si_addr() } as u64 >= EMULATED_CALLS => End::Unfinished,
        libc::SIGSYS => End::SystemCall,
        _ => End::Exception {
            vector,
            error: word(libc::REG_ERR) as u32,
            address: (vector == 14).then(|| word(libc::REG_CR2)),
        },
    };
    const ARCH_GET_FS: u64 = 0x1003;
    const ARCH_GET_GS: u64 = 0x1004;
    let bases = if frame.wide { [arch_prctl(ARCH_GET_FS), arch_prctl(ARCH_GET_GS)] } else { [0; 2] };
    let registers = Registers { gpr, ip, flags: word(libc::REG_EFL), segments, bases, fx };
    frame.outcome = Some(Outcome { end, registers });
    frame.running = false;
    // SAFETY: we are on the alternate stack above an interrupted sequence, which `differential_enter` left
    // behind with its stack pointer in the frame. The outcome owns no heap memory, so nothing is leaked.
    unsafe { differential_leave((&raw mut *frame).cast()) }
}

/// Reads a segment base without a look at thread-local storage, which a function of the C library might take.
fn arch_prctl(code: u64) -> u64 {
    let mut value = 0u64;
    // SAFETY: the system call writes one word to the given address.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_arch_prctl => _, in("rdi") code,
            in("rsi") &raw mut value, out("rcx") _, out("r11") _, options(nostack));
    }
    value
}

/// The host processor, ready to run sequences of one mode. There is one at a time: the islands have fixed
/// addresses and signal handlers belong to the process.
pub struct Host {
    layout: &'static Layout,
    frame: Box<Frame>,
    code: *mut u8,
    alarm: libc::timer_t,
    dirty_code: std::ops::Range<usize>,
}

impl Host {
    /// Maps the islands and takes over the signals. A sentence says why where that cannot be.
    pub fn new(mode: Mode, read_only: &[u8; PAGE]) -> Result<Host, String> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err("the host processor is already in use by another test of this process".into());
        }
        Self::set_up(mode, read_only).inspect_err(|_| TAKEN.store(false, Ordering::SeqCst))
    }

    fn set_up(mode: Mode, read_only: &[u8; PAGE]) -> Result<Host, String> {
        let layout = mode.layout();
        let code = map_code(layout.code)?;
        layout.islands.iter().try_for_each(|island| map_island(island, read_only))?;
        install_segments()?;
        forbid_system_calls(layout.code)?;
        let mut frame = Box::new(Frame {
            fx: FxImage::initial(),
            r15_to_rax: [0; 15],
            rip: 0,
            cs: 0,
            flags: 0,
            rsp: 0,
            ss: 0,
            data_segments: [0; 4],
            host_rsp: 0,
            host_fs_base: 0,
            bases: [KEEP; 2],
            wide: mode.wide_code(),
            running: false,
            outcome: None,
            ticks: 0,
        });
        const ARCH_GET_FS: u64 = 0x1003;
        frame.host_fs_base = arch_prctl(ARCH_GET_FS);
        FRAME.store(&mut *frame, Ordering::SeqCst);
        take_signals()?;
        let alarm = start_alarm()?;
        Ok(Host { layout, frame, code, alarm, dirty_code: 0..PAGE })
    }

    /// Runs one case. `memory` holds the writable bytes before and receives those after.
    pub fn run(&mut self, case: &Case, memory: &mut Memory) -> Outcome {
        const INT3: u8 = 0xcc;
        let start = (case.registers.ip - self.layout.code) as usize;
        assert!(start + case.code.len() <= PAGE, "code must fit its page");
        let frame = &mut *self.frame;
        let registers = &case.registers;
        frame.fx = registers.fx.clone();
        for (slot, number) in (0..16).rev().filter(|&n| n != 4).enumerate() {
            frame.r15_to_rax[slot] = registers.gpr[number];
        }
        // The order of pops below r8 is rdi, rsi, rbp, rbx, rdx, rcx, rax: numbers 7, 6, 5, 3, 2, 1, 0.
        frame.rip = registers.ip;
        frame.cs = registers.segments[CS].into();
        frame.flags = registers.flags;
        frame.rsp = registers.gpr[4];
        frame.ss = registers.segments[SS].into();
        frame.data_segments = [ES, DS, FS, GS].map(|s| registers.segments[s]);
        let base = |segment: usize| match registers.segments[segment] {
            0..4 if frame.wide => registers.bases[segment - FS],
            _ => KEEP,
        };
        frame.bases = [FS, GS].map(base);
        frame.outcome = None;
        frame.ticks = 0;
        // SAFETY: the code page's writable alias and the islands are mapped for the life of the process, the
        // sizes are theirs, and the frame outlives the call. The handler resumes behind the call through the
        // saved stack pointer, with the callee-saved registers restored.
        unsafe {
            let page = std::slice::from_raw_parts_mut(self.code, PAGE);
            page[self.dirty_code.clone()].fill(INT3);
            page[start..start + case.code.len()].copy_from_slice(&case.code);
            for (island, range) in memory.windows() {
                let source = memory.bytes[range.clone()].as_ptr();
                std::ptr::copy_nonoverlapping(source, island.address as *mut u8, range.len());
            }
            differential_enter((&raw mut *frame).cast());
            for (island, range) in memory.windows() {
                let target = memory.bytes[range.clone()].as_mut_ptr();
                std::ptr::copy_nonoverlapping(island.address as *const u8, target, range.len());
            }
        }
        self.dirty_code = start..start + case.code.len();
        // SAFETY: the handler wrote it behind the compiler's back.
        let outcome = unsafe { std::ptr::read_volatile(addr_of!(frame.outcome)) };
        frame.outcome = None;
        outcome.expect("every run ends in the handler")
    }
}

fn last_error(doing: &str) -> String {
    format!("{doing} failed: {}", std::io::Error::last_os_error())
}

fn map_island(island: &Island, read_only: &[u8; PAGE]) -> Result<(), String> {
    // SAFETY: MAP_FIXED_NOREPLACE never replaces an existing mapping. The pages filled lie in the new one and
    // are writable until they are protected.
    unsafe {
        let got = libc::mmap(
            island.address as *mut c_void,
            island.pages * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE,
            -1,
            0,
        );
        if got as u64 != island.address {
            return Err(last_error("mapping memory for sequences"));
        }
        for page in island.writable_pages..island.pages {
            let page = (island.address as usize + page * PAGE) as *mut u8;
            std::ptr::copy_nonoverlapping(read_only.as_ptr(), page, PAGE);
            if libc::mprotect(page.cast(), PAGE, libc::PROT_READ) != 0 {
                return Err(last_error("protecting a page"));
            }
        }
    }
    Ok(())
}

/// Maps the code page twice: executable at its address, writable elsewhere; returns the writable side.
fn map_code(address: u64) -> Result<*mut u8, String> {
    // SAFETY: fresh mappings of a fresh file; the fixed one never replaces another.
    unsafe {
        let file = libc::memfd_create(c"sequence".as_ptr(), 0);
        if file < 0 || libc::ftruncate(file, PAGE as i64) != 0 {
            return Err(last_error("creating the code page"));
        }
        let executable = libc::mmap(
            address as *mut c_void,
            PAGE,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE,
            file,
            0,
        );
        let writable = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file,
            0,
        );
        libc::close(file);
        if executable as u64 != address || writable == libc::MAP_FAILED {
            return Err(last_error("mapping the code page"));
        }
        Ok(writable.cast())
    }
}

/// From now on a system call of this thread from the code page, or one that the kernel emulates, raises
/// `SIGSYS` and does nothing.
fn forbid_system_calls(code: u64) -> Result<(), String> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let architecture = std::mem::offset_of!(libc::seccomp_data, arch) as u32;
    let pointer = std::mem::offset_of!(libc::seccomp_data, instruction_pointer) as u32;
    let low = code as u32;
    // The address the kernel sees is that of the next instruction.
    let mut filter = [
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, architecture),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 6, AUDIT_ARCH_X86_64),
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, pointer + 4),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 4, 0, (EMULATED_CALLS >> 32) as u32),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (code >> 32) as u32),
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, pointer),
        instruction(BPF_JMP | BPF_JGE | BPF_K, 0, 2, low),
        instruction(BPF_JMP | BPF_JGT | BPF_K, 1, 0, low + PAGE as u32),
        instruction(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_TRAP),
        instruction(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives across the calls.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(last_error("forbidding system calls"));
        }
    }
    Ok(())
}

fn install_segments() -> Result<(), String> {
    for (index, segment) in SEGMENTS.iter().enumerate() {
        let contents = match segment.kind {
            SegmentKind::Data | SegmentKind::ReadOnly => 0,
            SegmentKind::ExpandDown => 1,
            SegmentKind::ReadableCode | SegmentKind::ExecuteOnly => 2,
        };
        let read_exec_only = matches!(segment.kind, SegmentKind::ReadOnly | SegmentKind::ExecuteOnly);
        // `struct user_desc`: entry, base, limit, then bit fields: 32-bit, contents (2), read/execute only,
        // limit in pages, not present, usable.
        let bits = 1
            | contents << 1
            | u32::from(read_exec_only) << 3
            | u32::from(segment.pages) << 4
            | u32::from(!segment.present) << 5
            | 1 << 6;
        let descriptor: [u32; 4] = [index as u32, segment.base, segment.limit, bits];
        const WRITE: i32 = 0x11;
        // SAFETY: passes 16 bytes that live across the call.
        if unsafe { libc::syscall(libc::SYS_modify_ldt, WRITE, descriptor.as_ptr(), 16usize) } != 0 {
            return Err(last_error("installing segments with modify_ldt"));
        }
    }
    Ok(())
}

fn take_signals() -> Result<(), String> {
    let stack = Box::leak(vec![0u8; SIGNAL_STACK_BYTES].into_boxed_slice()).as_mut_ptr();
    SIGNAL_STACK.store(stack, Ordering::SeqCst);
    // SAFETY: the alternate stack is leaked, so it outlives every signal; the actions are fully initialised.
    unsafe {
        let stack = libc::stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: SIGNAL_STACK_BYTES };
        if libc::sigaltstack(&stack, std::ptr::null_mut()) != 0 {
            return Err(last_error("sigaltstack"));
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = differential_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        for signal in SIGNALS.into_iter().chain([libc::SIGALRM]) {
            if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
                return Err(last_error("sigaction"));
            }
        }
    }
    Ok(())
}

/// Starts the alarm of the calling thread: a process-wide one could be delivered to another.
fn start_alarm() -> Result<libc::timer_t, String> {
    // SAFETY: the structures are initialised and live across the calls.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = std::mem::zeroed();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
            return Err(last_error("timer_create"));
        }
        let tick = libc::timespec { tv_sec: 0, tv_nsec: TICK_NANOSECONDS };
        let period = libc::itimerspec { it_interval: tick, it_value: tick };
        if libc::timer_settime(timer, 0, &period, std::ptr::null_mut()) != 0 {
            return Err(last_error("timer_settime"));
        }
        Ok(timer)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: stops the alarm and gives the signals back before the frame goes; nobody holds on to the
        // islands.
        unsafe {
            libc::timer_delete(self.alarm);
            for signal in SIGNALS {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::signal(libc::SIGALRM, libc::SIG_IGN);
            libc::munmap(self.layout.code as *mut c_void, PAGE);
            libc::munmap(self.code.cast(), PAGE);
            for island in self.layout.islands {
                libc::munmap(island.address as *mut c_void, island.pages * PAGE);
            }
        }
        TAKEN.store(false, Ordering::SeqCst);
    }
}

/// The registers a sequence starts with unless told otherwise: zeros, flat segments, the stack in the middle
/// of its page.
pub fn plain_registers(mode: Mode) -> Registers {
    let layout = mode.layout();
    let mut gpr = [0; 16];
    gpr[4] = layout.stack().address + PAGE as u64 / 2;
    let mut segments = [USER_DATA; 6];
    segments[CS] = layout.code_selector;
    segments[FS] = 0;
    segments[GS] = 0;
    Registers { gpr, ip: layout.code, flags: 0x202, segments, bases: [0; 2], fx: FxImage::initial() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trap(vector: u8, error: u32, address: Option<u64>) -> End {
        End::Exception { vector, error, address }
    }

    /// One test, because there is one host processor to be had per process.
    #[test]
    fn runs_and_reports_the_state_at_the_end() {
        for (mode, run) in [(Mode::Protected, runs_32 as fn(&mut Host)), (Mode::Long, runs_64)] {
            match Host::new(mode, &[0x5a; PAGE]) {
                Ok(mut host) => run(&mut host),
                Err(why) => println!("skipped: {why}"),
            }
        }
    }

    fn runs_32(host: &mut Host) {
        let mut memory = Memory::zeroed(Mode::Protected);
        let mut run = |code: &[u8]| {
            let registers = plain_registers(Mode::Protected);
            let start = registers.ip;
            let outcome = host.run(
                &Case { mode: Mode::Protected, registers, code: code.to_vec(), warm: false },
                &mut memory,
            );
            (outcome.end, outcome.registers.ip - start, outcome.registers.gpr[0], memory.bytes[0])
        };
        // inc eax (a REX prefix in 64-bit mode: this shows that the code ran as 32-bit code)
        assert_eq!(run(&[0x40]), (trap(3, 0, None), 2, 1, 0));
        // mov byte [data], 7
        assert_eq!(run(&[0xc6, 5, 0, 0, 0, 0x20, 7]), (trap(3, 0, None), 8, 0, 7));
        // mov eax, [0]
        assert_eq!(run(&[0xa1, 0, 0, 0, 0]), (trap(14, 4, Some(0)), 0, 0, 7));
        // div eax
        assert_eq!(run(&[0xf7, 0xf0]), (trap(0, 0, None), 0, 0, 7));
        // mov ax, 15; mov fs, ax; mov al, fs:[0]: expand-down, so outside
        assert_eq!(run(&[0x66, 0xb8, 15, 0, 0x8e, 0xe0, 0x64, 0xa0, 0, 0, 0, 0]).0, trap(13, 0, None));
        // jmp $
        assert_eq!(run(&[0xeb, 0xfe]).0, End::Unfinished);
        assert_eq!(run(&[0x40]), (trap(3, 0, None), 2, 1, 7));
        // int 0x80: the net under the screen
        assert_eq!(run(&[0xcd, 0x80]).0, End::SystemCall);
    }

    fn runs_64(host: &mut Host) {
        let mut memory = Memory::zeroed(Mode::Long);
        let plain = plain_registers(Mode::Long);
        let mut run = |registers: &Registers, code: &[u8]| {
            let case =
                Case { mode: Mode::Long, registers: registers.clone(), code: code.to_vec(), warm: false };
            let outcome = host.run(&case, &mut memory);
            (outcome, memory.bytes[0])
        };
        // mov r15, -1; inc r15d; lea rax, [rip]
        let (outcome, _) = run(
            &plain,
            &[0x49, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff, 0x41, 0xff, 0xc7, 0x48, 0x8d, 5, 0, 0, 0, 0],
        );
        assert_eq!((outcome.end, outcome.registers.gpr[15]), (trap(3, 0, None), 0));
        assert_eq!(outcome.registers.gpr[0], plain.ip + 17);
        // mov byte fs:[rax], 9; mov al, gs:[0]
        let mut based = plain.clone();
        based.gpr[0] = 0x800;
        based.bases = [Mode::Long.layout().data().address - 0x800, 0x7fff_ffff_0000];
        let (outcome, byte) = run(&based, &[0x64, 0xc6, 0, 9, 0x65, 0x8a, 4, 0x25, 0, 0, 0, 0]);
        assert_eq!((outcome.end, byte), (trap(14, 4, Some(0x7fff_ffff_0000)), 9));
        assert_eq!(outcome.registers.bases, based.bases);
        // Beyond what is an address: mov al, [rax] and push rax
        let mut far = plain.clone();
        far.gpr[0] = 1 << 47;
        far.gpr[4] = 1 << 63;
        assert_eq!(run(&far, &[0x8a, 0]).0.end, trap(13, 0, None));
        assert_eq!(run(&far, &[0x50]).0.end, trap(12, 0, None));
        // call rax to a page that does not exist
        let mut lost = plain.clone();
        lost.gpr[0] = 0x4444_0000_0000;
        let (outcome, _) = run(&lost, &[0xff, 0xd0]);
        assert_eq!(outcome.end, trap(14, 0x14, Some(0x4444_0000_0000)));
        assert_eq!(outcome.registers.ip, 0x4444_0000_0000);
        // jmp $
        assert_eq!(run(&plain, &[0xeb, 0xfe]).0.end, End::Unfinished);
        // call rax to where the kernel emulates getcpu, which writes to [rdi] and [rsi]
        let mut emulated = plain.clone();
        emulated.gpr[0] = 0xffff_ffff_ff60_0800;
        emulated.gpr[7] = Mode::Long.layout().data().address;
        let (outcome, byte) = run(&emulated, &[0xff, 0xd0]);
        assert_ne!(outcome.end, trap(3, 0, None));
        assert_eq!(byte, 9);
        // syscall, and at the end of the page
        assert_eq!(run(&plain, &[0x0f, 5]).0.end, End::SystemCall);
        let mut last = plain.clone();
        last.ip += PAGE as u64 - 2;
        assert_eq!(run(&last, &[0x0f, 5]).0.end, End::SystemCall);
    }
}
