//! The model as a driver sees it: one PCI function.

use std::sync::{Arc, Mutex, PoisonError};

use super::board::{Board, Presence};
use super::config::ModelConfig;
use super::doorbells::DoorbellHandle;
use super::executor::Executor;
use super::interrupts::ModelInterrupt;
use super::iommu::{SoftwareIommu, Table};
use crate::bus::{BusError, Doorbell, Function, Interrupt};
use crate::dma::DmaSpace;

/// An executor that has no thread: whoever waits runs it.
pub(super) type SteppedExecutor = Arc<Mutex<Option<Box<Executor>>>>;

/// Runs one turn, where the executor is not already in one and not gone.
pub(super) fn step(executor: &SteppedExecutor) -> bool {
    let mut executor = executor.lock().unwrap_or_else(PoisonError::into_inner);
    executor.as_mut().is_some_and(|executor| executor.turn())
}

/// A model's function. It outlives the model: then it reads as all ones, as a drive does that was pulled.
pub struct ModelFunction {
    name: String,
    board: Arc<Board>,
    dma: Arc<DmaSpace>,
    table: Arc<Table>,
    has_reset: bool,
    stepped: Option<SteppedExecutor>,
}

impl ModelFunction {
    pub(super) fn new(
        config: &ModelConfig,
        board: Arc<Board>,
        iommu: &Arc<SoftwareIommu>,
        stepped: Option<SteppedExecutor>,
    ) -> Self {
        let (name, has_reset) = (config.name.clone(), config.flr);
        Self { name, board, dma: iommu.space(), table: iommu.table(), has_reset, stepped }
    }

    fn present(&self, what: &'static str) -> Result<(), BusError> {
        if self.board.gone() { Err(BusError::Gone { what }) } else { Ok(()) }
    }
}

impl Function for ModelFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_u32(&self, offset: u64) -> u32 {
        self.board.read(offset)
    }

    fn write_u32(&self, offset: u64, value: u32) {
        self.board.write(offset, value);
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        let no_register = BusError::NoRegister { offset, end: self.board.doorbells.end() };
        let doorbell = self.board.doorbells.at(offset).ok_or(no_register)?;
        Ok(Box::new(DoorbellHandle::new(Arc::clone(&self.board), doorbell)))
    }

    /// One that runs in the thread of whoever waits interrupts nobody: he would have to run it to be interrupted.
    fn interrupt(&self, vector: u16) -> Result<Box<dyn Interrupt>, BusError> {
        match self.stepped {
            Some(_) => Err(BusError::NoInterrupt { vector, vectors: 0 }),
            None => Ok(Box::new(ModelInterrupt::new(&self.board, vector)?)),
        }
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.dma
    }

    fn revoke_doorbells(&self) {
        self.board.doorbells.revoke();
    }

    /// Done at once. Bus mastering is off afterwards, as PCI has it: the reset clears the Command register.
    fn reset(&self) -> Result<(), BusError> {
        self.present("Function Level Reset")?;
        if !self.has_reset {
            return Err(BusError::NoReset);
        }
        if self.board.faults.takes_reset_fails() {
            return Err(BusError::Gone { what: "Function Level Reset" });
        }
        if self.board.faults.takes_reset_lost() {
            self.board.pull(Presence::AllOnes, 0);
            self.table.wait_for_all();
            return self.present("Function Level Reset");
        }
        self.board.reset_function();
        self.table.wait_for_all();
        Ok(())
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        self.present("the read after bus mastering was disabled")?;
        if self.board.faults.takes_lost_read() {
            return Err(BusError::Gone { what: "the read after bus mastering was disabled" });
        }
        self.board.set_bus_mastering(false);
        self.table.wait_for_all();
        Ok(())
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        self.present("the write that enables bus mastering")?;
        self.board.set_bus_mastering(true);
        Ok(())
    }

    fn cut_off(&self) {
        self.board.detach();
        self.table.wait_for_all();
    }

    /// Stepped: runs a turn, so that a driver that waits in the only thread makes progress. Threaded: yields.
    fn pause(&self) {
        match &self.stepped {
            Some(executor) => {
                step(executor);
            }
            None => std::thread::yield_now(),
        }
    }
}
