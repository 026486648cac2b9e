//! How a controller's reach of memory ends (invariant 2).

use std::fmt;

/// What ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReachEnd {
    /// RDY = 0 after our EN = 0, and CAP and VS still read as at enable.
    NotReady,
    /// A Function Level Reset from which the function came back.
    FunctionReset,
    /// Bus mastering off, then a read that returned from a device still present.
    BusMasteringOff,
    /// The function was taken out of its address space. It needs nothing from the device.
    CutOff,
}

impl fmt::Display for ReachEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "CSTS.RDY = 0 after CC.EN = 0",
            Self::FunctionReset => "a Function Level Reset",
            Self::BusMasteringOff => "bus mastering switched off",
            Self::CutOff => "the function was taken out of its address space",
        })
    }
}

/// The proof that a controller's reach has ended: whoever stopped it makes one, and nobody else can. With it commands
/// in flight may be ended and their memory used again.
#[derive(Debug)]
pub struct ReachEnded {
    how: ReachEnd,
}

impl ReachEnded {
    /// By whoever has just seen it end.
    pub(crate) fn by(how: ReachEnd) -> Self {
        Self { how }
    }

    /// What ended it.
    pub fn how(&self) -> ReachEnd {
        self.how
    }
}
