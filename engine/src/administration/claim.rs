//! Making a device this node's: against whoever else has it by its label, or by a reservation.
//!
//! Who holds the reservation is asked before anything is read, for a holder may not let that be done; a take-over preempts
//! it then, with an epoch above all that are registered. The label decides the epoch; once it is known the reservation has
//! it as its key.

use super::{Administration, AdministrationError, LabelError, Node, OWNER_NAME_BYTES, Oncs, Owner, Renew};
use crate::device::Hold;
use crate::ownership::Ownership;
use crate::ownership::reservation::{Claim, Fencing, Other, Reservation, ReservationError};

impl Administration {
    /// Who this node is.
    pub(super) fn node(&self) -> Result<Node, AdministrationError> {
        Ok(Node::of_this_host(self.configured)?)
    }

    /// Whether the controller has reservations at all.
    pub(crate) fn knows_reservations(&self) -> bool {
        self.info().controller.oncs.contains(Oncs::RESERVATIONS)
    }

    /// Refuses a device that another host holds, or takes it over, if it is to be written.
    pub(super) fn meet_holder(&mut self) -> Result<(), AdministrationError> {
        if !self.knows_reservations() {
            return Ok(());
        }
        let (nsid, writable) = (self.info().nsid, self.info().writable);
        let node = match self.node() {
            // Who only reads need not say who it is.
            Err(_) if !writable => return Ok(()),
            node => node?,
        };
        let held = self.reserve(|reservation| reservation.holder(node.uuid()))?;
        match held {
            Ok(Some(_)) if writable && self.take_over => {
                let epoch = self.reserve(|reservation| reservation.next_epoch(node.uuid()))?;
                let claim = Claim { node: node.uuid(), epoch };
                let fencing = self.reserve(|reservation| reservation.take_over(claim))?;
                self.note(claim, fencing);
                Ok(())
            }
            Ok(Some(by)) if writable => Err(self.held(nsid, by)),
            _ => Ok(()),
        }
    }

    /// `error`, or that another host holds the device, if one does.
    pub(super) fn holder_instead_of(&mut self, error: AdministrationError) -> AdministrationError {
        let nsid = self.info().nsid;
        let Ok(node) = self.node() else { return error };
        match self.reserve(|reservation| reservation.holder(node.uuid())) {
            Ok(Ok(Some(by))) => self.held(nsid, by),
            _ => error,
        }
    }

    /// Refuses a label that is another node's, unless it is to be taken over.
    pub(super) fn require_owner(&self, owner: &Owner, node: &Node) -> Result<(), AdministrationError> {
        if self.take_over || owner.node.is_nil() || owner.node == node.uuid() {
            return Ok(());
        }
        Err(AdministrationError::Owned { device: self.name(), owner: owner.clone(), this: node.uuid() })
    }

    /// Makes the device this node's, as far as controllers know of owners. What its label is to say, which `former` says
    /// so far. Where it has none, and no reservations either, there is nothing to own.
    pub(super) fn claim(&mut self, former: &Owner, renew: Renew) -> Result<Owner, AdministrationError> {
        let node = self.node()?;
        self.require_owner(former, &node)?;
        // What was preempted has an epoch that nobody has had.
        let preempted = self.info().ownership.map_or(0, |ownership| ownership.epoch);
        let restart = former.node == node.uuid() && former.epoch != 0 && renew == Renew::IfTaken;
        let epoch = match restart && preempted <= former.epoch {
            true => former.epoch,
            false => self.next_epoch(former.epoch)?.max(preempted),
        };
        let claim = Claim { node: node.uuid(), epoch };
        let from = match self.info().ownership.map(|ownership| ownership.fencing) {
            Some(Fencing::Fenced { from, .. }) => from,
            _ => None,
        };
        let fencing = match self.reserve(|reservation| reservation.claim(claim))? {
            Fencing::Fenced { persistent, kept, .. } => Fencing::Fenced { persistent, kept, from },
            not_fenced => not_fenced,
        };
        self.note(claim, fencing);
        let name = node.name();
        let most = name.floor_char_boundary(OWNER_NAME_BYTES);
        Ok(match restart && epoch == former.epoch {
            true => former.clone(),
            false => Owner { node: node.uuid(), name: name[..most].trim_end().replace('/', "_"), epoch },
        })
    }

    /// Makes a device without a label this node's by a reservation.
    pub(crate) fn claim_unlabelled(&mut self) -> Result<(), AdministrationError> {
        self.claim(&Owner::default(), Renew::IfTaken).map(drop)
    }

    fn next_epoch(&self, former: u64) -> Result<u64, AdministrationError> {
        former.checked_add(1).ok_or_else(|| {
            let source = LabelError::Exhausted { what: "the owner's epoch" };
            AdministrationError::Label { device: self.name(), source }
        })
    }

    fn note(&mut self, claim: Claim, fencing: Fencing) {
        let labelled = self.has_label();
        let hold = matches!(fencing, Fencing::Fenced { .. }).then_some(Hold { claim, labelled });
        self.device_mut().set_ownership(Ownership { node: claim.node, epoch: claim.epoch, fencing }, hold);
    }

    fn held(&self, nsid: u32, by: Other) -> AdministrationError {
        AdministrationError::Reservation { device: self.name(), source: Box::new(ReservationError::Held { nsid, by }) }
    }

    fn reserve<T>(
        &mut self,
        ask: impl FnOnce(&mut Reservation<'_, crate::lane::CommandTasks>) -> Result<T, ReservationError>,
    ) -> Result<T, AdministrationError> {
        let asked = self.device_mut().reserve(ask);
        asked.map_err(|source| AdministrationError::Reservation { device: self.name(), source: Box::new(source) })
    }
}
