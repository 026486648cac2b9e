//! What a model is told from outside while it runs: how it feels, and which namespaces it has. From any thread.
//!
//! What is told here takes effect at the model's next turn, and a controller that is ready then raises the events that
//! follow from it. Errors in what is asked for are told at once.

use std::collections::BTreeSet;

use thiserror::Error;

use super::board::Board;
use super::config::{ModelConfig, ModelError, StoreConfig};
use super::namespace::Namespace;
use super::namespaces::Entry;
use super::reservations::HostKey;
use crate::spec::events::AsynchronousEvent;
use crate::spec::log::{CriticalWarning, ReservationNotificationType};

/// Sizes are multiples of the greatest block, so that every format divides them.
const GRANULARITY: u64 = 4096;

/// What the executor is to do at its next turn.
pub(super) enum Order {
    /// A namespace comes.
    Add(Box<Entry>),
    /// A namespace goes.
    Remove(u32),
    /// A namespace gets another size in bytes.
    Resize(u32, u64),
    /// Another controller has carried out one of these for a namespace that is shared.
    Note(u32),
    /// Reservations of a namespace have changed for these hosts by another's command.
    NotifyReservation { nsid: u32, kind: ReservationNotificationType, hosts: Vec<HostKey> },
    /// Another controller's command has preempted these hosts: what they have under way there is aborted.
    AbortPreempted { nsid: u32, hosts: Vec<HostKey> },
    /// Something went wrong that no command is told about.
    Report(AsynchronousEvent),
}

/// How the controller is, apart from what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    /// Kelvins.
    pub(super) temperature: u16,
    /// Percent.
    pub(super) available_spare: u8,
    /// Percent.
    pub(super) available_spare_threshold: u8,
    /// Percent.
    pub(super) percentage_used: u8,
    /// Warnings besides those that follow from values.
    pub(super) critical_warning: CriticalWarning,
    /// The segment that the next self-test fails in.
    pub(super) failing_segment: Option<u8>,
    /// Whether the next sanitize operation fails.
    pub(super) failing_sanitize: bool,
}

impl Default for Health {
    /// 35 degrees Celsius: the model does not get warm.
    fn default() -> Self {
        Self {
            temperature: 308,
            available_spare: 100,
            available_spare_threshold: 10,
            percentage_used: 0,
            critical_warning: CriticalWarning::empty(),
            failing_segment: None,
            failing_sanitize: false,
        }
    }
}

/// How a model is, to be changed by a test. Values show in the SMART / Health Information log page; a warning that
/// begins is an asynchronous event, where the host has asked for it.
pub struct ModelHealth<'a> {
    pub(super) board: &'a Board,
}

impl ModelHealth<'_> {
    /// The composite temperature in kelvins; at first 308. It warns at the thresholds that the host has set.
    pub fn set_temperature(&self, kelvins: u16) {
        self.board.change_health(|health| health.temperature = kelvins);
    }

    /// Spare capacity in percent; at first 100. It warns below its threshold.
    pub fn set_available_spare(&self, percent: u8) {
        self.board.change_health(|health| health.available_spare = percent);
    }

    /// The threshold of spare capacity in percent; at first 10.
    pub fn set_available_spare_threshold(&self, percent: u8) {
        self.board.change_health(|health| health.available_spare_threshold = percent);
    }

    /// How much of its life is used, in percent; at first 0.
    pub fn set_percentage_used(&self, percent: u8) {
        self.board.change_health(|health| health.percentage_used = percent);
    }

    /// Critical warnings that stand besides those that follow from temperature, spare and read-only stores.
    pub fn set_critical_warning(&self, warning: CriticalWarning) {
        self.board.change_health(|health| health.critical_warning = warning);
    }

    /// The segment that self-tests fail in from now on; `None` for none.
    pub fn fail_self_tests(&self, segment: Option<u8>) {
        self.board.change_health(|health| health.failing_segment = segment);
    }

    /// Whether sanitize operations fail from now on.
    pub fn fail_sanitize(&self, fail: bool) {
        self.board.change_health(|health| health.failing_sanitize = fail);
    }

    /// An error status event, with an entry in the Error Information log: for example
    /// [`AsynchronousEvent::PERSISTENT_INTERNAL_ERROR`]. Any other event is reported as it is, where the host has
    /// asked for it.
    pub fn report(&self, event: AsynchronousEvent) {
        self.board.order(Order::Report(event));
    }
}

/// Why namespaces stay as they are: the caller's fault, but for a store that the host has no room for.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// No namespace can have that identifier.
    #[error("a model has no namespace {nsid}: NSIDs are 1 to {nn} here (the setting nn)")]
    Nsid {
        /// The identifier.
        nsid: u32,
        /// The greatest that there can be.
        nn: u32,
    },
    /// There is one already.
    #[error("namespace {nsid} exists already: remove it first or take another NSID")]
    Exists {
        /// The identifier.
        nsid: u32,
    },
    /// There is none.
    #[error("there is no namespace {nsid}: add it first")]
    Absent {
        /// The identifier.
        nsid: u32,
    },
    /// A size that some format does not divide.
    #[error("a namespace cannot be resized to {size} bytes: its size must be a multiple of 4096, at least 4096")]
    Size {
        /// The size asked for.
        size: u64,
    },
    /// The namespace cannot be made.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A model's namespaces, to be changed by a test. Each change is an Attached Namespace Attribute Changed event, where
/// the host has asked for it, and an entry of the Changed Attached Namespace List.
pub struct ModelNamespaces<'a> {
    pub(super) board: &'a Board,
    pub(super) config: &'a ModelConfig,
    pub(super) max_transfer: u64,
}

impl ModelNamespaces<'_> {
    /// The identifiers of all namespaces, increasing.
    pub fn list(&self) -> Vec<u32> {
        self.board.lock_inventory().iter().copied().collect()
    }

    /// Adds namespace `nsid`, of `size` bytes in blocks of `lba_size`, all zeroes. It lies in memory, or nowhere where
    /// the model's own store is [`StoreConfig::Null`].
    ///
    /// # Errors
    /// [`NamespaceError`]: an identifier out of range or in use, a size or block size that no namespace can have, or no
    /// memory.
    pub fn add(&self, nsid: u32, size: u64, lba_size: u32) -> Result<(), NamespaceError> {
        let store = if self.config.store == StoreConfig::Null { StoreConfig::Null } else { StoreConfig::Memory };
        let config = ModelConfig { size, lba_size, store, ..self.config.clone() };
        config.check()?;
        if !(1..=self.config.nn).contains(&nsid) {
            return Err(NamespaceError::Nsid { nsid, nn: self.config.nn });
        }
        let namespace = Namespace::new(&config, self.max_transfer)?;
        self.change(
            |inventory| if inventory.insert(nsid) { Ok(()) } else { Err(NamespaceError::Exists { nsid }) },
            || Order::Add(Box::new(Entry::new(nsid, namespace, size))),
        )
    }

    /// Removes namespace `nsid`: what it held is gone.
    ///
    /// # Errors
    /// [`NamespaceError::Absent`].
    pub fn remove(&self, nsid: u32) -> Result<(), NamespaceError> {
        self.change(
            |inventory| if inventory.remove(&nsid) { Ok(()) } else { Err(NamespaceError::Absent { nsid }) },
            || Order::Remove(nsid),
        )
    }

    /// Gives namespace `nsid` another size in bytes, a multiple of 4,096. Blocks that stay keep what is in them, new
    /// ones are zeroes. Where the store cannot follow, nothing changes and a Persistent Internal Error is reported.
    ///
    /// # Errors
    /// [`NamespaceError`]: no such namespace, or a size that it cannot have.
    pub fn resize(&self, nsid: u32, size: u64) -> Result<(), NamespaceError> {
        if size == 0 || !size.is_multiple_of(GRANULARITY) {
            return Err(NamespaceError::Size { size });
        }
        self.change(
            |inventory| if inventory.contains(&nsid) { Ok(()) } else { Err(NamespaceError::Absent { nsid }) },
            || Order::Resize(nsid, size),
        )
    }

    /// Changes the inventory and gives the order under one lock, so that orders come in the order of changes.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeSet<u32>) -> Result<(), NamespaceError>,
        order: impl FnOnce() -> Order,
    ) -> Result<(), NamespaceError> {
        let mut inventory = self.board.lock_inventory();
        change(&mut inventory)?;
        self.board.order(order());
        Ok(())
    }
}
