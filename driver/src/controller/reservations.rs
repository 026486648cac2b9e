//! Reservations of namespaces, typed (NVM Express Base 2.1, 7.5 to 7.8 and 8.1.22).
//!
//! The commands go through an I/O queue pair that the caller lends, with nothing in flight, and each is waited for: they
//! belong to opening a device and taking it over, not to the way of a request. Who this host is to the controller
//! ([`Controller::set_host_identifier`]) is said first, after every enable anew; its registrations last longer than that.
//! A host that is kept out gets [`StatusCode::RESERVATION_CONFLICT`](crate::spec::status::StatusCode) as the status of
//! its commands.

use zerocopy::FromBytes;

use super::admin::region;
use super::deadline::Deadline;
use super::{Controller, ControllerError, HostIdentifier, Namespace, Wait};
use crate::dma::{Access, HostMemory, Region};
use crate::queue::{Extent, QueuePair};
use crate::spec::ZeroesBased;
use crate::spec::command::{AcquireAction, ChangePersistence, FeatureIdentifier, RegisterAction, ReleaseAction, Sqe};
use crate::spec::identify::{Ctratt, Oncs, Rescap};
use crate::spec::reservation::{
    RegisteredController, RegisteredControllerExtended, ReservationStatus, ReservationType,
};
use crate::spec::status::StatusCode;

/// Bytes of the buffer that a report is read into, and with them the most registered controllers that are reported.
const REPORT: usize = 64 << 10;
/// What a report is called in errors.
const PAGE: &str = "the Reservation Status data structure";

/// What becomes of this host's reservation key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChange {
    /// It is registered, for a host that has none yet. Not 0.
    Register {
        /// The key.
        new: u64,
    },
    /// It is replaced. The new one is not 0.
    Replace {
        /// The key so far; `None`: whatever it is (IEKEY).
        current: Option<u64>,
        /// The key from now on.
        new: u64,
    },
    /// It is given up, and with it what the host held.
    Unregister {
        /// The key so far; `None`: whatever it is (IEKEY).
        current: Option<u64>,
    },
}

/// A controller of a host that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The controller; `None` where none is known to be that host's now.
    pub cntlid: Option<u16>,
    /// The host.
    pub host: HostIdentifier,
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holder: bool,
}

/// Who is registered on a namespace, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationReport {
    /// Counts registrations, clears and preemptions.
    pub generation: u32,
    /// The reservation that is held, if one is.
    pub rtype: Option<ReservationType>,
    /// Whether all this lasts over a loss of power.
    pub persistent: bool,
    /// The registered controllers.
    pub registered: Vec<Registered>,
}

impl Controller {
    /// Registers, replaces or gives up this host's key on `namespace`.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] and [`ControllerError::Argument`] for what the namespace does not have,
    /// [`ControllerError::Command`] with Reservation Conflict where the key is not the one that is registered.
    pub fn register_reservation_key<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
        change: KeyChange,
        persistence: ChangePersistence,
    ) -> Result<(), ControllerError> {
        let rescap = self.rescap(namespace)?;
        let persists = persistence != ChangePersistence::PERSIST || rescap.contains(Rescap::PERSIST_THROUGH_POWER_LOSS);
        self.needs(persists, Some("reservations that persist through power loss"), "RESCAP")?;
        let (action, current, new) = match change {
            KeyChange::Register { new } => (RegisterAction::REGISTER, Some(0), Some(new)),
            KeyChange::Replace { current, new } => (RegisterAction::REPLACE, current, Some(new)),
            KeyChange::Unregister { current } => (RegisterAction::UNREGISTER, current, None),
        };
        let ignores = current.is_some() || rescap.contains(Rescap::IGNORE_EXISTING_KEY);
        self.needs(ignores, Some("a way to ignore an existing key"), "RESCAP")?;
        if new == Some(0) {
            return Err(ControllerError::Argument { argument: "new", value: 0, right: "key 0 is no key" });
        }
        let sqe = Sqe::reservation_register(namespace.nsid, action, persistence).with_iekey(current.is_none());
        self.send_keys(pair, sqe, &[current.unwrap_or(0), new.unwrap_or(0)])
    }

    /// Acquires a reservation of type `rtype` for this host, whose key is `key`.
    ///
    /// # Errors
    /// As [`register_reservation_key`](Self::register_reservation_key); Reservation Conflict where another host holds
    /// one, or this one another type.
    pub fn acquire_reservation<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
        rtype: ReservationType,
        key: u64,
    ) -> Result<(), ControllerError> {
        self.has_type(namespace, rtype)?;
        let sqe = Sqe::reservation_acquire(namespace.nsid, AcquireAction::ACQUIRE, rtype);
        self.send_keys(pair, sqe, &[key, 0])
    }

    /// Takes what is registered with key `preempted` away, and a reservation that is held with it over, as one of type
    /// `rtype`. With `abort` commands of the preempted hosts that are under way are aborted.
    ///
    /// # Errors
    /// As [`acquire_reservation`](Self::acquire_reservation); Reservation Conflict where no host has that key.
    pub fn preempt_reservation<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
        rtype: ReservationType,
        (key, preempted): (u64, u64),
        abort: bool,
    ) -> Result<(), ControllerError> {
        self.has_type(namespace, rtype)?;
        let action = if abort { AcquireAction::PREEMPT_AND_ABORT } else { AcquireAction::PREEMPT };
        self.send_keys(pair, Sqe::reservation_acquire(namespace.nsid, action, rtype), &[key, preempted])
    }

    /// Releases the reservation of type `rtype` that this host holds. Where it holds none, nothing is done.
    ///
    /// # Errors
    /// As [`register_reservation_key`](Self::register_reservation_key).
    pub fn release_reservation<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
        rtype: ReservationType,
        key: u64,
    ) -> Result<(), ControllerError> {
        self.has_type(namespace, rtype)?;
        let sqe = Sqe::reservation_release(namespace.nsid, ReleaseAction::RELEASE, rtype);
        self.send_keys(pair, sqe, &[key])
    }

    /// Removes every registration and every reservation, this host's own included.
    ///
    /// # Errors
    /// As [`register_reservation_key`](Self::register_reservation_key).
    pub fn clear_reservations<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
        key: u64,
    ) -> Result<(), ControllerError> {
        self.rescap(namespace)?;
        let sqe = Sqe::reservation_release(namespace.nsid, ReleaseAction::CLEAR, ReservationType::NONE);
        self.send_keys(pair, sqe, &[key])
    }

    /// Who is registered on `namespace`, and who holds it. Anybody may ask.
    ///
    /// # Errors
    /// [`ControllerError::Page`] where the answer says what cannot be, or names more controllers than are looked at; as
    /// [`register_reservation_key`](Self::register_reservation_key) for the rest.
    pub fn reservation_report<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        namespace: &Namespace,
    ) -> Result<ReservationReport, ControllerError> {
        self.rescap(namespace)?;
        // MDTS may be smaller than what is asked for at first; one page always fits.
        let most = self.limits.max_transfer.min(REPORT as u64) as usize;
        let memory = region(&*self.function, most, Access::DEVICE_WRITES)?;
        memory.view().fill(0);
        // The structure follows the identifiers in use: of 128 bits where the controller has such, unless the host has
        // chosen otherwise, which the controller says.
        let mut extended = self.identify.ctratt.contains(Ctratt::HOST_IDENTIFIER_128_BIT);
        let numd = ZeroesBased::<u32>::from_raw((most / 4 - 1) as u32);
        let report = |extended| Sqe::reservation_report(namespace.nsid, numd, extended);
        let mut outcome = self.run_io(pair, report(extended), &memory, most);
        if let Err(ControllerError::Command { status, .. }) = &outcome
            && status.code() == StatusCode::HOST_IDENTIFIER_INCONSISTENT_FORMAT
        {
            extended = !extended;
            outcome = self.run_io(pair, report(extended), &memory, most);
        }
        outcome?;
        let mut bytes = vec![0; most];
        memory.view().read(0, &mut bytes);
        memory.release();
        decode(&bytes, extended)
    }

    /// Says which notifications of reservations are not wanted of `namespace`: bit n for those of type n.
    ///
    /// # Errors
    /// As [`register_reservation_key`](Self::register_reservation_key).
    pub fn set_reservation_notification_mask(
        &mut self,
        namespace: &Namespace,
        mask: u32,
    ) -> Result<(), ControllerError> {
        self.rescap(namespace)?;
        let fid = FeatureIdentifier::RESERVATION_NOTIFICATION_MASK;
        self.admin.execute(Sqe::set_features(fid, namespace.nsid, mask)).map(|_| ())
    }

    /// What reservations the namespace has.
    fn rescap(&self, namespace: &Namespace) -> Result<Rescap, ControllerError> {
        let rescap = namespace.identify.rescap;
        let has = self.identify.oncs.contains(Oncs::RESERVATIONS) && !rescap.is_empty();
        self.needs(has, Some("reservations"), "ONCS and RESCAP")?;
        Ok(rescap)
    }

    fn has_type(&self, namespace: &Namespace, rtype: ReservationType) -> Result<(), ControllerError> {
        let rescap = self.rescap(namespace)?;
        // The bit of a type has its number.
        if rtype.is_reservation() && rescap.raw() >> rtype.raw() & 1 == 1 {
            return Ok(());
        }
        let (argument, value) = ("rtype", rtype.raw().into());
        Err(ControllerError::Argument { argument, value, right: "it must be a type that RESCAP has" })
    }

    fn send_keys<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        sqe: Sqe,
        keys: &[u64],
    ) -> Result<(), ControllerError> {
        let memory = region(&*self.function, 8 * keys.len(), Access::DEVICE_READS)?;
        memory.view().write_words(0, keys);
        self.run_io(pair, sqe, &memory, 8 * keys.len())?;
        memory.release();
        Ok(())
    }

    /// Runs one command of an I/O queue. On an error without a status the controller may still reach the memory, which
    /// is taken from it as it is dropped; the command's end, whenever it comes, is not told to the owner of the pair.
    fn run_io<T: Copy + Default>(
        &mut self,
        pair: &mut QueuePair<T>,
        sqe: Sqe,
        memory: &Region<HostMemory>,
        len: usize,
    ) -> Result<(), ControllerError> {
        let command = sqe.nvm_opcode().name().unwrap_or("an I/O command");
        let in_flight = pair.slots() - pair.free_slots();
        if in_flight != 0 {
            let right = "a reservation command needs a pair with nothing in flight";
            return Err(ControllerError::Argument { argument: "commands in flight", value: in_flight as u64, right });
        }
        let cid = pair
            .submit(sqe, &[Extent { iova: memory.iova(), len: len as u64 }], T::default())
            .map_err(|source| ControllerError::Submit { command, source })?;
        pair.ring();
        let deadline = Deadline::after(self.config.admin_timeout);
        let ended = deadline.wait(&*self.function, || {
            let mut ended = None;
            pair.poll(1, |completion| ended = Some(completion.status));
            ended
        });
        match ended {
            Some(status) if status.is_success() => Ok(()),
            Some(status) => Err(ControllerError::Command { command, status }),
            None => {
                pair.disown(cid);
                let csts = self.function.read_u32(crate::spec::registers::offset::CSTS);
                Err(ControllerError::Timeout { wait: Wait::Admin { command }, limit: deadline.limit(), csts })
            }
        }
    }
}

fn decode(bytes: &[u8], extended: bool) -> Result<ReservationReport, ControllerError> {
    let wrong = |field, value, right| ControllerError::Page { page: PAGE, field, value, right };
    let too_short = || wrong("its length", bytes.len() as u64, "it has at least a head of 24 bytes");
    let (head, _) = ReservationStatus::read_from_prefix(bytes).map_err(|_| too_short())?;
    let rtype = match head.rtype {
        ReservationType::NONE => None,
        rtype if rtype.is_reservation() => Some(rtype),
        rtype => return Err(wrong("RTYPE", rtype.raw().into(), "a type is 0 to 6")),
    };
    let (start, length) = if extended {
        (ReservationStatus::EXTENDED_LENGTH, size_of::<RegisteredControllerExtended>())
    } else {
        (size_of::<ReservationStatus>(), size_of::<RegisteredController>())
    };
    let count = usize::from(head.regctl.get());
    let entries = bytes.get(start..start + count * length);
    let entries = entries.ok_or(wrong("REGCTL", count as u64, "more controllers than are looked at"))?;
    let cntlid = |cntlid: u16| (cntlid != u16::MAX).then_some(cntlid);
    let registered = entries.chunks_exact(length).filter_map(|bytes| {
        if extended {
            let entry = RegisteredControllerExtended::read_from_bytes(bytes).ok()?;
            let (host, key) = (HostIdentifier::Extended(entry.hostid), entry.rkey.get());
            Some(Registered { cntlid: cntlid(entry.cntlid.get()), host, key, holder: entry.rcsts & 1 == 1 })
        } else {
            let entry = RegisteredController::read_from_bytes(bytes).ok()?;
            let (host, key) = (HostIdentifier::Short(entry.hostid), entry.rkey.get());
            Some(Registered { cntlid: cntlid(entry.cntlid.get()), host, key, holder: entry.rcsts & 1 == 1 })
        }
    });
    Ok(ReservationReport {
        generation: head.generation.get(),
        rtype,
        persistent: head.ptpls & 1 == 1,
        registered: registered.collect(),
    })
}

#[cfg(test)]
mod tests;
