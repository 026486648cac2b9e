//! The Controller Memory Buffer (NVM Express Base 2.1, 3.1.4.11, 3.1.4.12, 3.1.4.16 and 3.1.4.17).
//!
//! Queues and lists of this driver are never in it. Data may be: [`Controller::open_memory_buffer`] gives it IOVAs, at
//! which this controller, and no other, takes its own memory in the place of the host's. Whoever reads and writes the
//! buffer by the processor does so through the BAR that [`MemoryBuffer`] names.
//!
//! The controller compares addresses before it asks an IOMMU. Nothing may be mapped where the buffer is, so its IOVAs are
//! reserved until the controller has been seen to have closed it, and whatever a former owner had opened is closed when
//! a controller is enabled.

use super::{Controller, ControllerError, enable};
use crate::bus::Function;
use crate::dma::{IovaRange, ReservedIovas};
use crate::spec::registers::{Cap, Cmbloc, Cmbmsc, Cmbsts, Cmbsz, Vs, offset};

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

    /// Opens the Controller Memory Buffer to the data of this controller's commands: from now on the IOVAs that are
    /// returned are the buffer's bytes, from its first on, for what [`MemoryBuffer`] says that it supports. It stays open, at the same
    /// IOVAs, through every recovery (what it held may be lost then), until
    /// [`close_memory_buffer`](Self::close_memory_buffer). One that is open already is returned as it is.
    ///
    /// A command's data is in the buffer as a whole, or outside as a whole, and so is its metadata with it: controllers
    /// need not do more (CMBLOC.CDMMMS).
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where there is none whose address can be chosen (before NVM Express 1.4),
    /// [`ControllerError::Iovas`], and what [`memory_buffer`](Self::memory_buffer) and the controller say against it.
    pub fn open_memory_buffer(&mut self) -> Result<IovaRange, ControllerError> {
        if let Some(iovas) = &self.memory_buffer_iovas {
            return Ok(iovas.range());
        }
        let none = ControllerError::NotSupported { what: "a Controller Memory Buffer", field: "CAP.CMBS" };
        if !self.cap.cmbs() {
            return Err(none);
        }
        let buffer = self.memory_buffer()?.ok_or(none)?;
        let iovas = self.function.dma().reserve(buffer.size)?;
        let range = iovas.range();
        let opened = open(&*self.function, &iovas);
        self.memory_buffer_iovas = Some(iovas);
        if let Err(error) = opened {
            self.close_memory_buffer();
            return Err(error);
        }
        Ok(range)
    }

    /// Closes the buffer, where it is open. No command that has one of its IOVAs is in flight: it would reach for what is
    /// mapped there next.
    pub fn close_memory_buffer(&mut self) {
        let Some(iovas) = self.memory_buffer_iovas.take() else { return };
        close(&*self.function);
        let msc = self.function.read_u64(offset::CMBMSC);
        // All ones are of a controller that nobody hears any more.
        if msc != u64::MAX && !Cmbmsc::from_bits(msc).cmse() {
            iovas.release();
        }
    }

    /// Opens the buffer of a controller that has just been enabled where its former life had it.
    ///
    /// # Errors
    /// As [`open_memory_buffer`](Self::open_memory_buffer); nothing where there is none to open.
    pub(super) fn renew_memory_buffer(&self) -> Result<(), ControllerError> {
        match &self.memory_buffer_iovas {
            Some(iovas) => open(&*self.function, iovas),
            None => Ok(()),
        }
    }
}

/// Has the controller take these IOVAs for its own.
fn open(function: &dyn Function, iovas: &ReservedIovas) -> Result<(), ControllerError> {
    let base = iovas.range().start().get();
    let msc = Cmbmsc::default().with_cre(true).with_cmse(true).with_cba(base >> 12);
    function.write_u64(offset::CMBMSC, msc.bits());
    let (found, sts) = (function.read_u64(offset::CMBMSC), function.read_u32(offset::CMBSTS));
    if found == u64::MAX || sts == u32::MAX {
        return Err(enable::gone(function));
    }
    if Cmbsts::from_bits(sts).cbai() || found != msc.bits() {
        let right = "the controller must take this base address for its buffer, and has not";
        return Err(ControllerError::Page { page: PAGE, field: "CMBMSC.CBA", value: base, right });
    }
    Ok(())
}

/// Has a controller that is disabled take no IOVA for its own.
pub(super) fn close_former(function: &dyn Function, cap: Cap) {
    if cap.cmbs() {
        close(function);
    }
}

/// Leaves the registers readable.
fn close(function: &dyn Function) {
    function.write_u64(offset::CMBMSC, Cmbmsc::default().with_cre(true).bits());
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
