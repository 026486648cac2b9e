//! One device of an open engine, to be asked how it is.

use tentpeg_driver::controller::{ControllerError, RecoveryCounters};
use tentpeg_driver::model::{Faults, Model, ModelCounters, Violation};
use tentpeg_driver::spec::log::SmartLog;

use super::Opened;
use crate::counters::EngineCounters;
use crate::device::{DeviceInfo, Held, lock};
use crate::ownership::TakenOver;

/// A device of an open engine.
#[derive(Clone, Copy)]
pub struct EngineDevice<'a> {
    pub(super) opened: &'a Opened,
}

impl<'a> EngineDevice<'a> {
    /// What the engine knows of it.
    pub fn info(self) -> &'a DeviceInfo {
        &self.opened.info
    }

    /// What its lane has done there, not what opening did; as of its last turn.
    pub fn counters(self) -> EngineCounters {
        self.opened.counters.read().since(self.opened.before.0)
    }

    /// Who has taken it over from this engine, if anybody has.
    pub fn taken_over(self) -> Option<&'a TakenOver> {
        self.opened.taken_over.get()
    }

    /// What a model has seen of the engine; not what it saw while it was opened.
    pub fn model_counters(self) -> Option<ModelCounters> {
        self.model(Model::counters).map(|counters| counters.since(self.opened.before.1))
    }

    /// What the host last said when it failed the store of a model.
    pub fn store_error(self) -> Option<String> {
        self.model(Model::store_error).flatten()
    }

    /// What a driver must never do and this one did, as a model recorded it.
    pub fn violations(self) -> Vec<Violation> {
        self.model(Model::violations).unwrap_or_default()
    }

    /// What a model can be made to do wrong.
    pub fn faults(self) -> Option<Faults> {
        self.model(Model::faults)
    }

    /// How often each step of recovery was taken.
    pub fn recovery_counters(self) -> Option<RecoveryCounters> {
        self.device(|device| device.controller.recovery_counters())
    }

    /// The controller's SMART / Health Information.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer.
    pub fn smart_log(self) -> Result<SmartLog, ControllerError> {
        match &mut *lock(&self.opened.device) {
            Some(device) => device.controller.smart_log(),
            None => unreachable!("the device is taken only by closing, which owns the engine"),
        }
    }

    fn device<T>(self, ask: impl FnOnce(&Held) -> T) -> Option<T> {
        lock(&self.opened.device).as_ref().map(ask)
    }

    fn model<T>(self, ask: impl FnOnce(&Model) -> T) -> Option<T> {
        self.device(|device| device.model.as_ref().map(ask)).flatten()
    }
}
