//! Faults of the whole controller.

use super::Kind;

/// When a fault of the controller happens. Counted from when it was armed, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// While it is armed.
    Now,
    /// At the nth turn.
    Turn(u64),
    /// At the nth read or write of a register, before it.
    Access(u64),
    /// At the nth I/O command that is fetched; that command is neither executed nor completed where the fault stops
    /// the controller.
    Command(u64),
}

/// A fault of the whole controller.
///
/// Those that show at the next enable, disable, reset or read wait for it, once they have happened [`At`] their step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// CSTS.CFS becomes 1 and nothing is executed until a reset.
    Fatal,
    /// Its firmware starts anew: EN and RDY are 0, its queues are gone, and nobody is told. Doorbells that a lane, which
    /// cannot know yet, then rings are not heard, and no violation.
    SelfReset,
    /// The next enable ends in CSTS.CFS = 1 and not in RDY = 1.
    FatalAtEnable,
    /// The next disable ends in CSTS.CFS = 1 with RDY still 1; only a reset of the function helps.
    FatalAtDisable,
    /// The drive is pulled: registers read as all ones, writes are lost.
    AllOnes {
        /// Turns for which DMA of what was fetched goes on.
        dma_turns: u32,
    },
    /// The drive is pulled, and its registers read as all zeroes.
    AllZeroes {
        /// Turns for which DMA of what was fetched goes on.
        dma_turns: u32,
    },
    /// The next enable never ends in RDY = 1.
    NeverReady,
    /// The next disable never ends in RDY = 0; only a reset of the function helps.
    NeverUnready,
    /// The next disable has RDY = 0 at once, while DMA of what was fetched goes on.
    EarlyUnready {
        /// Turns for which it goes on.
        dma_turns: u32,
    },
    /// The next reset of the function does nothing and is reported as failed.
    ResetFails,
    /// The function does not come back from its next reset: it reads as all ones.
    ResetLost,
    /// The write that next disables bus mastering is lost, and the read after it does not return.
    LostRead,
    /// Admin commands are not fetched until the next reset; I/O goes on.
    DeadAdmin,
}

impl Life {
    /// Whether no command is executed from the moment on at which it strikes.
    pub(in crate::model) fn stops_execution(&self) -> bool {
        matches!(self, Self::Fatal | Self::SelfReset | Self::AllOnes { .. } | Self::AllZeroes { .. })
    }

    /// What it counts as.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Fatal => Kind::Fatal,
            Self::SelfReset => Kind::SelfReset,
            Self::FatalAtEnable => Kind::FatalAtEnable,
            Self::FatalAtDisable => Kind::FatalAtDisable,
            Self::AllOnes { .. } => Kind::AllOnes,
            Self::AllZeroes { .. } => Kind::AllZeroes,
            Self::NeverReady => Kind::NeverReady,
            Self::NeverUnready => Kind::NeverUnready,
            Self::EarlyUnready { .. } => Kind::EarlyUnready,
            Self::ResetFails => Kind::ResetFails,
            Self::ResetLost => Kind::ResetLost,
            Self::LostRead => Kind::LostRead,
            Self::DeadAdmin => Kind::DeadAdmin,
        }
    }
}
