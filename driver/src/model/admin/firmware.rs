//! Firmware Image Download and Firmware Commit (NVM Express Base 2.1, 5.1.9, 5.1.8 and 3.11).
//!
//! An image of the model is what [`firmware_image`] makes: a mark, a revision, and anything after it.

use super::super::transfer::permanent;
use super::Answer;
use crate::spec::command::{CommitAction, Sqe};
use crate::spec::log::FirmwareSlotLog;
use crate::spec::status::{Status, StatusCode};

/// The firmware in slot 1, which cannot be replaced.
const FIRST_REVISION: [u8; 8] = *b"1.0     ";
/// Slots: 1 to 3.
const SLOTS: usize = 3;
/// FRMW: three slots, of which the first is read-only; activation without a reset; overlaps are detected.
pub(super) const FRMW: u8 = 1 << 5 | 1 << 4 | (SLOTS as u8) << 1 | 1;
/// FWUG: images come in pieces of 4 KiB.
pub(super) const FWUG: u8 = 1;
const GRANULARITY: u64 = 4096;
/// The longest image.
const MAX_IMAGE: u64 = 16 << 20;
/// How an image begins; its revision follows.
const MARK: &[u8; 8] = b"TENTPEGF";

/// A firmware image for a model: of `revision`, of which eight bytes count, and `len` bytes long, at least 16.
pub fn firmware_image(revision: &str, len: usize) -> Vec<u8> {
    let mut image = MARK.to_vec();
    image.extend(revision.bytes().chain(std::iter::repeat(b' ')).take(8));
    let padding = (0..).map(|at: usize| (at % 251) as u8);
    image.extend(padding.take(len.saturating_sub(image.len())));
    image
}

/// Slots, and the image that is being downloaded.
pub(super) struct Firmware {
    /// Revisions; `None` in an empty slot.
    slots: [Option<[u8; 8]>; SLOTS],
    /// The slot that runs and the one that will after a reset, from 0.
    active: usize,
    next: Option<usize>,
    image: Vec<u8>,
    /// Parts of the image that are there, by increasing offset.
    parts: Vec<(u64, u64)>,
    activated: bool,
}

impl Default for Firmware {
    fn default() -> Self {
        Self {
            slots: [Some(FIRST_REVISION), None, None],
            active: 0,
            next: None,
            image: Vec::new(),
            parts: Vec::new(),
            activated: false,
        }
    }
}

impl Firmware {
    /// The revision that runs.
    pub(super) fn revision(&self) -> [u8; 8] {
        self.slots[self.active].unwrap_or(FIRST_REVISION)
    }

    pub(super) fn waits_for_reset(&self) -> bool {
        self.next.is_some()
    }

    /// Whether an image has been activated without a reset since this was last asked.
    pub(super) fn take_activated(&mut self) -> bool {
        std::mem::take(&mut self.activated)
    }

    /// A reset of the controller: what was to run afterwards runs, and what was downloaded and not committed is gone.
    pub(super) fn reset(&mut self) {
        if let Some(next) = self.next.take() {
            self.active = next;
        }
        self.discard();
    }

    pub(super) fn log(&self) -> FirmwareSlotLog {
        let next = self.next.map_or(0, |next| next as u8 + 1);
        let mut log = FirmwareSlotLog { afi: next << 4 | (self.active as u8 + 1), ..FirmwareSlotLog::default() };
        for (field, revision) in log.frs.iter_mut().zip(self.slots) {
            *field = revision.unwrap_or_default();
        }
        log
    }

    pub(super) fn download(&mut self, sqe: &Sqe, bytes: &[u8]) -> Result<Answer, Status> {
        let (start, len) = (u64::from(sqe.firmware_ofst()) * 4, bytes.len() as u64);
        let end = start + len;
        if !start.is_multiple_of(GRANULARITY) || !len.is_multiple_of(GRANULARITY) || end > MAX_IMAGE {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if self.parts.iter().any(|(from, to)| start < *to && *from < end) {
            return Err(permanent(StatusCode::OVERLAPPING_RANGE));
        }
        let at = self.parts.partition_point(|(from, _)| *from < start);
        self.parts.insert(at, (start, end));
        if self.image.len() < end as usize {
            self.image.resize(end as usize, 0);
        }
        self.image[start as usize..end as usize].copy_from_slice(bytes);
        Ok(Answer::Done(0))
    }

    pub(super) fn commit(&mut self, sqe: &Sqe) -> Result<Answer, Status> {
        let slot = match usize::from(sqe.fs()) {
            // The controller's choice: the first that can be written and does not run.
            0 => (1..SLOTS).find(|slot| *slot != self.active).unwrap_or(1),
            fs if fs <= SLOTS => fs - 1,
            _ => return Err(permanent(StatusCode::INVALID_FIRMWARE_SLOT)),
        };
        let downloaded = !self.parts.is_empty();
        match sqe.ca() {
            CommitAction::REPLACE => self.replace(slot)?,
            CommitAction::REPLACE_AND_ACTIVATE_AT_RESET => {
                self.replace(slot)?;
                self.next = Some(slot);
            }
            CommitAction::ACTIVATE_AT_RESET => {
                self.filled(slot)?;
                self.next = Some(slot);
            }
            CommitAction::ACTIVATE_IMMEDIATELY => {
                if downloaded {
                    self.replace(slot)?;
                }
                self.filled(slot)?;
                (self.active, self.next) = (slot, None);
                self.activated = true;
            }
            // There are no boot partitions.
            _ => return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
        Ok(Answer::Done(0))
    }

    /// Puts the downloaded image into a slot. It is used up, whether it is a good one or not.
    fn replace(&mut self, slot: usize) -> Result<(), Status> {
        if slot == 0 {
            return Err(permanent(StatusCode::INVALID_FIRMWARE_SLOT));
        }
        let revision = self.downloaded();
        self.discard();
        self.slots[slot] = Some(revision.ok_or(permanent(StatusCode::INVALID_FIRMWARE_IMAGE))?);
        Ok(())
    }

    /// The revision of the downloaded image, if it is whole and one of ours.
    fn downloaded(&self) -> Option<[u8; 8]> {
        let whole = self.parts.iter().try_fold(0, |end, (from, to)| (*from == end).then_some(*to));
        whole.filter(|end| *end > 0)?;
        let revision = self.image.strip_prefix(MARK)?.first_chunk::<8>()?;
        revision.iter().all(|byte| matches!(byte, 0x20..=0x7E)).then_some(*revision)
    }

    fn filled(&self, slot: usize) -> Result<(), Status> {
        self.slots[slot].map(|_| ()).ok_or(permanent(StatusCode::INVALID_FIRMWARE_IMAGE))
    }

    fn discard(&mut self) {
        self.image = Vec::new();
        self.parts.clear();
    }
}
