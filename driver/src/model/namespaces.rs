//! The namespaces of a controller, by identifier: which there are, which LBA formats each has, and which are open to
//! I/O commands (NVM Express Base 2.1, 3.2.1).
//!
//! A command finds its namespace by one comparison with where the last one was found. A namespace that is closed, by a
//! format or a sanitize operation, is not found there, so that being open costs a command nothing; why it was not found
//! is asked afterwards. What a namespace does with a command is its own matter.

use std::io;
use std::sync::Arc;

use super::board::Board;
use super::config::{ModelConfig, ModelError};
use super::io_config::{IoCommandsConfig, MetadataConfig};
use super::iommu::Reach;
use super::namespace::Namespace;
use super::power::{PowerLoss, Survivors};
use super::reservations::Reservations;
use super::store::Mapped;
use super::transfer::{Transfer, permanent};
use crate::spec::command::{Fuse, NSID_ALL, NvmOpcode, Sqe};
use crate::spec::identify::LbaFormat;
use crate::spec::log::CommandEffects;
use crate::spec::status::{Status, StatusCode};

/// The key of a namespace that takes no commands: no identifier has so many bits.
const CLOSED: u64 = u64::MAX;

/// The commands that namespaces execute, and what they do to them.
fn commands(config: &IoCommandsConfig) -> Vec<(NvmOpcode, CommandEffects)> {
    let reads = CommandEffects::NAMESPACE_SCOPE;
    let writes = reads | CommandEffects::LOGICAL_BLOCK_CONTENT_CHANGE;
    let all = [
        (true, NvmOpcode::FLUSH, reads),
        (true, NvmOpcode::WRITE, writes),
        (true, NvmOpcode::READ, reads),
        (config.compare, NvmOpcode::COMPARE, reads),
        (config.write_zeroes, NvmOpcode::WRITE_ZEROES, writes),
        (config.dataset_management, NvmOpcode::DATASET_MANAGEMENT, writes),
        (config.verify, NvmOpcode::VERIFY, reads),
        (config.reservations, NvmOpcode::RESERVATION_REGISTER, reads),
        (config.reservations, NvmOpcode::RESERVATION_REPORT, reads),
        (config.reservations, NvmOpcode::RESERVATION_ACQUIRE, reads),
        (config.reservations, NvmOpcode::RESERVATION_RELEASE, reads),
    ];
    all.into_iter().filter(|(there, ..)| *there).map(|(_, opcode, effects)| (opcode, effects)).collect()
}

/// A namespace and what the controller knows of it.
pub(super) struct Entry {
    /// What a command's NSID is compared with.
    key: u64,
    pub(super) nsid: u32,
    pub(super) namespace: Namespace,
    /// Bytes, whatever the format.
    pub(super) size: u64,
    /// The LBA formats that it can have.
    pub(super) formats: Vec<LbaFormat>,
    /// Which of them it has.
    pub(super) format: usize,
    /// Percent of a format in progress that are left.
    pub(super) format_left: Option<u8>,
    /// The Error Recovery feature.
    pub(super) error_recovery: u32,
}

impl Entry {
    pub(super) fn new(nsid: u32, namespace: Namespace, size: u64) -> Self {
        let first = LbaFormat { lbads: namespace.lbads as u8, ms: namespace.metadata().size, rp: 0 };
        let mut formats = vec![first];
        formats.extend(
            [9, 12].into_iter().filter(|lbads| *lbads != first.lbads).map(|lbads| LbaFormat { lbads, ..first }),
        );
        Self { key: u64::from(nsid), nsid, namespace, size, formats, format: 0, format_left: None, error_recovery: 0 }
    }

    /// Erases all blocks and takes on format `index`, which it has, with `metadata` of that format's size.
    pub(super) fn reformat(&mut self, index: usize, metadata: MetadataConfig) -> io::Result<()> {
        self.namespace.reformat(self.size, self.formats[index].lbads.into(), metadata)?;
        self.format = index;
        Ok(())
    }

    fn set_size(&mut self, size: u64) {
        self.size = size;
        self.namespace.nsze = size >> self.namespace.lbads;
    }
}

/// All namespaces, by increasing identifier.
#[derive(Default)]
pub(super) struct Namespaces {
    entries: Vec<Entry>,
    /// Where the last command found its namespace.
    hint: usize,
    /// NN: the greatest identifier that there can be.
    nn: u32,
    /// Why all of them are closed, if they are.
    closed: Option<StatusCode>,
    /// What they execute.
    commands: Vec<(NvmOpcode, CommandEffects)>,
}

impl Namespaces {
    /// Namespace 1 as `config` has it.
    pub(super) fn new(config: &ModelConfig, max_transfer: u64) -> Result<Self, ModelError> {
        let first = Entry::new(1, Namespace::new(config, max_transfer)?, config.size);
        let commands = commands(&config.io_commands);
        Ok(Self { entries: vec![first], hint: 0, nn: config.nn, closed: None, commands })
    }

    /// No namespaces.
    pub(super) fn none(config: &ModelConfig) -> Self {
        Self { nn: config.nn, commands: commands(&config.io_commands), ..Self::default() }
    }

    /// Executes a command of an I/O queue.
    #[inline]
    pub(super) fn execute(
        &mut self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        let key = u64::from(sqe.nsid);
        match self.entries.get_mut(self.hint) {
            Some(entry) if entry.key == key => entry.namespace.execute(reach, board, transfer, sqid, sqe),
            _ => match self.entries.iter().position(|entry| entry.key == key) {
                Some(at) => {
                    self.hint = at;
                    self.entries[at].namespace.execute(reach, board, transfer, sqid, sqe)
                }
                None => self.execute_closed(board, sqe),
            },
        }
    }

    /// A command of which no open namespace knows.
    #[cold]
    fn execute_closed(&mut self, board: &Board, sqe: &Sqe) -> Result<(), Status> {
        if sqe.fuse() != Fuse::NORMAL {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let opcode = sqe.nvm_opcode();
        if !self.commands.iter().any(|(known, _)| *known == opcode) {
            return Err(permanent(StatusCode::INVALID_COMMAND_OPCODE));
        }
        match opcode {
            NvmOpcode::READ => board.counters.reads.add(1),
            NvmOpcode::WRITE => board.counters.writes.add(1),
            NvmOpcode::FLUSH => board.counters.flushes.add(1),
            NvmOpcode::COMPARE => board.counters.compares.add(1),
            NvmOpcode::VERIFY => board.counters.verifies.add(1),
            NvmOpcode::WRITE_ZEROES => board.counters.write_zeroes.add(1),
            NvmOpcode::DATASET_MANAGEMENT => board.counters.dataset_managements.add(1),
            _ => {}
        }
        let flush = opcode == NvmOpcode::FLUSH;
        if !(flush && sqe.nsid == NSID_ALL) {
            self.find(sqe.nsid)?;
        }
        let named = |entry: &Entry| sqe.nsid == entry.nsid || sqe.nsid == NSID_ALL;
        if self.entries.iter().any(|entry| named(entry) && entry.format_left.is_some()) {
            return Err(StatusCode::FORMAT_IN_PROGRESS.status());
        }
        // A Flush is the one command that a sanitize operation does not stop (Base 2.1, 8.1.24.3).
        match self.closed {
            Some(code) if !flush => Err(code.status()),
            _ => {
                let mut named = self.entries.iter_mut().filter(|entry| named(entry));
                named.try_for_each(|entry| entry.namespace.flush(board))
            }
        }
    }

    /// The namespace `nsid`, open or not.
    pub(super) fn get(&self, nsid: u32) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.nsid == nsid)
    }

    pub(super) fn get_mut(&mut self, nsid: u32) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.nsid == nsid)
    }

    /// The active namespace `nsid`. An identifier that could be one but is not is an invalid field, any other an
    /// invalid namespace (Base 2.1, 3.2.1.2 to 3.2.1.4).
    pub(super) fn find(&self, nsid: u32) -> Result<&Entry, Status> {
        self.get(nsid).ok_or_else(|| match nsid {
            nsid if (1..=self.nn).contains(&nsid) => permanent(StatusCode::INVALID_FIELD_IN_COMMAND),
            _ => permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        })
    }

    /// Whether `nsid` is an identifier that a namespace could have.
    pub(super) fn is_valid(&self, nsid: u32) -> bool {
        (1..=self.nn).contains(&nsid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// From now on a mover makes the copies of those that there are. Returns what it has to reach.
    pub(super) fn set_moved(&mut self) -> Vec<Arc<Mapped>> {
        self.entries.iter_mut().for_each(|entry| entry.namespace.set_moved());
        self.entries.iter().filter_map(|entry| entry.namespace.store.share()).collect()
    }

    /// Whether there are namespaces and none takes writes.
    pub(super) fn read_only(&self) -> bool {
        !self.entries.is_empty() && self.entries.iter().all(|entry| !entry.namespace.store.writable())
    }

    /// Adds a namespace under an identifier that is free.
    pub(super) fn insert(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|other| other.nsid < entry.nsid);
        self.entries.insert(at, entry);
        self.sort_out();
    }

    /// Takes a namespace away. Whether it was there.
    pub(super) fn remove(&mut self, nsid: u32) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.nsid != nsid);
        self.entries.len() < before
    }

    /// Gives a namespace another size in bytes. Blocks that stay keep what is in them; new ones read as zeroes.
    pub(super) fn resize(&mut self, nsid: u32, size: u64) -> io::Result<()> {
        if let Some(entry) = self.get_mut(nsid) {
            entry.namespace.store.resize(size)?;
            entry.set_size(size);
        }
        Ok(())
    }

    /// Closes all namespaces for `code`, or opens them.
    pub(super) fn close(&mut self, code: Option<StatusCode>) {
        self.closed = code;
        self.sort_out();
    }

    /// A format of `nsid` has that much left, in percent, or has ended.
    pub(super) fn set_format_left(&mut self, nsid: u32, left: Option<u8>) {
        if let Some(entry) = self.get_mut(nsid) {
            entry.format_left = left;
        }
        self.sort_out();
    }

    /// Makes everything that was written durable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.entries.iter_mut().try_for_each(|entry| entry.namespace.store.flush())
    }

    /// The power goes, for all of them.
    pub(super) fn lose_power(&mut self, survivors: Survivors) -> io::Result<PowerLoss> {
        let mut all = PowerLoss::default();
        for entry in &mut self.entries {
            entry.namespace.change_reservations(Reservations::lose_power);
            let loss = entry.namespace.store.lose_power(survivors)?;
            all.lost += loss.lost;
            all.survived += loss.survived;
        }
        Ok(all)
    }

    /// The commands that they execute, and what these do to them.
    pub(super) fn commands(&self) -> &[(NvmOpcode, CommandEffects)] {
        &self.commands
    }

    fn sort_out(&mut self) {
        for entry in &mut self.entries {
            let open = self.closed.is_none() && entry.format_left.is_none();
            entry.key = if open { entry.nsid.into() } else { CLOSED };
        }
    }
}
