//! Enabling, disabling and shutting down (NVM Express Base 2.1, 3.5.1 and 3.6).

use std::sync::Arc;
use std::time::Duration;

use super::admin::AdminQueue;
use super::deadline::Deadline;
use super::memory_buffer;
use super::quirks::Quirks;
use super::{ControllerConfig, ControllerError, Wait};
use crate::bus::{BusError, Function};
use crate::dma::PageSize;
use crate::queue::{ControllerLimits, QueuePair};
use crate::spec::ZeroesBased;
use crate::spec::registers::{
    Aqa, Cap, Cc, CommandSetSelected, CommandSets, Crto, Csts, ReadyModes, ShutdownNotification, ShutdownStatus, offset,
};

/// The most entries of an admin queue (AQA.ASQS and AQA.ACQS).
const MAX_ADMIN_ENTRIES: u32 = 4096;
/// The largest memory page that this driver allocates queues on.
const MAX_PAGE_SIZE: u64 = 64 << 10;

/// A controller that has just become ready.
pub(super) struct Started {
    pub(super) cap: Cap,
    pub(super) cc: Cc,
    pub(super) limits: ControllerLimits,
    pub(super) admin: AdminQueue,
}

/// Resets the function, disables the controller where it is still enabled, gives it admin queues, and enables it. Where
/// it does not become ready it is disabled again: nobody is left who would do so.
pub(super) fn enable(function: &Arc<dyn Function>, config: &ControllerConfig) -> Result<Started, ControllerError> {
    let cap = read_cap(&**function)?;
    if !cap.css().contains(CommandSets::NVM) && !cap.css().contains(CommandSets::IO_COMMAND_SETS) {
        return Err(ControllerError::NoNvmCommandSet { css: cap.css().bits() });
    }
    let page_size = page_size(cap)?;
    let quirks = quirks_of(config);
    if let (Some(reason), Some(pci)) = (quirks.undrivable(), config.pci) {
        return Err(ControllerError::Undrivable { vendor: pci.vendor, device: pci.device, reason });
    }
    // A controller can say RDY = 0 and still move what it had fetched. Nothing of that goes on after a Function Level
    // Reset; of a function without one its word has to do.
    match function.reset() {
        Ok(()) | Err(BusError::NoReset) => {}
        Err(_) => return Err(gone(&**function)),
    }
    disable(&**function, cap, config)?;
    // A Controller Reset leaves a memory buffer open that a former owner had, at addresses that are others' now.
    memory_buffer::close_former(&**function, cap);
    // Bus mastering is off after a reset of the function, and when its former owner has stopped it. On again only now
    // that the controller is disabled, so that it does not go on with what it had been told.
    function.enable_bus_mastering().map_err(|_| gone(&**function))?;

    let limits = ControllerLimits::new(cap, page_size, 0)?;
    // MQES limits I/O queues only, but a device with small queues gets a small admin queue too.
    let wanted = quirks.admin_entries(config.admin_entries.min(MAX_ADMIN_ENTRIES));
    let entries = wanted.clamp(2, MAX_ADMIN_ENTRIES.min(limits.max_queue_entries));
    // One page of PRPs: pieces of a firmware image can be longer than what admin commands return.
    let admin_limits = ControllerLimits { list_pages: 1, ..limits };
    let pair = QueuePair::new(function, cap, &admin_limits, 0, entries)?;
    let (submission_queue, completion_queue) = (pair.submission_queue(), pair.completion_queue());
    // All memory is there before EN is set: from then on nothing is left that only the host could fail at.
    let admin = AdminQueue::new(Arc::clone(function), pair, config.admin_timeout)?;
    let count = ZeroesBased::<u16>::from_count(entries).unwrap_or(ZeroesBased::<u16>::from_raw(1));
    function.write_u32(offset::AQA, Aqa::from_bits(0).with_asqs(count).with_acqs(count).bits());
    function.write_u64(offset::ASQ, submission_queue.get());
    function.write_u64(offset::ACQ, completion_queue.get());

    // One I/O command set where the controller has just that, else all that it supports (3.1.4.1, CSS).
    let css = if cap.css().contains(CommandSets::IO_COMMAND_SETS) {
        CommandSetSelected::ALL_SUPPORTED
    } else {
        CommandSetSelected::NVM
    };
    let cc =
        Cc::from_bits(0).with_css(css).with_mps((page_size.trailing_zeros() - 12) as u8).with_iosqes(6).with_iocqes(4);
    // The other fields are set before EN is, in a write of their own where a device wants to see them first.
    function.write_u32(offset::CC, cc.bits());
    let cc = cc.with_en(true);
    function.write_u32(offset::CC, cc.bits());
    let timeout = ready_timeout(&**function, cap, config);
    if let Err(error) = wait_for(&**function, cap, timeout, Wait::Ready, |csts| csts.rdy()) {
        function.write_u32(offset::CC, cc.with_en(false).bits());
        // It has had its time to become ready; how this ends changes nothing about the error.
        let _ = wait_not_ready(&**function, cap, timeout);
        return Err(error);
    }
    Ok(Started { cap, cc, limits, admin })
}

/// Clears EN, where it is set, and waits until RDY has followed.
pub(super) fn disable(function: &dyn Function, cap: Cap, config: &ControllerConfig) -> Result<(), ControllerError> {
    let cc = Cc::from_bits(function.read_u32(offset::CC));
    let timeout = ready_timeout(function, cap, config);
    if cc.en() {
        // A controller that is still on its way to ready must not be disturbed (3.5.1): wait, but not for ever.
        let on_its_way = Deadline::after(timeout);
        on_its_way.wait(function, || {
            let csts = Csts::from_bits(function.read_u32(offset::CSTS));
            (csts.rdy() || csts.cfs()).then_some(())
        });
        function.write_u32(offset::CC, cc.with_en(false).with_shn(ShutdownNotification::NONE).bits());
        let quiet = quirks_of(config).ready_delay();
        if !quiet.is_zero() {
            Deadline::after(quiet).wait(function, || None::<()>);
        }
    }
    wait_not_ready(function, cap, timeout)
}

/// What is known to be different about the controller before it has said who it is.
fn quirks_of(config: &ControllerConfig) -> Quirks {
    config.pci.map(|pci| Quirks::of_function(config.quirks, pci)).unwrap_or_default()
}

/// Tells the controller to get ready for power off, and waits until it is.
pub(super) fn shut_down(function: &dyn Function, cap: Cap, cc: Cc, limit: Duration) -> Result<(), ControllerError> {
    function.write_u32(offset::CC, cc.with_shn(ShutdownNotification::NORMAL).bits());
    wait_for(function, cap, limit, Wait::ShutdownComplete, |csts| csts.shst() == ShutdownStatus::COMPLETE)
}

/// Waits for RDY = 0. CFS is no reason to stop: a reset is what clears it.
fn wait_not_ready(function: &dyn Function, cap: Cap, limit: Duration) -> Result<(), ControllerError> {
    let deadline = Deadline::after(limit);
    let mut last = 0;
    let found = deadline.wait(function, || {
        last = function.read_u32(offset::CSTS);
        (last == u32::MAX || !Csts::from_bits(last).rdy()).then_some(last)
    });
    match found {
        // A device that is gone reads all ones, or all zeroes, which would pass for RDY = 0: CAP tells.
        Some(csts) => still_there(function, cap, csts),
        None => Err(ControllerError::Timeout { wait: Wait::NotReady, limit, csts: last }),
    }
}

/// Waits until `reached`, or a fatal status, or the deadline.
fn wait_for(
    function: &dyn Function,
    cap: Cap,
    limit: Duration,
    wait: Wait,
    reached: impl Fn(Csts) -> bool,
) -> Result<(), ControllerError> {
    let deadline = Deadline::after(limit);
    let mut last = 0;
    let found = deadline.wait(function, || {
        last = function.read_u32(offset::CSTS);
        let csts = Csts::from_bits(last);
        // All zeroes are the state before RDY, and what a missing device can read as: CAP tells.
        let gone = last == u32::MAX || last == 0 && still_there(function, cap, last).is_err();
        (gone || csts.cfs() || reached(csts)).then_some(csts)
    });
    let Some(csts) = found else {
        still_there(function, cap, last)?;
        return Err(ControllerError::Timeout { wait, limit, csts: last });
    };
    still_there(function, cap, csts.bits())?;
    if csts.cfs() {
        return Err(ControllerError::Fatal { csts: csts.bits(), wait });
    }
    Ok(())
}

/// Whether a function that was reset is back: present, and neither enabled nor ready.
pub(super) fn is_reset(function: &dyn Function, cap: Cap) -> bool {
    let csts = function.read_u32(offset::CSTS);
    let cc = Cc::from_bits(function.read_u32(offset::CC));
    still_there(function, cap, csts).is_ok() && !Csts::from_bits(csts).rdy() && !cc.en()
}

/// What the registers of a function read as that does not answer.
pub(super) fn gone(function: &dyn Function) -> ControllerError {
    ControllerError::Gone { cap: function.read_u64(offset::CAP), csts: function.read_u32(offset::CSTS) }
}

/// CAP never changes: another value means that nobody answers.
pub(super) fn still_there(function: &dyn Function, cap: Cap, csts: u32) -> Result<(), ControllerError> {
    let now = function.read_u64(offset::CAP);
    if now != cap.bits() || csts == u32::MAX {
        return Err(ControllerError::Gone { cap: now, csts });
    }
    Ok(())
}

/// CAP of a device that answers.
fn read_cap(function: &dyn Function) -> Result<Cap, ControllerError> {
    let cap = function.read_u64(offset::CAP);
    if cap == 0 || cap == u64::MAX {
        return Err(ControllerError::Gone { cap, csts: function.read_u32(offset::CSTS) });
    }
    Ok(Cap::from_bits(cap))
}

/// The longest wait for RDY: CRTO.CRWMT where CAP.CRMS says that it counts, CAP.TO else (3.1.4.1, TO).
fn ready_timeout(function: &dyn Function, cap: Cap, config: &ControllerConfig) -> Duration {
    let said = if cap.crms().contains(ReadyModes::WITH_MEDIA) {
        Crto::from_bits(function.read_u32(offset::CRTO)).ready_with_media_timeout().max(cap.timeout())
    } else {
        cap.timeout()
    };
    said.min(config.longest_wait).max(config.least_ready_timeout)
}

/// The memory page to use: the smallest that the controller has and that is no smaller than the host's own.
fn page_size(cap: Cap) -> Result<u64, ControllerError> {
    let (min, max) = (cap.min_page_size(), cap.max_page_size());
    if min > MAX_PAGE_SIZE {
        return Err(ControllerError::PageSize { min, max: MAX_PAGE_SIZE });
    }
    let host = (PageSize::Ordinary.bytes() as u64).min(MAX_PAGE_SIZE);
    Ok(min.max(host.min(max)))
}
