//! The host side: a sequence runs on the processor this process runs on.
//!
//! 32-bit code needs no 32-bit process: `IRETQ` to Linux's 32-bit user code segment continues in compatibility
//! mode, with every register taken from a frame that 32-bit code cannot address. A sequence always ends in an
//! exception, at the latest in the `INT3` behind it; the signal handler copies the interrupted state and jumps
//! back to the caller instead of returning. A periodic alarm ends sequences that loop.
//!
//! Contract: the caller must have screened the bytes (see `generate::acceptable`): no offset of the code may decode
//! to a system call or a far transfer. Nothing else below 4 GiB may be mapped; a position-independent executable
//! on Linux has nothing there.
#![allow(unsafe_code)]

use crate::layout::{
    CODE, DATA, DATA_PAGES, DATA_WRITABLE_PAGES, PAGE, SEGMENTS, STACK, SegmentKind, USER_CODE, USER_DATA,
};
use crate::state::{CS, Case, DS, ES, End, FS, FxImage, GS, Memory, Outcome, Registers, SS};
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
    outcome: Option<Outcome>,
    ticks: u32,
}

const _: () = {
    assert!(std::mem::offset_of!(Frame, r15_to_rax) == 512);
    assert!(std::mem::offset_of!(Frame, rip) == 632);
    assert!(std::mem::offset_of!(Frame, data_segments) == 672);
    assert!(std::mem::offset_of!(Frame, host_rsp) == 680);
    assert!(std::mem::offset_of!(Frame, host_fs_base) == 688);
};

/// Alarms that may pass inside one sequence before it is given up.
const TICKS_MAX: u32 = 2;
const TICK_NANOSECONDS: i64 = 20_000_000;

static FRAME: AtomicPtr<Frame> = AtomicPtr::new(std::ptr::null_mut());
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
    fxrstor [rdi]
    mov es, word ptr [rdi + 672]
    mov ds, word ptr [rdi + 674]
    mov fs, word ptr [rdi + 676]
    mov gs, word ptr [rdi + 678]
    lea rsp, [rdi + 512]
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
    fn differential_leave(frame: *mut c_void) -> !;
    fn differential_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void);
}

/// Runs with whatever FS base the sequence left behind, so it must not touch thread-local storage: it copies and
/// leaves.
extern "C" fn handle(signal: i32, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let frame = FRAME.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a valid context, and the frame lives as long as the handler is installed.
    let (context, frame) = unsafe { (&*context.cast::<libc::ucontext_t>(), &mut *frame) };
    let word = |register: i32| context.uc_mcontext.gregs[register as usize] as u64;
    let inside = word(libc::REG_RIP) >> 32 == 0;
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
    // SAFETY: the kernel saves the floating-point state of every interrupted context; its first 512 bytes are the
    // FXSAVE image.
    let fx = unsafe { FxImage(*context.uc_mcontext.fpregs.cast::<[u8; 512]>()) };
    let vector = word(libc::REG_TRAPNO) as u8;
    let end = match signal {
        libc::SIGALRM => End::Unfinished,
        _ => End::Exception {
            vector,
            error: word(libc::REG_ERR) as u32,
            address: (vector == 14).then(|| word(libc::REG_CR2)),
        },
    };
    let registers = Registers { gpr, ip: word(libc::REG_RIP), flags: word(libc::REG_EFL), segments, fx };
    frame.outcome = Some(Outcome { end, registers });
    // SAFETY: we are on the alternate stack above an interrupted sequence, which `differential_enter` left behind
    // with its stack pointer in the frame. The outcome owns no heap memory, so nothing is leaked.
    unsafe { differential_leave((&raw mut *frame).cast()) }
}

/// The host processor, ready to run sequences. There is one: the islands have fixed addresses and signal handlers
/// belong to the process.
pub struct Host {
    frame: Box<Frame>,
    code: *mut u8,
    alarm: libc::timer_t,
    dirty_code: std::ops::Range<usize>,
}

impl Host {
    /// Maps the islands and takes over the signals. A sentence says why where that cannot be.
    pub fn new(read_only: &[u8; PAGE]) -> Result<Host, String> {
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err("the host processor is already in use by another test of this process".into());
        }
        let code = map_code()?;
        map_fixed(DATA, DATA_PAGES * PAGE)?;
        map_fixed(STACK, PAGE)?;
        // SAFETY: the page was mapped above and is writable until the next line.
        unsafe {
            let page = (DATA as usize + DATA_WRITABLE_PAGES * PAGE) as *mut u8;
            std::ptr::copy_nonoverlapping(read_only.as_ptr(), page, PAGE);
            if libc::mprotect(page.cast(), PAGE, libc::PROT_READ) != 0 {
                return Err(last_error("protecting a page"));
            }
        }
        install_segments()?;
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
            outcome: None,
            ticks: 0,
        });
        const ARCH_GET_FS: i32 = 0x1003;
        // SAFETY: writes one word to the given address.
        if unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &mut frame.host_fs_base) } != 0 {
            return Err(last_error("reading the FS base"));
        }
        FRAME.store(&mut *frame, Ordering::SeqCst);
        take_signals()?;
        let alarm = start_alarm()?;
        Ok(Host { frame, code, alarm, dirty_code: 0..PAGE })
    }

    /// Runs one case. `memory` holds the writable bytes before and receives those after.
    pub fn run(&mut self, case: &Case, memory: &mut Memory) -> Outcome {
        const INT3: u8 = 0xcc;
        let start = (case.registers.ip - u64::from(CODE)) as usize;
        assert!(start + case.code.len() <= PAGE, "code must fit its page");
        let (data, stack) = (memory.data().len(), PAGE);
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
        frame.outcome = None;
        frame.ticks = 0;
        // SAFETY: the code page's writable alias and the islands are mapped for the life of the process, the sizes
        // are theirs, and the frame outlives the call. The handler resumes behind the call through the saved stack
        // pointer, with the callee-saved registers restored.
        unsafe {
            let page = std::slice::from_raw_parts_mut(self.code, PAGE);
            page[self.dirty_code.clone()].fill(INT3);
            page[start..start + case.code.len()].copy_from_slice(&case.code);
            std::ptr::copy_nonoverlapping(memory.data().as_ptr(), DATA as usize as *mut u8, data);
            std::ptr::copy_nonoverlapping(memory.stack().as_ptr(), STACK as usize as *mut u8, stack);
            differential_enter((&raw mut *frame).cast());
            std::ptr::copy_nonoverlapping(DATA as usize as *const u8, memory.0.as_mut_ptr(), data);
            std::ptr::copy_nonoverlapping(
                STACK as usize as *const u8,
                memory.0.as_mut_ptr().add(data),
                stack,
            );
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

fn map_fixed(address: u32, bytes: usize) -> Result<(), String> {
    // SAFETY: MAP_FIXED_NOREPLACE never replaces an existing mapping.
    let got = unsafe {
        libc::mmap(
            address as usize as *mut c_void,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_POPULATE,
            -1,
            0,
        )
    };
    if got as usize == address as usize { Ok(()) } else { Err(last_error("mapping memory below 4 GiB")) }
}

/// Maps the code page twice: executable at its address, writable elsewhere; returns the writable side.
fn map_code() -> Result<*mut u8, String> {
    // SAFETY: fresh mappings of a fresh file; the fixed one never replaces another.
    unsafe {
        let file = libc::memfd_create(c"sequence".as_ptr(), 0);
        if file < 0 || libc::ftruncate(file, PAGE as i64) != 0 {
            return Err(last_error("creating the code page"));
        }
        let executable = libc::mmap(
            CODE as usize as *mut c_void,
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
        if executable as usize != CODE as usize || writable == libc::MAP_FAILED {
            return Err(last_error("mapping the code page"));
        }
        Ok(writable.cast())
    }
}

fn install_segments() -> Result<(), String> {
    for (index, segment) in SEGMENTS.iter().enumerate() {
        let contents = match segment.kind {
            SegmentKind::Data | SegmentKind::ReadOnly => 0,
            SegmentKind::ExpandDown => 1,
            SegmentKind::ReadableCode | SegmentKind::ExecuteOnly => 2,
        };
        let read_exec_only = matches!(segment.kind, SegmentKind::ReadOnly | SegmentKind::ExecuteOnly);
        // `struct user_desc`: entry, base, limit, then bit fields: 32-bit, contents (2), read/execute only, limit
        // in pages, not present, usable.
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
    const STACK_BYTES: usize = 256 * 1024;
    // SAFETY: the alternate stack is leaked, so it outlives every signal; the actions are fully initialised.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: Box::leak(vec![0u8; STACK_BYTES].into_boxed_slice()).as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
        if libc::sigaltstack(&stack, std::ptr::null_mut()) != 0 {
            return Err(last_error("sigaltstack"));
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = differential_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        let signals = [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGBUS, libc::SIGALRM];
        for signal in signals {
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
        // SAFETY: stops the alarm and gives the signals back before the frame goes.
        unsafe {
            libc::timer_delete(self.alarm);
            for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGBUS] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::signal(libc::SIGALRM, libc::SIG_IGN);
        }
    }
}

/// The registers a sequence starts with unless told otherwise: zeros, flat segments, the stack in the middle of
/// its page.
pub fn plain_registers() -> Registers {
    let mut gpr = [0; 16];
    gpr[4] = u64::from(STACK) + PAGE as u64 / 2;
    let mut segments = [USER_DATA; 6];
    segments[CS] = USER_CODE;
    segments[FS] = 0;
    segments[GS] = 0;
    Registers { gpr, ip: CODE.into(), flags: 0x202, segments, fx: FxImage::initial() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_reports_the_state_at_the_end() {
        let mut host = match Host::new(&[0x5a; PAGE]) {
            Ok(host) => host,
            Err(why) => return println!("skipped: {why}"),
        };
        let mut memory = Memory::zeroed();
        let mut run = |code: &[u8]| {
            let case =
                Case { mode: crate::state::Mode::Bits32, registers: plain_registers(), code: code.to_vec() };
            let outcome = host.run(&case, &mut memory);
            (outcome.end, outcome.registers.ip as u32 - CODE, outcome.registers.gpr[0] as u32, memory.0[0])
        };
        let trap = |vector, error, address| End::Exception { vector, error, address };
        // inc eax (a REX prefix in 64-bit mode: this shows that the code ran as 32-bit code)
        assert_eq!(run(&[0x40]), (trap(3, 0, None), 2, 1, 0));
        // mov byte [DATA], 7
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
    }
}
