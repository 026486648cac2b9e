//! The Controller Memory Buffer, as far as knowing it (NVM Express Base 2.1, 3.1.4.11, 3.1.4.12 and 3.1.4.16).
//!
//! Nothing of this driver lies in it: queues, lists and data are in the host's memory or a GPU's. Where the buffer is
//! and what it could hold is said for those who look at a drive.

use super::{Controller, ControllerError, enable};
use crate::spec::registers::{Cmbloc, Cmbmsc, Cmbsz, Vs, offset};

/// What the registers are called in errors.
const PAGE: &str = "the Controller Memory Buffer's registers";

/// A controller's memory that a host can reach through a BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBuffer {
    /// Bytes of it.
    pub size: u64,
    /// The BAR that holds it.
    pub bar: u8,
    /// Bytes from the start of that BAR.
    pub offset: u64,
    /// Submission queues may lie in it.
    pub submission_queues: bool,
    /// Completion queues may.
    pub completion_queues: bool,
    /// PRP lists and SGL segments may.
    pub lists: bool,
    /// Commands may move data and metadata to it.
    pub read_data: bool,
    /// Commands may move data and metadata from it.
    pub write_data: bool,
}

impl Controller {
    /// The Controller Memory Buffer; `None` where there is none. Makes its registers readable (CMBMSC.CRE), and leaves
    /// the buffer itself as it is.
    ///
    /// # Errors
    /// [`ControllerError::Page`] where the registers say what cannot be, [`ControllerError::Gone`].
    pub fn memory_buffer(&mut self) -> Result<Option<MemoryBuffer>, ControllerError> {
        let function = &*self.function;
        if self.cap.cmbs() {
            let msc = Cmbmsc::from_bits(function.read_u64(offset::CMBMSC));
            function.write_u64(offset::CMBMSC, msc.with_cre(true).bits());
        } else if self.version() >= Vs::new(1, 4, 0) {
            return Ok(None);
        }
        let (loc, sz) = (function.read_u32(offset::CMBLOC), function.read_u32(offset::CMBSZ));
        if loc == u32::MAX || sz == u32::MAX {
            return Err(enable::gone(function));
        }
        decode(Cmbloc::from_bits(loc), Cmbsz::from_bits(sz))
    }
}

fn decode(loc: Cmbloc, sz: Cmbsz) -> Result<Option<MemoryBuffer>, ControllerError> {
    let wrong = |field, value, right| ControllerError::Page { page: PAGE, field, value, right };
    if sz.sz() == 0 {
        return Ok(None);
    }
    let (Some(unit), Some(size)) = (sz.unit_size(), sz.size()) else {
        return Err(wrong("CMBSZ.SZU", sz.szu().into(), "7 and above are reserved"));
    };
    // Of a PCI function's six, BAR 1 is the upper half of the one that the registers are in.
    if !matches!(loc.bir(), 0 | 2..=5) {
        return Err(wrong("CMBLOC.BIR", loc.bir().into(), "it must be 0 or 2 to 5"));
    }
    Ok(Some(MemoryBuffer {
        size,
        bar: loc.bir(),
        offset: unit * u64::from(loc.ofst()),
        submission_queues: sz.sqs(),
        completion_queues: sz.cqs(),
        lists: sz.lists(),
        read_data: sz.rds(),
        write_data: sz.wds(),
    }))
}

#[cfg(test)]
mod tests;
