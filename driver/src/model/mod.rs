//! The model: an NVMe controller in software, in this process.
//!
//! A [`Model`] owns the controller. A driver sees it as a [`ModelFunction`], like any other function of a bus, and
//! what it reaches is what was mapped in its [`SoftwareIommu`], nothing else: a wrong address in a command is a
//! fault with that address in it. What a driver must never do is kept as a [`Violation`].
//!
//! It follows NVM Express Base 2.1, the NVM Command Set 1.1 and the PCIe Transport 1.1. It knows nothing of the
//! driver's queues or controller, so that the two sides cannot share a mistake.
//!
//! From outside in: the `board` holds what the two ends share (`registers`, `doorbells`, counters, violations);
//! the `executor` takes turns over `queues`; `admin` and `namespace` execute commands; `transfer` and `prp` find
//! their memory through the `iommu`; a `store` holds the blocks.

mod admin;
mod board;
mod config;
mod counters;
mod doorbells;
mod executor;
mod function;
mod iommu;
mod namespace;
mod prp;
mod queues;
mod registers;
mod store;
mod thread;
mod transfer;
mod violation;

use std::sync::{Arc, Mutex, PoisonError};

use board::Board;
use executor::Executor;
use function::{SteppedExecutor, step};
use thread::ModelThread;

pub use config::{ModelConfig, ModelError, StoreConfig};
pub use counters::ModelCounters;
pub use function::ModelFunction;
pub use iommu::{FaultKind, SoftwareIommu};
pub use prp::PrpPlace;
pub use violation::{DoorbellId, Target, Violation};

/// Who runs a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// The caller, turn by turn; so does every wait of a driver (`Function::pause`).
    Stepped,
    /// A thread of its own, named `tentpeg-model`. It yields after empty turns and sleeps in short steps after some
    /// milliseconds without work.
    Threaded,
}

enum Runner {
    Stepped(SteppedExecutor),
    Threaded(#[expect(dead_code, reason = "ends the thread when dropped")] ModelThread),
}

/// A controller in software with one namespace. Dropping it is pulling the drive: its thread ends, its store is
/// closed, and its function reads as all ones.
pub struct Model {
    board: Arc<Board>,
    function: Arc<ModelFunction>,
    runner: Runner,
}

impl Model {
    /// Makes a controller, disabled, that reaches what is mapped in `iommu`.
    ///
    /// # Errors
    /// [`ModelError`]: settings that no controller can have, or a store that cannot be opened.
    pub fn new(config: ModelConfig, drive: Drive, iommu: &Arc<SoftwareIommu>) -> Result<Self, ModelError> {
        config.check()?;
        let board = Arc::new(Board::new(&config));
        let executor = Executor::new(&config, Arc::clone(&board), iommu.table())?;
        let (runner, stepped) = match drive {
            Drive::Stepped => {
                let executor = Arc::new(Mutex::new(Some(Box::new(executor))));
                (Runner::Stepped(Arc::clone(&executor)), Some(executor))
            }
            Drive::Threaded => (Runner::Threaded(ModelThread::start(executor)?), None),
        };
        let function = Arc::new(ModelFunction::new(config.name, Arc::clone(&board), iommu.space(), stepped));
        Ok(Self { board, function, runner })
    }

    /// The controller as a driver sees it.
    pub fn function(&self) -> Arc<ModelFunction> {
        Arc::clone(&self.function)
    }

    /// Runs one turn of a stepped model and says whether there was anything to do. A threaded model runs itself:
    /// then nothing is done here.
    pub fn turn(&self) -> bool {
        match &self.runner {
            Runner::Stepped(executor) => step(executor),
            Runner::Threaded(_) => false,
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> ModelCounters {
        self.board.counters.snapshot()
    }

    /// What the host last said when it failed the store, with the file's name: `the file disk.img: No space left on device`. The
    /// command itself ended with Write Fault or Unrecovered Read Error, which say no more.
    pub fn store_error(&self) -> Option<String> {
        self.board.store_error()
    }

    /// What a driver did to it that no driver must ever do: the first 1,024 violations, in order.
    pub fn violations(&self) -> Vec<Violation> {
        self.board.violations.snapshot()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.board.remove();
        if let Runner::Stepped(executor) = &self.runner {
            executor.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

#[cfg(test)]
mod tests;
