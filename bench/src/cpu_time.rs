//! Processor time of a process, which other work on the host hardly disturbs, unlike the clock on the wall.
#![allow(unsafe_code)]

use std::time::Duration;

/// The clock that counts the processor time of all threads of one process.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// This process.
    pub fn own() -> Self {
        Self(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// A child that has not been waited for.
    pub fn of(pid: u32) -> Result<Self, String> {
        let mut clock = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) } {
            0 => Ok(Self(clock)),
            error => Err(format!("process {pid} has no clock: {}", std::io::Error::from_raw_os_error(error))),
        }
    }

    /// Time used so far.
    pub fn now(self) -> Result<Duration, String> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local that outlives the call.
        match unsafe { libc::clock_gettime(self.0, &mut time) } {
            0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
            _ => Err(format!("processor time: {}", std::io::Error::last_os_error())),
        }
    }
}
