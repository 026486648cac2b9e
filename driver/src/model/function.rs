//! The model as a driver sees it: one PCI function.

use std::sync::{Arc, Mutex, PoisonError};

use super::board::Board;
use super::doorbells::DoorbellHandle;
use super::executor::Executor;
use crate::bus::{BusError, Doorbell, Function};
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
    stepped: Option<SteppedExecutor>,
}

impl ModelFunction {
    pub(super) fn new(name: String, board: Arc<Board>, dma: Arc<DmaSpace>, stepped: Option<SteppedExecutor>) -> Self {
        Self { name, board, dma, stepped }
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

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.dma
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
