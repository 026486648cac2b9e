//! Reservations on a namespace: who is registered, who holds it, and what follows for everybody else (NVM Express Base
//! 2.1, 8.1.22). Rules without I/O; `commands` executes the commands.
//!
//! A host is known by its Host Identifier, to whichever controller it speaks. One that has none, all zeroes, is a host of
//! its own with each controller, and its registrations end with a reset of that controller (Base 2.1, 5.1.25.1.28).

use crate::spec::command::{AcquireAction, ChangePersistence, RegisterAction, ReleaseAction};
use crate::spec::log::ReservationNotificationType;
use crate::spec::reservation::ReservationType;
use crate::spec::status::StatusCode;

mod commands;

/// A host, as the subsystem tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HostKey {
    /// The Host Identifier; one of 64 bits in the first half.
    pub(super) id: [u8; 16],
    /// The controller, for a host that has no identifier, else 0.
    cntlid: u16,
}

impl HostKey {
    pub(super) fn new(id: [u8; 16], cntlid: u16) -> Self {
        Self { id, cntlid: if id == [0; 16] { cntlid } else { 0 } }
    }

    /// Whether it has no identifier, so that a reset makes another host of it.
    pub(super) fn is_nameless(&self) -> bool {
        self.id == [0; 16]
    }
}

/// A host that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Registrant {
    host: HostKey,
    key: u64,
}

/// A reservation that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    rtype: ReservationType,
    /// Who acquired it. Where all registrants hold it, one of them.
    holder: HostKey,
}

/// What other hosts are told of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notices(pub(super) Vec<(ReservationNotificationType, Vec<HostKey>)>);

impl Notices {
    fn add(&mut self, kind: ReservationNotificationType, hosts: Vec<HostKey>) {
        if !hosts.is_empty() {
            self.0.push((kind, hosts));
        }
    }
}

/// The outcome of a command: what others are told, or why it failed.
type Outcome = Result<Notices, StatusCode>;

const CONFLICT: StatusCode = StatusCode::RESERVATION_CONFLICT;
const INVALID: StatusCode = StatusCode::INVALID_FIELD_IN_COMMAND;

/// What a command asks of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Read,
    Write,
}

/// The reservations of one namespace.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    registrants: Vec<Registrant>,
    held: Option<Held>,
    generation: u32,
    /// Persist Through Power Loss.
    pub(super) ptpl: bool,
    /// Whose commands are executed now.
    pub(super) user: HostKey,
    /// Whether the user's Host Identifier has 128 bits and not 64; `None` while it has none.
    extended: Option<bool>,
    /// Hosts of the controllers that there are, by CNTLID.
    controllers: Vec<(u16, HostKey)>,
}

impl Reservations {
    /// Whether some hosts must not do everything.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// From now on commands come from controller `cntlid`, which is used by `user`.
    pub(super) fn set_user(&mut self, cntlid: u16, user: HostKey, extended: Option<bool>) {
        (self.user, self.extended) = (user, extended);
        match self.controllers.iter_mut().find(|(known, _)| *known == cntlid) {
            Some((_, host)) => *host = user,
            None => self.controllers.push((cntlid, user)),
        }
    }

    /// Whether the user's command must fail.
    pub(super) fn forbids(&self, wish: Wish) -> bool {
        self.held.is_some_and(|held| {
            let excluded = wish == Wish::Write || held.rtype.excludes_reads();
            let admitted =
                held.holder == self.user || held.rtype.admits_registrants() && self.registrant(self.user).is_some();
            excluded && !admitted
        })
    }

    /// A host without an identifier is gone with its controller's reset.
    pub(super) fn forget(&mut self, host: HostKey) {
        if host.is_nameless() && self.registrant(host).is_some() {
            self.remove(|registrant| registrant.host == host);
        }
    }

    /// The power goes.
    pub(super) fn lose_power(&mut self) {
        if !self.ptpl {
            (self.registrants, self.held, self.generation) = (Vec::new(), None, 0);
        }
    }

    fn registrant(&self, host: HostKey) -> Option<&Registrant> {
        self.registrants.iter().find(|registrant| registrant.host == host)
    }

    /// Whether the user is registered with `key`.
    fn check(&self, key: u64) -> Result<(), StatusCode> {
        let registrant = self.registrant(self.user);
        if registrant.is_some_and(|registrant| registrant.key == key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn holds(&self, host: HostKey) -> bool {
        self.held
            .is_some_and(|held| held.holder == host || held.rtype.is_held_by_all() && self.registrant(host).is_some())
    }

    /// All registrants but the user.
    fn others(&self) -> Vec<HostKey> {
        self.registrants.iter().map(|registrant| registrant.host).filter(|host| *host != self.user).collect()
    }

    /// Removes registrants, and what they held. The type that ended by that.
    fn remove(&mut self, gone: impl Fn(&Registrant) -> bool) -> Option<ReservationType> {
        self.registrants.retain(|registrant| !gone(registrant));
        let held = self.held?;
        if self.registrant(held.holder).is_some() {
            return None;
        }
        self.held = match self.registrants.first() {
            Some(heir) if held.rtype.is_held_by_all() => Some(Held { holder: heir.host, ..held }),
            _ => None,
        };
        if self.held.is_none() { Some(held.rtype) } else { None }
    }

    /// Reservation Register (Base 2.1, 7.6).
    fn register(
        &mut self,
        action: RegisterAction,
        (crkey, nrkey): (u64, u64),
        iekey: bool,
        cptpl: ChangePersistence,
    ) -> Outcome {
        let ptpl = match cptpl {
            ChangePersistence::NO_CHANGE => self.ptpl,
            ChangePersistence::CLEAR => false,
            ChangePersistence::PERSIST => true,
            _ => return Err(INVALID),
        };
        let user = self.user;
        let registered = self.registrant(user).map(|registrant| registrant.key);
        let mut notices = Notices::default();
        match action {
            RegisterAction::REGISTER if nrkey == 0 => return Err(INVALID),
            RegisterAction::REGISTER => match registered {
                None => self.registrants.push(Registrant { host: user, key: nrkey }),
                Some(key) if key == nrkey => {}
                Some(_) => return Err(CONFLICT),
            },
            RegisterAction::REPLACE if nrkey == 0 => return Err(INVALID),
            RegisterAction::REPLACE | RegisterAction::UNREGISTER => {
                let key = registered.ok_or(CONFLICT)?;
                if !iekey && key != crkey {
                    return Err(CONFLICT);
                }
                if action == RegisterAction::UNREGISTER {
                    let ended = self.remove(|registrant| registrant.host == user);
                    if ended.is_some_and(ReservationType::admits_registrants) {
                        notices.add(ReservationNotificationType::RESERVATION_RELEASED, self.others());
                    }
                } else if let Some(registrant) = self.registrants.iter_mut().find(|registrant| registrant.host == user)
                {
                    registrant.key = nrkey;
                }
            }
            _ => return Err(INVALID),
        }
        self.ptpl = ptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// Reservation Acquire (Base 2.1, 7.5).
    fn acquire(&mut self, action: AcquireAction, rtype: ReservationType, (crkey, prkey): (u64, u64)) -> Outcome {
        if !rtype.is_reservation() {
            return Err(INVALID);
        }
        self.check(crkey)?;
        match action {
            AcquireAction::ACQUIRE => match self.held {
                None => self.held = Some(Held { rtype, holder: self.user }),
                Some(held) if held.rtype == rtype && self.holds(self.user) => {}
                Some(_) => return Err(CONFLICT),
            },
            // Commands are executed whole: only what a fault holds back can be aborted, by an order to its controller.
            AcquireAction::PREEMPT | AcquireAction::PREEMPT_AND_ABORT => return self.preempt(rtype, prkey),
            _ => return Err(INVALID),
        }
        Ok(Notices::default())
    }

    /// Preempt (Base 2.1, 8.1.22.7).
    fn preempt(&mut self, rtype: ReservationType, prkey: u64) -> Outcome {
        let user = self.user;
        let everyone = self.held.is_some_and(|held| held.rtype.is_held_by_all() && prkey == 0);
        if prkey == 0 && !everyone {
            return Err(INVALID);
        }
        // The preempting host keeps its own registration, whatever its key.
        let named = |registrant: &Registrant| everyone || registrant.key == prkey;
        if !everyone && !self.registrants.iter().any(named) {
            return Err(CONFLICT);
        }
        let takes = match self.held {
            None => false,
            Some(held) if held.rtype.is_held_by_all() => everyone,
            Some(held) => self.registrant(held.holder).is_some_and(named),
        };
        let gone: Vec<_> = self.registrants.iter().filter(|registrant| named(registrant)).collect();
        let gone: Vec<HostKey> =
            gone.into_iter().map(|registrant| registrant.host).filter(|host| *host != user).collect();
        let former = self.held;
        self.remove(|registrant| registrant.host != user && named(registrant));
        let mut notices = Notices::default();
        if takes {
            self.held = Some(Held { rtype, holder: user });
        }
        // Who stays registered learns that a reservation that admitted it is another one now.
        if takes && former.is_some_and(|held| held.rtype.admits_registrants() && held.rtype != rtype) {
            notices.add(ReservationNotificationType::RESERVATION_RELEASED, self.others());
        }
        notices.add(ReservationNotificationType::REGISTRATION_PREEMPTED, gone);
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// Reservation Release (Base 2.1, 7.7).
    fn release(&mut self, action: ReleaseAction, rtype: ReservationType, crkey: u64) -> Outcome {
        self.check(crkey)?;
        let mut notices = Notices::default();
        match action {
            ReleaseAction::RELEASE => {
                // Who holds nothing releases nothing, and is told that it succeeded.
                if let Some(held) = self.held.filter(|_| self.holds(self.user)) {
                    if held.rtype != rtype {
                        return Err(INVALID);
                    }
                    self.held = None;
                    if rtype.admits_registrants() {
                        notices.add(ReservationNotificationType::RESERVATION_RELEASED, self.others());
                    }
                }
            }
            ReleaseAction::CLEAR => {
                notices.add(ReservationNotificationType::RESERVATION_PREEMPTED, self.others());
                (self.registrants, self.held) = (Vec::new(), None);
                self.generation = self.generation.wrapping_add(1);
            }
            _ => return Err(INVALID),
        }
        Ok(notices)
    }
}

#[cfg(test)]
mod tests;
