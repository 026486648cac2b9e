//! The reservation commands, and what a reservation keeps from other commands (NVM Express Base 2.1, 7.5 to 7.8 and
//! 8.1.22; NVM Command Set 1.1, 3.3).

use zerocopy::IntoBytes;

use super::super::blocks::Io;
use super::super::namespace::Namespace;
use super::super::orders::Order;
use super::super::transfer::{Lengths, permanent};
use super::{HostKey, Notices, Reservations, Wish};
use crate::dma::Access;
use crate::spec::command::{AcquireAction, NvmOpcode};
use crate::spec::log::ReservationNotificationType;
use crate::spec::reservation::{
    RegisteredController, RegisteredControllerExtended, ReservationStatus, ReservationType,
};
use crate::spec::status::{Status, StatusCode};

/// The CNTLID of a registered host that no controller is known to belong to.
const NO_CONTROLLER: u16 = 0xFFFF;

impl Namespace {
    /// Whether the reservation that is held lets the user execute `opcode`.
    #[cold]
    pub(in crate::model) fn check_reservation(&self, opcode: NvmOpcode) -> Result<(), Status> {
        let wish = match opcode {
            NvmOpcode::READ | NvmOpcode::COMPARE | NvmOpcode::VERIFY => Wish::Read,
            NvmOpcode::WRITE | NvmOpcode::FLUSH | NvmOpcode::WRITE_ZEROES | NvmOpcode::DATASET_MANAGEMENT => {
                Wish::Write
            }
            // Reservation commands have rules of their own.
            _ => return Ok(()),
        };
        if self.reservations.forbids(wish) { Err(StatusCode::RESERVATION_CONFLICT.status()) } else { Ok(()) }
    }

    /// Executes a reservation command.
    #[cold]
    pub(in crate::model) fn reserve(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        let (board, sqe) = (io.board, io.sqe);
        if sqe.nvm_opcode() == NvmOpcode::RESERVATION_REPORT {
            return self.report(io);
        }
        let opcode = sqe.nvm_opcode();
        if sqe.iekey() && opcode != NvmOpcode::RESERVATION_REGISTER {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let mut keys = [0; 16];
        let keys = if opcode == NvmOpcode::RESERVATION_RELEASE { &mut keys[..8] } else { &mut keys[..] };
        let lengths = Lengths { data: keys.len() as u64, metadata: 0 };
        io.transfer.buffers(io.reach, board, io.sqid, sqe, lengths, Access::DEVICE_READS)?.data.gather(keys);
        let key = |at: usize| keys[8 * at..].iter().take(8).rev().fold(0, |key, byte| key << 8 | u64::from(*byte));
        let outcome = self.change_reservations(|reservations| match opcode {
            NvmOpcode::RESERVATION_REGISTER => {
                reservations.register(sqe.rrega(), (key(0), key(1)), sqe.iekey(), sqe.cptpl())
            }
            NvmOpcode::RESERVATION_ACQUIRE => reservations.acquire(sqe.racqa(), sqe.rtype(), (key(0), key(1))),
            _ => reservations.release(sqe.rrela(), sqe.rtype(), key(0)),
        });
        let Notices(notices) = outcome.map_err(StatusCode::status)?;
        let aborts = opcode == NvmOpcode::RESERVATION_ACQUIRE && sqe.racqa() == AcquireAction::PREEMPT_AND_ABORT;
        for (kind, hosts) in notices {
            for other in board.others() {
                if aborts && kind == ReservationNotificationType::REGISTRATION_PREEMPTED {
                    other.order(Order::AbortPreempted { nsid: sqe.nsid, hosts: hosts.clone() });
                }
                other.order(Order::NotifyReservation { nsid: sqe.nsid, kind, hosts: hosts.clone() });
            }
        }
        Ok(())
    }

    fn report(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        let sqe = io.sqe;
        if self.reservations.extended.is_some_and(|extended| extended != sqe.eds()) {
            return Err(permanent(StatusCode::HOST_IDENTIFIER_INCONSISTENT_FORMAT));
        }
        let len = sqe.reservation_numd().count() * 4;
        if len > self.max_transfer {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let mut bytes = self.reservations.status(sqe.eds());
        bytes.resize(len as usize, 0);
        let lengths = Lengths { data: len, metadata: 0 };
        let buffers = io.transfer.buffers(io.reach, io.board, io.sqid, sqe, lengths, Access::DEVICE_WRITES)?;
        buffers.data.writer().write(&bytes);
        Ok(())
    }
}

impl Reservations {
    /// The Reservation Status data structure.
    fn status(&self, extended: bool) -> Vec<u8> {
        let registered: Vec<(u16, HostKey, u64)> = self
            .registrants
            .iter()
            .flat_map(|registrant| {
                let known = self.controllers.iter().filter(|(_, host)| *host == registrant.host);
                let mut cntlids: Vec<u16> = known.map(|(cntlid, _)| *cntlid).collect();
                if cntlids.is_empty() {
                    cntlids.push(NO_CONTROLLER);
                }
                cntlids.into_iter().map(|cntlid| (cntlid, registrant.host, registrant.key))
            })
            .collect();
        let head = ReservationStatus {
            generation: self.generation.into(),
            rtype: self.held.map_or(ReservationType::NONE, |held| held.rtype),
            regctl: (registered.len() as u16).into(),
            ptpls: self.ptpl.into(),
            ..ReservationStatus::default()
        };
        let mut bytes = head.as_bytes().to_vec();
        if extended {
            bytes.resize(ReservationStatus::EXTENDED_LENGTH, 0);
        }
        for (cntlid, host, key) in registered {
            let (cntlid, rcsts) = (cntlid.into(), self.holds(host).into());
            if extended {
                let entry = RegisteredControllerExtended {
                    cntlid,
                    rcsts,
                    reserved_3: [0; 5],
                    rkey: key.into(),
                    hostid: host.id,
                    reserved_32: [0; 32],
                };
                bytes.extend_from_slice(entry.as_bytes());
            } else {
                let mut hostid = [0; 8];
                hostid.copy_from_slice(&host.id[..8]);
                let entry = RegisteredController { cntlid, rcsts, hostid, rkey: key.into(), ..Default::default() };
                bytes.extend_from_slice(entry.as_bytes());
            }
        }
        bytes
    }
}
