//! The layer of exclusive use that the controllers themselves keep: an Exclusive Access reservation (NVM Express Base 2.1,
//! 8.1.22). While a host holds it, every read and write of another host ends with Reservation Conflict.
//!
//! The Host Identifier is the node's UUID, the same after every restart, so that a restart is no take-over; the key is the
//! label's epoch. To the controllers a host is one, whichever of them it uses and however many engines it runs: those the
//! [lock](super::lock) holds apart. Registrations outlive a reset, and the loss of power where RESCAP has that; the Host
//! Identifier does not, and is told again after every reset, before any I/O: [`Reservation::reclaim`].
//!
//! A namespace without reservations is used all the same, and its second host is [not fenced](NotFenced).
//!
//! The commands go through an idle queue pair that the caller lends. Who owns the label decides the epoch.

use tentpeg_driver::controller::{Controller, ControllerError, HostIdentifier, KeyChange, Namespace, Registered};
use tentpeg_driver::queue::QueuePair;
use tentpeg_driver::spec::command::ChangePersistence;
use tentpeg_driver::spec::identify::{Ctratt, Oncs, Rescap};
use tentpeg_driver::spec::reservation::ReservationType;
use tentpeg_driver::spec::status::StatusCode;
use thiserror::Error;
use uuid::Uuid;

mod error;

pub use error::{Other, ReservationError};

const EXCLUSIVE: ReservationType = ReservationType::EXCLUSIVE_ACCESS;
/// How often a step is tried again when somebody else has changed what it relied on.
const ATTEMPTS: usize = 8;

/// Who claims a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The node: its UUID is the Host Identifier; to a controller with identifiers of 64 bits, its first 8 bytes.
    pub node: Uuid,
    /// The label's epoch, which becomes the key. Not 0.
    pub epoch: u64,
}

/// How a namespace is kept from other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// This host holds it.
    Fenced {
        /// Whether the reservation outlives a loss of power.
        persistent: bool,
        /// Whether this host has held it all the time; else somebody else may have, meanwhile: the label's owner and epoch
        /// are to be read again before anything is written.
        kept: bool,
        /// From whom it was taken.
        from: Option<Other>,
    },
    /// Nobody can hold it.
    NotFenced(NotFenced),
}

/// Why another host can use the namespace, whatever this one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotFenced {
    /// The controller has no reservations.
    #[error("another host is not fenced: the controller has no reservations (ONCS {oncs:04X}h)")]
    Controller {
        /// Optional NVM Command Support.
        oncs: u16,
    },
    /// The namespace has not the type that is needed.
    #[error("another host is not fenced: the namespace has no Exclusive Access reservations (RESCAP {rescap:02X}h)")]
    Namespace {
        /// Reservation Capabilities.
        rescap: u8,
    },
}

/// The reservation of one namespace, through one controller and a queue pair with nothing in flight.
pub struct Reservation<'a, T> {
    /// The controller, enabled.
    pub controller: &'a mut Controller,
    /// A pair of its own, lent for the time of a call.
    pub pair: &'a mut QueuePair<T>,
    /// The namespace.
    pub namespace: &'a Namespace,
}

impl<T: Copy + Default> Reservation<'_, T> {
    /// Reserves the namespace for `claim`, unless another host holds it. For a host that holds it already this is a
    /// restart, perhaps with another epoch.
    ///
    /// # Errors
    /// [`ReservationError::Held`] with who holds it; nothing is left registered then. [`ReservationError`] for the rest.
    pub fn claim(&mut self, claim: Claim) -> Result<Fencing, ReservationError> {
        self.acquire(claim, |nsid, by| ReservationError::Held { nsid, by })
    }

    /// Tells the controller again who this host is, and makes sure that it still holds the namespace. After every reset,
    /// before any I/O.
    ///
    /// # Errors
    /// [`ReservationError::TakenOver`] with who has it now. [`ReservationError`] for the rest.
    pub fn reclaim(&mut self, claim: Claim) -> Result<Fencing, ReservationError> {
        self.acquire(claim, |nsid, by| ReservationError::TakenOver { nsid, by })
    }

    /// Takes the namespace from whoever holds it: what that host has under way is aborted, and its next command ends with
    /// Reservation Conflict. Where nobody holds it this is a [`claim`](Self::claim).
    ///
    /// # Errors
    /// [`ReservationError::EpochInUse`] where another host has this epoch. [`ReservationError`] for the rest.
    pub fn take_over(&mut self, claim: Claim) -> Result<Fencing, ReservationError> {
        let host = match self.introduce(claim.node)? {
            Ok(host) => host,
            Err(not_fenced) => return Ok(Fencing::NotFenced(not_fenced)),
        };
        require_epoch(claim)?;
        let mut from = None;
        for _ in 0..ATTEMPTS {
            let standing = self.standing(host)?;
            let Some(holder) = standing.holder else {
                match self.acquire(claim, |nsid, by| ReservationError::Held { nsid, by }) {
                    // Somebody else was faster, and is in the way now.
                    Err(ReservationError::Held { .. }) => continue,
                    Ok(Fencing::Fenced { persistent, kept, .. }) => {
                        return Ok(Fencing::Fenced { persistent, kept: kept && from.is_none(), from });
                    }
                    outcome => return outcome,
                }
            };
            // Preempting takes every registration with that key, and one's own is meant to stay.
            if let Some(by) = standing.others.iter().find(|other| other.key == claim.epoch) {
                return Err(ReservationError::EpochInUse { nsid: self.nsid(), epoch: claim.epoch, by: *by });
            }
            self.register(claim.epoch, standing.own)?;
            // What all registrants hold is taken by key 0 (Base 2.1, 8.1.22.7).
            let all = standing.rtype.is_some_and(ReservationType::is_held_by_all);
            let keys = (claim.epoch, if all { 0 } else { holder.key });
            match self.controller.preempt_reservation(self.pair, self.namespace, EXCLUSIVE, keys, true) {
                Ok(()) => from = Some(holder),
                // Its key has changed, or it has gone by itself.
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ReservationError::NotKept { nsid: self.nsid(), found: self.standing(host)?.holder })
    }

    /// Tells the controller who this host is, and says which other host holds the namespace, before anything is read of
    /// it: its holder may not even let that be done.
    ///
    /// # Errors
    /// [`ReservationError`].
    pub fn holder(&mut self, node: Uuid) -> Result<Result<Option<Other>, NotFenced>, ReservationError> {
        match self.introduce(node)? {
            Ok(host) => Ok(Ok(self.standing(host)?.holder)),
            Err(not_fenced) => Ok(Err(not_fenced)),
        }
    }

    /// An epoch that is higher than every key that is registered.
    ///
    /// # Errors
    /// [`ReservationError::EpochInUse`] where somebody has the highest there can be; [`ReservationError::Controller`].
    pub fn next_epoch(&mut self, node: Uuid) -> Result<u64, ReservationError> {
        let host = self.host_identifier(node);
        let (nsid, standing) = (self.nsid(), self.standing(host)?);
        let highest = standing.others.iter().max_by_key(|other| other.key);
        match highest {
            Some(by) if by.key == u64::MAX => Err(ReservationError::EpochInUse { nsid, epoch: by.key, by: *by }),
            highest => Ok(highest.map_or(0, |other| other.key).max(standing.own.unwrap_or(0)).saturating_add(1)),
        }
    }

    /// Gives the namespace back, and this host's registration with it. Where it has none, nothing is done.
    ///
    /// # Errors
    /// [`ReservationError`]; what others hold is never touched.
    pub fn release(&mut self, claim: Claim) -> Result<(), ReservationError> {
        if let Ok(host) = self.introduce(claim.node)?
            && let Some(key) = self.standing(host)?.own
        {
            self.unregister(key)?;
        }
        Ok(())
    }

    /// Why a command ended with Reservation Conflict: who has the namespace now.
    ///
    /// # Errors
    /// [`ReservationError::Controller`].
    pub fn conflict(&mut self, claim: Claim) -> Result<ReservationError, ReservationError> {
        let host = self.host_identifier(claim.node);
        let (nsid, standing) = (self.nsid(), self.standing(host)?);
        Ok(match standing.holder {
            Some(by) => ReservationError::TakenOver { nsid, by },
            None => ReservationError::NotKept { nsid, found: None },
        })
    }

    fn nsid(&self) -> u32 {
        self.namespace.nsid
    }

    /// Reserves it where no other host holds it, and makes sure of that by the report.
    fn acquire(&mut self, claim: Claim, held: fn(u32, Other) -> ReservationError) -> Result<Fencing, ReservationError> {
        let nsid = self.nsid();
        let host = match self.introduce(claim.node)? {
            Ok(host) => host,
            Err(not_fenced) => return Ok(Fencing::NotFenced(not_fenced)),
        };
        require_epoch(claim)?;
        let mut standing = self.standing(host)?;
        let kept = standing.held;
        for _ in 0..ATTEMPTS {
            // Whoever is too late registers nothing.
            if let Some(by) = standing.holder {
                return Err(held(nsid, by));
            }
            if let Some(rtype) = standing.rtype.filter(|rtype| standing.held && *rtype != EXCLUSIVE) {
                return Err(ReservationError::OtherType { nsid, rtype });
            }
            if standing.held && standing.own == Some(claim.epoch) {
                return Ok(Fencing::Fenced { persistent: standing.persistent, kept, from: None });
            }
            self.register(claim.epoch, standing.own)?;
            let outcome = self.controller.acquire_reservation(self.pair, self.namespace, EXCLUSIVE, claim.epoch);
            let lost = match outcome {
                Ok(()) => false,
                Err(error) if is_conflict(&error) => true,
                Err(error) => return Err(error.into()),
            };
            standing = self.standing(host)?;
            if lost && standing.holder.is_some() && standing.own == Some(claim.epoch) {
                self.unregister(claim.epoch)?;
            }
        }
        Err(ReservationError::NotKept { nsid, found: standing.holder })
    }

    /// Says who this host is, where there is somebody to say it to.
    fn introduce(&mut self, node: Uuid) -> Result<Result<HostIdentifier, NotFenced>, ReservationError> {
        let (oncs, rescap) = (self.controller.identify().oncs, self.namespace.identify.rescap);
        if !oncs.contains(Oncs::RESERVATIONS) {
            return Ok(Err(NotFenced::Controller { oncs: oncs.raw() }));
        }
        if !rescap.contains(Rescap::EXCLUSIVE_ACCESS) {
            return Ok(Err(NotFenced::Namespace { rescap: rescap.raw() }));
        }
        let wanted = self.host_identifier(node);
        let found = self.controller.host_identifier()?;
        if found != wanted {
            // Once it is set it cannot be changed before a reset (Base 2.1, 5.1.25.1.28).
            if !is_nobody(&found) {
                return Err(ReservationError::OtherHost { found, wanted });
            }
            self.controller.set_host_identifier(wanted)?;
        }
        Ok(Ok(wanted))
    }

    fn host_identifier(&self, node: Uuid) -> HostIdentifier {
        let bytes = node.into_bytes();
        if self.controller.identify().ctratt.contains(Ctratt::HOST_IDENTIFIER_128_BIT) {
            HostIdentifier::Extended(bytes)
        } else {
            let [a, b, c, d, e, f, g, h, ..] = bytes;
            HostIdentifier::Short([a, b, c, d, e, f, g, h])
        }
    }

    /// Registers `epoch` as this host's key, which is `own` so far.
    fn register(&mut self, epoch: u64, own: Option<u64>) -> Result<(), ReservationError> {
        let change = match own {
            Some(key) if key == epoch => return Ok(()),
            Some(key) => KeyChange::Replace { current: Some(key), new: epoch },
            None => KeyChange::Register { new: epoch },
        };
        // A host that was fenced stays so when the power goes.
        let persists = self.namespace.identify.rescap.contains(Rescap::PERSIST_THROUGH_POWER_LOSS);
        let persistence = if persists { ChangePersistence::PERSIST } else { ChangePersistence::NO_CHANGE };
        match self.controller.register_reservation_key(self.pair, self.namespace, change, persistence) {
            // Somebody preempted it, or a second engine of this host changed it: what follows finds out.
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn unregister(&mut self, key: u64) -> Result<(), ReservationError> {
        let change = KeyChange::Unregister { current: Some(key) };
        let persistence = ChangePersistence::NO_CHANGE;
        match self.controller.register_reservation_key(self.pair, self.namespace, change, persistence) {
            // It is not registered any more.
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// How things stand for `host`.
    fn standing(&mut self, host: HostIdentifier) -> Result<Standing, ReservationError> {
        let report = self.controller.reservation_report(self.pair, self.namespace)?;
        let own = |registered: &&Registered| registered.host == host;
        let others: Vec<Other> =
            report.registered.iter().filter(|registered| registered.host != host).map(Other::from).collect();
        Ok(Standing {
            own: report.registered.iter().find(own).map(|registered| registered.key),
            held: report.registered.iter().filter(own).any(|own| own.holder),
            rtype: report.rtype,
            holder: report
                .registered
                .iter()
                .find(|registered| registered.host != host && registered.holder)
                .map(Other::from),
            others,
            persistent: report.persistent,
        })
    }
}

fn require_epoch(claim: Claim) -> Result<(), ReservationError> {
    if claim.epoch == 0 { Err(ReservationError::NoEpoch) } else { Ok(()) }
}

/// What a Reservation Report says to one host.
struct Standing {
    /// Its key.
    own: Option<u64>,
    /// Whether it holds the namespace.
    held: bool,
    /// The reservation that is held, by whomever.
    rtype: Option<ReservationType>,
    /// Another host that holds it.
    holder: Option<Other>,
    /// The other hosts that are registered.
    others: Vec<Other>,
    persistent: bool,
}

fn is_conflict(error: &ControllerError) -> bool {
    matches!(error, ControllerError::Command { status, .. } if status.code() == StatusCode::RESERVATION_CONFLICT)
}

fn is_nobody(host: &HostIdentifier) -> bool {
    match host {
        HostIdentifier::Short(bytes) => *bytes == [0; 8],
        HostIdentifier::Extended(bytes) => *bytes == [0; 16],
    }
}

#[cfg(test)]
mod tests;
