//! The status of a completed command (NVM Express Base 2.1, 4.2.3).

mod code;

use core::fmt;

pub use code::{StatusCode, StatusCodeType};

/// The 15 bits above the phase tag: Status Code, its type, and how a host may go on (Base 2.1,
/// 4.2.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Status(u16);

fields! {
    impl Status, 0: u16 {
        /// Status Code; what it means depends on [`sct`](Self::sct).
        sc / with_sc [0, 8]: u8;
        /// Status Code Type.
        sct / with_sct [8, 3]: StatusCodeType;
        /// Command Retry Delay: 0, or which of CRDT1 to CRDT3 to wait for before a retry.
        crd / with_crd [11, 2]: u8;
        /// More: the Error Information log has more about this command.
        more / with_more [13, 1]: bool;
        /// Do Not Retry: the same command will fail again.
        dnr / with_dnr [14, 1]: bool;
    }
}

impl Status {
    /// Successful completion.
    pub const SUCCESS: Self = Self(0);

    /// The 15 bits; a sixteenth is dropped.
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7FFF)
    }

    /// The 15 bits.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Code and type are those of a successful completion.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7FF == 0
    }

    /// Type and code together, which name what happened.
    #[inline]
    pub const fn code(self) -> StatusCode {
        StatusCode::from_raw(self.0 & 0x7FF)
    }
}

impl From<StatusCode> for Status {
    /// The status with that code and neither M nor DNR. Bits above the eleven of a code are dropped.
    fn from(code: StatusCode) -> Self {
        code.status()
    }
}

impl fmt::Display for Status {
    /// For example "Invalid Field in Command (0h/02h, do not retry)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sct = self.sct();
        match self.code().name() {
            Some(name) => f.write_str(name)?,
            None if sct == StatusCodeType::VENDOR_SPECIFIC => {
                f.write_str("Vendor Specific Status")?
            }
            None => f.write_str("Unknown Status")?,
        }
        write!(f, " ({:X}h/{:02X}h", sct.raw(), self.sc())?;
        if self.crd() != 0 {
            write!(f, ", retry after CRDT{}", self.crd())?;
        }
        if self.more() {
            f.write_str(", more in the error log")?;
        }
        if self.dnr() {
            f.write_str(", do not retry")?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests;
