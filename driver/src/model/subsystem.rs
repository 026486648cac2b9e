//! An NVM subsystem: controllers that share namespaces (NVM Express Base 2.1, 2.4 and 3.2.1).
//!
//! Each controller is a [`Model`] of its own: registers, queues, features, log pages, faults, and an address space that
//! need not be the others'. What they share is the namespaces with everything in them, and the NVM Subsystem Reset. A
//! controller has the namespaces to itself for a turn. Operations that are the whole subsystem's in a real one, firmware,
//! self-tests and the status of a sanitize operation, are each controller's own here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::board::Board;
use super::config::{ModelConfig, ModelError};
use super::iommu::SoftwareIommu;
use super::namespaces::Namespaces;
use super::{Drive, Model};

/// The greatest identifier of a controller (Base 2.1, 5.1.13.2.1, CNTLID): those above are reserved.
const MOST_CONTROLLERS: u16 = 0xFFEF;

/// Which controller of its subsystem a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) cntlid: u16,
    /// Whether there may be others.
    pub(super) shared: bool,
}

impl Role {
    /// The one controller of its subsystem.
    pub(super) const ALONE: Self = Self { cntlid: 1, shared: false };
}

/// What the controllers of a subsystem share.
pub(super) struct Shared {
    namespaces: Mutex<Namespaces>,
    inventory: Mutex<BTreeSet<u32>>,
    boards: Mutex<Vec<Weak<Board>>>,
}

impl Shared {
    /// The namespaces, for one turn of one controller.
    pub(super) fn lock_namespaces(&self) -> MutexGuard<'_, Namespaces> {
        lock(&self.namespaces)
    }

    pub(super) fn lock_inventory(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        lock(&self.inventory)
    }

    /// The boards of all controllers but `one`.
    pub(super) fn others(&self, one: &Board) -> Vec<Arc<Board>> {
        let boards = lock(&self.boards);
        boards.iter().filter_map(Weak::upgrade).filter(|board| !std::ptr::eq(&**board, one)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every turn leaves the namespaces whole, or the test has failed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A subsystem in software. Its namespaces last as long as it or one of its controllers.
pub struct Subsystem {
    config: ModelConfig,
    shared: Arc<Shared>,
    controllers: u16,
}

impl Subsystem {
    /// A subsystem with namespace 1 and no controller yet.
    ///
    /// # Errors
    /// [`ModelError`]: settings that no controller can have, or a store that cannot be opened.
    pub fn new(config: ModelConfig) -> Result<Self, ModelError> {
        config.check()?;
        let namespaces = Namespaces::new(&config, config.max_transfer())?;
        let shared = Shared {
            namespaces: Mutex::new(namespaces),
            inventory: Mutex::new(BTreeSet::from([1])),
            boards: Mutex::default(),
        };
        Ok(Self { config, shared: Arc::new(shared), controllers: 0 })
    }

    /// Adds a controller, disabled, that reaches what is mapped in `iommu`. Its CNTLID is one more than that of the one
    /// before, beginning with 1, and so is its name's ending.
    ///
    /// # Errors
    /// [`ModelError`]: no thread or memory for it, or no further CNTLID.
    pub fn add_controller(&mut self, drive: Drive, iommu: &Arc<SoftwareIommu>) -> Result<Model, ModelError> {
        let (field, cntlid) = ("cntlid", self.controllers + 1);
        if cntlid > MOST_CONTROLLERS {
            return Err(ModelError::Field { field, value: cntlid.into(), least: 1, greatest: MOST_CONTROLLERS.into() });
        }
        let config = ModelConfig { name: format!("{}/{cntlid}", self.config.name), ..self.config.clone() };
        let role = Role { cntlid, shared: true };
        let model = Model::build(config, drive, iommu, role, Some(&self.shared), None)?;
        lock(&self.shared.boards).push(Arc::downgrade(&model.board));
        self.controllers = cntlid;
        Ok(model)
    }
}
