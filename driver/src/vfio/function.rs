//! An NVMe controller behind VFIO, as the driver sees a function.

use std::sync::Arc;

use super::doorbells::Doorbells;
use super::interrupt::VfioInterrupt;
use super::{VfioDevice, VfioError, msix};
use crate::bus::{BusError, Doorbell, Function, Interrupt};
use crate::dma::DmaSpace;
use crate::spec::registers::offset;

/// Registers up to the admin queue's doorbells (NVM Express over PCIe Transport 1.1, 3.1).
const LEAST_REGISTERS: u64 = offset::DOORBELLS + 8;

/// A controller on this machine's bus.
///
/// Registers go through calls to the kernel, which fail where the device is gone: it reads as all ones then, and is
/// never a signal. Doorbells are mapped.
pub struct VfioFunction {
    device: Arc<VfioDevice>,
    doorbells: Doorbells,
    /// The end of what may be a doorbell.
    end: u64,
}

impl VfioFunction {
    /// The controller that `device` is.
    ///
    /// # Errors
    /// [`VfioError::NoRegisters`] when it cannot be one.
    pub fn new(device: Arc<VfioDevice>) -> Result<Self, VfioError> {
        let len = device.registers().len;
        if len < LEAST_REGISTERS {
            let name = device.name().to_owned();
            return Err(VfioError::NoRegisters { name, len, least: LEAST_REGISTERS });
        }
        // Where the tables of MSI-X follow the doorbells, the doorbells end there.
        let tables = msix::tables_in_bar0(&device);
        let end = tables.into_iter().filter(|start| *start >= LEAST_REGISTERS).fold(len, u64::min);
        Ok(Self { doorbells: Doorbells::new(Arc::clone(&device)), device, end })
    }

    /// The device: its interrupts, and what the kernel wants of it.
    pub fn device(&self) -> &Arc<VfioDevice> {
        &self.device
    }

    /// An error unless a register still answers: VS is never all ones and never zero.
    fn answers(&self, what: &'static str) -> Result<(), BusError> {
        match self.read_u32(offset::VS) {
            0 | u32::MAX => Err(BusError::Gone { what }),
            _ => Ok(()),
        }
    }
}

impl Function for VfioFunction {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn read_u32(&self, offset: u64) -> u32 {
        self.device.read_register(offset).map_or(u32::MAX, u32::from_le_bytes)
    }

    fn write_u32(&self, offset: u64, value: u32) {
        self.device.write_register(offset, value.to_le_bytes());
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        let is_doorbell = offset.is_multiple_of(4) && offset >= offset::DOORBELLS && offset <= self.end - 4;
        if !is_doorbell {
            return Err(BusError::NoRegister { offset, end: self.end });
        }
        self.doorbells.at(offset)
    }

    fn interrupt(&self, vector: u16) -> Result<Box<dyn Interrupt>, BusError> {
        Ok(Box::new(VfioInterrupt::new(Arc::clone(&self.device), vector)?))
    }

    fn numa_node(&self) -> Option<u32> {
        self.device.function().numa_node
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        self.device.dma()
    }

    fn revoke_doorbells(&self) {
        self.doorbells.revoke();
    }

    fn reset(&self) -> Result<(), BusError> {
        self.device.reset()?;
        self.answers("the read after the Function Level Reset")
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        let what = "the read after bus mastering was disabled";
        self.device.set_bus_mastering(false).map_err(|_| BusError::Gone { what })?;
        // A read of the device pushes what it had written before (PCI Express Base 6.0, 2.4.1).
        self.answers(what)
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        let what = "the write that enables bus mastering";
        self.device.set_bus_mastering(true).map_err(|_| BusError::Gone { what })?;
        self.answers(what)
    }

    fn cut_off(&self) {
        self.doorbells.revoke();
        self.device.cut_off();
    }

    fn removal_requested(&self) -> bool {
        self.device.removal_requested()
    }

    fn error_reported(&self) -> bool {
        self.device.error_reported()
    }
}
