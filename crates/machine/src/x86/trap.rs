//! Why an instruction did not complete.

/// An exception as the processor delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exception {
    /// 0–31.
    pub vector: u8,
    /// Pushed after the return address by some vectors.
    pub error: Option<u32>,
    /// The linear address of a page fault, for CR2.
    pub address: Option<u64>,
}

/// Why an instruction did not complete and left no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The guest gets an exception.
    Exception(Exception),
    /// The real processor would do something that is not modelled; says what.
    Unsupported(&'static str),
    /// The caller wants to know before the instruction is executed; the stop says why.
    Held,
    /// The transaction that the instruction is in aborts with this status.
    Abort(u32),
}

/// The result of executing an instruction, or a part of one.
pub type Outcome<T> = Result<T, Trap>;

const fn exception(vector: u8, error: Option<u32>) -> Trap {
    Trap::Exception(Exception { vector, error, address: None })
}

#[allow(missing_docs)]
impl Trap {
    /// Divide error.
    pub const DE: Self = exception(0, None);
    /// Debug.
    pub const DB: Self = exception(1, None);
    /// Overflow.
    pub const OF: Self = exception(4, None);
    /// Bound range exceeded.
    pub const BR: Self = exception(5, None);
    /// Invalid opcode.
    pub const UD: Self = exception(6, None);
    /// Device not available.
    pub const NM: Self = exception(7, None);
    /// x87 error.
    pub const MF: Self = exception(16, None);
    /// Alignment check.
    pub const AC: Self = exception(17, Some(0));
    /// SIMD floating-point.
    pub const XM: Self = exception(19, None);
    /// General protection without a selector.
    pub const GP0: Self = exception(13, Some(0));

    pub const fn ts(selector: u16) -> Self {
        exception(10, Some(selector as u32 & !3))
    }
    pub const fn np(selector: u16) -> Self {
        exception(11, Some(selector as u32 & !3))
    }
    pub const fn ss(selector: u16) -> Self {
        exception(12, Some(selector as u32 & !3))
    }
    pub const fn gp(selector: u16) -> Self {
        exception(13, Some(selector as u32 & !3))
    }
    pub const fn gp_code(code: u32) -> Self {
        exception(13, Some(code))
    }
    pub const fn np_code(code: u32) -> Self {
        exception(11, Some(code))
    }
    pub const fn pf(address: u64, error: u32) -> Self {
        Self::Exception(Exception { vector: 14, error: Some(error), address: Some(address) })
    }

    /// This trap with `bits` set in an error code that names a selector, for what goes wrong on the way to a
    /// handler.
    pub(crate) const fn with_error_bits(self, bits: u32) -> Self {
        match self {
            Self::Exception(Exception { vector: vector @ 10..=13, error: Some(error), address }) => {
                Self::Exception(Exception { vector, error: Some(error | bits), address })
            }
            other => other,
        }
    }
}
