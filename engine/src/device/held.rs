//! What stands behind an open device, and what of it outlives the way of a request: its reservation and its lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tentpeg_driver::controller::{Controller, ControllerError, Namespace};
use tentpeg_driver::model::Model;
use tentpeg_driver::queue::QueuePair;
use uuid::Uuid;

use super::file_store;
use crate::blocks::{Blocks, NamespaceBlocks};
use crate::clock::Clock;
use crate::label::{Label, Owner};
use crate::ownership::NewOwner;
use crate::ownership::lock::Lock;
use crate::ownership::reservation::{Claim, Fencing, Reservation, ReservationError};

/// What stands behind a device, but for the queue pair, which is its port's: the controller, the namespace that is
/// served, and what there is to be kept alive.
pub(crate) struct Held {
    // In this order: the controller is told to stop before the model that it is goes away.
    pub(crate) controller: Controller,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Clock,
    pub(crate) model: Option<Model>,
    /// The file that was made for it, until all of the engine has been opened.
    pub(super) created: Option<file_store::Created>,
    /// The reservation, while this host has it.
    pub(super) hold: Option<Hold>,
    // Last: whoever waits for it finds that the device has been left.
    pub(super) lock: Option<Lock>,
}

/// A reservation that this host has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    /// Whether the owner stands in a label, too.
    pub(crate) labelled: bool,
}

/// What an engine and a port share of a device; taken out when the engine closes.
pub(crate) type SharedDevice = Arc<Mutex<Option<Held>>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is whole at every step, so a panic elsewhere leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// The file that was made for it stays: opening has come to its end.
    pub(crate) fn keep_file(&mut self) {
        if let Some(created) = self.created.take() {
            created.keep();
        }
    }

    /// Shuts the controller down.
    ///
    /// # Errors
    /// [`ControllerError`] when it does not follow in time; its reach has ended all the same.
    pub(crate) fn shutdown(self) -> Result<(), ControllerError> {
        self.controller.shutdown()
    }

    /// Gives the reservation back, where there is one, by an idle pair.
    ///
    /// # Errors
    /// [`ControllerError`]; another host cannot have the device then but by a take-over.
    pub(crate) fn release<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> Result<(), ControllerError> {
        let Some(Hold { claim, .. }) = self.hold.take() else { return Ok(()) };
        match self.reservation(pair).release(claim) {
            Err(ReservationError::Controller(error)) => Err(error),
            // Whoever is not registered any more has nothing to give back.
            _ => Ok(()),
        }
    }

    /// Reserves the namespace again after a reset, before any I/O, by an idle pair. Who has it now, where that is not
    /// this host any more.
    ///
    /// # Errors
    /// Why that was not found out.
    pub(crate) fn reclaim<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
    ) -> Result<Option<NewOwner>, ReservationError> {
        let Some(Hold { claim, labelled }) = self.hold else { return Ok(None) };
        let by = match self.reservation(pair).reclaim(claim) {
            Ok(Fencing::Fenced { kept: true, .. }) => return Ok(None),
            // Somebody may have had it meanwhile: the label knows.
            Ok(Fencing::Fenced { .. }) if labelled => match self.owner(pair) {
                Some(owner) if (owner.node, owner.epoch) == (claim.node, claim.epoch) => return Ok(None),
                owner => {
                    let _ = self.release(pair);
                    owner.map_or(NewOwner::Unknown, NewOwner::Node)
                }
            },
            Ok(Fencing::Fenced { .. }) => return Ok(None),
            // It had them when it was opened.
            Ok(Fencing::NotFenced(_)) => NewOwner::Unknown,
            Err(ReservationError::TakenOver { by, .. } | ReservationError::Held { by, .. }) => NewOwner::Host(by),
            Err(error) => return Err(error),
        };
        self.hold = None;
        Ok(Some(by))
    }

    /// Who has the namespace, after a command ended with Reservation Conflict, by an idle pair. This host has it no more.
    pub(crate) fn lose<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> NewOwner {
        let claim = self.hold.take().map_or(Claim { node: Uuid::nil(), epoch: 0 }, |hold| hold.claim);
        match self.reservation(pair).conflict(claim) {
            Ok(ReservationError::TakenOver { by, .. }) => NewOwner::Host(by),
            _ => NewOwner::Unknown,
        }
    }

    fn reservation<'a, T: Copy + Default>(&'a mut self, pair: &'a mut QueuePair<T>) -> Reservation<'a, T> {
        Reservation { controller: &mut self.controller, pair, namespace: &self.namespace }
    }

    /// The owner by the label; `None` where none can be read.
    fn owner<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> Option<Owner> {
        let Self { controller, namespace, clock, .. } = self;
        let mut blocks = NamespaceBlocks::with_clock(controller, pair, namespace, false, clock.clone()).ok()?;
        let blocks: &mut dyn Blocks = &mut blocks;
        Label::read(blocks).ok().map(|label| label.owner().clone())
    }
}
