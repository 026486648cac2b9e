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
//! the `executor` takes turns over `queues`, whose doorbells may have a `shadow` in memory and whose completions may raise
//! `interrupts`; `admin` and the `namespaces` execute commands, `blocks` those that a plain
//! read or write is not; `transfer`, `prp` and `sgl` find their memory through the `iommu`; `media` makes blocks of
//! what a `store` holds, with metadata (`protection`) and a write `cache` that `power` can take away. What a model is
//! told from outside comes as `orders`; what it has a `mover` copy is memory that the host cannot touch; what it does wrong when asked to is in [`faults`]. Several
//! controllers on the same namespaces are a [`Subsystem`].

mod admin;
mod blocks;
mod board;
mod cache;
mod config;
mod counters;
mod doorbells;
mod executor;
pub mod faults;
mod function;
mod interrupts;
mod io_config;
mod iommu;
mod media;
mod mover;
mod namespace;
mod namespaces;
mod orders;
mod power;
mod protection;
mod prp;
mod queues;
mod registers;
mod reservations;
mod sgl;
mod shadow;
mod store;
mod subsystem;
mod thread;
mod transfer;
mod violation;

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use board::Board;
use executor::Executor;
use function::{SteppedExecutor, step};
use iommu::Window;
use power::PowerCut;
use subsystem::{Role, Shared};
use thread::ModelThread;

use crate::dma::{DmaView, Mover};

pub use admin::firmware_image;
pub use config::{ModelConfig, ModelError, StoreConfig};
pub use counters::ModelCounters;
pub use faults::Faults;
pub use function::ModelFunction;
pub use io_config::{
    CacheConfig, DatasetManagementLimits, DeallocatedRead, IoCommandsConfig, MetadataConfig, SglConfig, SglSupport,
};
pub use iommu::{FaultKind, SoftwareIommu};
pub use orders::{ModelHealth, ModelNamespaces, NamespaceError};
pub use power::{PowerLoss, Survivors};
pub use prp::PrpPlace;
pub use subsystem::Subsystem;
pub use violation::{DoorbellId, Target, Violation};

/// How long a caller waits for a power cut before it looks whether the model's thread is still there.
const POWER_CUT_LOOK: Duration = Duration::from_millis(100);

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
    Threaded(ModelThread),
}

/// A controller in software, at first with one namespace. Dropping it is pulling the drive: its thread ends, its store is
/// closed, and its function reads as all ones.
pub struct Model {
    board: Arc<Board>,
    function: Arc<ModelFunction>,
    window: Option<Arc<Window>>,
    runner: Runner,
    config: ModelConfig,
}

impl Model {
    /// Makes a controller, disabled, that reaches what is mapped in `iommu`.
    ///
    /// # Errors
    /// [`ModelError`]: settings that no controller can have, or a store that cannot be opened.
    pub fn new(config: ModelConfig, drive: Drive, iommu: &Arc<SoftwareIommu>) -> Result<Self, ModelError> {
        config.check()?;
        Self::build(config, drive, iommu, Role::ALONE, None, None)
    }

    /// As [`new`](Self::new), with a mover for plain reads and writes to and from memory of an accelerator
    /// ([`DmaSpace::register_accelerator`](crate::dma::DmaSpace::register_accelerator)). The store is in memory, all of
    /// which the mover is made to reach, or null. Namespaces that come later are not reached.
    ///
    /// # Errors
    /// [`ModelError`]: as there, or [`ModelError::NotMovable`] and [`ModelError::Mover`].
    pub fn with_mover(
        config: ModelConfig,
        drive: Drive,
        iommu: &Arc<SoftwareIommu>,
        mover: Box<dyn Mover>,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let plain = config.metadata.size == 0
            && config.cache_simulation.is_none()
            && config.deallocated_read != DeallocatedRead::Ones;
        if config.is_file() || !plain {
            return Err(ModelError::NotMovable);
        }
        Self::build(config, drive, iommu, Role::ALONE, None, Some(mover))
    }

    fn build(
        config: ModelConfig,
        drive: Drive,
        iommu: &Arc<SoftwareIommu>,
        role: Role,
        subsystem: Option<&Arc<Shared>>,
        mover: Option<Box<dyn Mover>>,
    ) -> Result<Self, ModelError> {
        let board = Arc::new(Board::new(&config, iommu.table(), subsystem.cloned()));
        let window = Window::new(config.cmb_pages).map_err(|source| ModelError::MemoryBuffer { source })?.map(Arc::new);
        if let Some(window) = &window {
            board.lock_registers().set_memory_buffer(Arc::clone(window));
        }
        let mut executor = Executor::new(&config, role, Arc::clone(&board), iommu.table(), window.clone())?;
        if let Some(mover) = mover {
            executor.set_mover(mover)?;
        }
        let (runner, stepped) = match drive {
            Drive::Stepped => {
                let executor = Arc::new(Mutex::new(Some(Box::new(executor))));
                (Runner::Stepped(Arc::clone(&executor)), Some(executor))
            }
            Drive::Threaded => (Runner::Threaded(ModelThread::start(executor)?), None),
        };
        let function = Arc::new(ModelFunction::new(&config, Arc::clone(&board), iommu, stepped));
        Ok(Self { board, function, window, runner, config })
    }

    /// The controller as a driver sees it.
    pub fn function(&self) -> Arc<ModelFunction> {
        Arc::clone(&self.function)
    }

    /// Its Controller Memory Buffer, as a host sees it through BAR 2.
    pub fn memory_buffer(&self) -> Option<DmaView<'_>> {
        self.window.as_ref().map(|window| window.view())
    }

    /// Runs one turn of a stepped model and says whether there was anything to do. A threaded model runs itself:
    /// then nothing is done here.
    pub fn turn(&self) -> bool {
        match &self.runner {
            Runner::Stepped(executor) => step(executor),
            Runner::Threaded(_) => false,
        }
    }

    /// Cuts the power, and gives it back: what only the simulated write cache held is lost but for `survivors` (see
    /// [`ModelConfig::cache_simulation`]; without one nothing is), and the controller is as after power on, with bus
    /// mastering off; the other controllers of a [`Subsystem`] are, too. Returns when it has happened; commands that were not completed by then never are.
    ///
    /// # Errors
    /// What the store answered when survivors were written, or that the model's thread has ended.
    pub fn power_cut(&self, survivors: Survivors) -> io::Result<PowerLoss> {
        let (sender, receiver) = mpsc::channel();
        self.board.cut_power(PowerCut::new(survivors, sender));
        loop {
            let ended = match &self.runner {
                Runner::Stepped(executor) => {
                    step(executor);
                    false
                }
                Runner::Threaded(thread) => thread.has_ended(),
            };
            match receiver.recv_timeout(POWER_CUT_LOOK) {
                Ok(outcome) => return outcome,
                Err(_) if ended => return Err(io::Error::other("the model's thread has ended")),
                Err(_) => {}
            }
        }
    }

    /// How it is, to be changed.
    pub fn health(&self) -> ModelHealth<'_> {
        ModelHealth { board: &self.board }
    }

    /// Its namespaces, to be changed.
    pub fn namespaces(&self) -> ModelNamespaces<'_> {
        ModelNamespaces { board: &self.board, config: &self.config, max_transfer: self.config.max_transfer() }
    }

    /// The means to make it fail, usable from any thread.
    pub fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.board))
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
        self.board.end();
        if let Runner::Stepped(executor) = &self.runner {
            executor.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

#[cfg(test)]
mod tests;
