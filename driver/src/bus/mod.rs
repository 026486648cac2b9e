//! What the driver asks of a way to a controller.
//!
//! A [`Function`] is one PCI function as the driver sees it: the registers of an NVMe controller, doorbell handles
//! and the address space that its DMA goes through. Who implements it owns the mapping of the registers; the driver
//! owns what is written there. Nothing here knows queues or commands.
//!
//! [`Sysfs`] says which functions this machine has, who has them, and what they are used for; [`ConfigSpace`] what a port
//! says of itself.

mod config_space;
mod pci;
mod sysfs;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

pub(crate) use config_space::capability;
pub use config_space::{AccessControl, Acs, AcsControls, ConfigSpace, PortType};
pub use pci::{PciAddress, PciAddressError};
pub use sysfs::{
    BlockDevice, DeviceFile, Hindrance, Openers, PciFunction, Sysfs, SysfsError, Use, VFIO_DRIVER, is_vfio_driver,
};

use crate::dma::DmaSpace;

/// Why a doorbell handle was not given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BusError {
    /// The offset lies outside the function's registers.
    #[error("there is no register at {offset:#x}: the function's registers end at {end:#x}")]
    NoRegister {
        /// The offset asked for, in bytes from the start of BAR 0.
        offset: u64,
        /// The length of the registers in bytes.
        end: u64,
    },
    /// The function does not answer.
    #[error("the function does not answer: {what}")]
    Gone {
        /// What was tried.
        what: &'static str,
    },
    /// The function has no Function Level Reset, or the kernel has no way to ask for it.
    #[error("the function has no Function Level Reset")]
    NoReset,
    /// The function has no such interrupt, or this way to it hands out none.
    #[error("there is no interrupt vector {vector} to be had: the function has {vectors}")]
    NoInterrupt {
        /// The vector asked for.
        vector: u16,
        /// How many there are.
        vectors: u32,
    },
}

/// One PCI function with an NVMe controller's registers (NVM Express over PCIe Transport, 2.1.10: BAR 0 and 1).
///
/// Offsets are bytes from the start of BAR 0. A function that is gone, and an offset that no register has, read as
/// all ones; a write there is lost.
pub trait Function: Send + Sync {
    /// What to call it in messages: a PCI address, or the URI of a model.
    fn name(&self) -> &str;

    /// Reads a 32-bit register.
    fn read_u32(&self, offset: u64) -> u32;

    /// Writes a 32-bit register.
    fn write_u32(&self, offset: u64, value: u32);

    /// Reads a 64-bit register, in one access or as two dwords, the lower first.
    fn read_u64(&self, offset: u64) -> u64 {
        let low = self.read_u32(offset);
        u64::from(low) | u64::from(self.read_u32(offset + 4)) << 32
    }

    /// Writes a 64-bit register, in one access or as two dwords, the lower first.
    fn write_u64(&self, offset: u64, value: u64) {
        self.write_u32(offset, value as u32);
        self.write_u32(offset + 4, (value >> 32) as u32);
    }

    /// A handle to the doorbell at `offset`, for one queue of one lane.
    ///
    /// # Errors
    /// [`BusError`] when no register is there.
    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError>;

    /// The interrupt with this vector (MSI-X; NVM Express over PCIe Transport 1.1, 3.5), disarmed, for one user.
    ///
    /// # Errors
    /// [`BusError`] where there is none to be had.
    fn interrupt(&self, vector: u16) -> Result<Box<dyn Interrupt>, BusError> {
        Err(BusError::NoInterrupt { vector, vectors: 0 })
    }

    /// The NUMA node that it is near to, where the machine says so.
    fn numa_node(&self) -> Option<u32> {
        None
    }

    /// The address space that this function's DMA goes through.
    fn dma(&self) -> &Arc<DmaSpace>;

    /// Makes every doorbell handle that was given out so far lead nowhere: to nobody's memory, never to the device.
    /// Handles given out later work. Needs nothing from the device; lanes may be ringing meanwhile.
    ///
    /// The first step of whoever stops a controller: after it no doorbell can be written while EN or RDY is 0.
    fn revoke_doorbells(&self);

    /// Resets the function (Function Level Reset; PCI Express Base 6.0, 6.6.2): when it returns, none of its DMA is
    /// under way, and its registers stand as after power on.
    ///
    /// # Errors
    /// [`BusError`] when there is no such reset or the function did not come back.
    fn reset(&self) -> Result<(), BusError>;

    /// Clears Bus Master Enable, then reads from the device: its DMA before that has been done and none follows, until
    /// [`enable_bus_mastering`](Self::enable_bus_mastering) (PCI Express Base 6.0, 7.5.1.1.3).
    ///
    /// # Errors
    /// [`BusError::Gone`] when the read did not return: then nothing is known.
    fn disable_bus_mastering(&self) -> Result<(), BusError>;

    /// Sets Bus Master Enable.
    ///
    /// # Errors
    /// [`BusError::Gone`].
    fn enable_bus_mastering(&self) -> Result<(), BusError>;

    /// Takes the function out of its address space, for ever. Needs nothing from the device: when it returns, none of
    /// its accesses reaches memory, whatever it does.
    fn cut_off(&self);

    /// Whether whoever gave us the function wants it back, and waits until it is [cut off](Self::cut_off): it is to be
    /// unplugged, or given to another driver. Once this is so it stays so.
    fn removal_requested(&self) -> bool {
        false
    }

    /// Whether the bus has reported an error of the function that cannot be corrected (PCI Express Base 6.0, 6.2), since this
    /// was asked last.
    fn error_reported(&self) -> bool {
        false
    }

    /// Called by a wait between two looks: gives the processor to whoever does the work. A controller that runs in
    /// this very thread takes its turn here.
    fn pause(&self) {
        std::thread::yield_now();
    }

    /// The clock by which waits for this function are measured. It never goes back. A controller that runs in the
    /// waiting thread may have a time of its own, so that a wait takes as many looks on a busy machine as on an idle
    /// one.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A handle to one doorbell register.
///
/// It orders itself behind the caller's earlier stores to memory: the device that sees the new value sees the
/// entries before it.
pub trait Doorbell: Send {
    /// Writes the doorbell: a new tail of a submission queue, or a new head of a completion queue.
    fn ring(&self, value: u16);
}

/// An interrupt of a function: what whoever sleeps until a completion queue has entries is woken by.
///
/// It is disarmed, and costs nothing, as long as its user polls. Of entries that were posted before it was armed it need
/// not tell, so its user arms it, looks at the queue once more, and sleeps only then. It may also tell of nothing. Its
/// descriptor becomes readable when it has something to tell. Arming one that is armed is cheap, and other than that may
/// take a call to the kernel that makes and unmakes a handler: whoever sleeps often leaves it armed.
pub trait Interrupt: AsFd + Send {
    /// From now on an entry that is posted makes the descriptor readable, and what was told before is forgotten. A full
    /// barrier: what the caller looks at afterwards was not read before.
    ///
    /// # Errors
    /// What the host says; it is not armed then.
    fn arm(&mut self) -> io::Result<()>;

    /// From now on none does; the descriptor is not readable any more.
    fn disarm(&mut self);
}
