//! Each fault by raw rings, beside the same without it.

mod commands;
mod data;
mod late;
mod life;

use super::super::faults::{Action, At, CommandQueue, Kind, Life, Rule, When};
use super::host::{Host, Pair, count};
use crate::spec::command::{NvmOpcode, Sqe};
use crate::spec::completion::Cqe;

impl Host {
    fn befall(&self, queue: CommandQueue, opcode: Option<u8>, when: When, action: Action) {
        self.model.faults().add(Rule { queue, opcode, when, action });
    }

    /// The next I/O command, whatever it is.
    fn befall_next(&self, action: Action) {
        self.befall(CommandQueue::Io, None, When::Nth(1), action);
    }

    fn happened(&self, kind: Kind) -> u64 {
        self.model.faults().counters().get(kind)
    }

    fn arm(&self, at: At, life: Life) {
        self.model.faults().arm(at, life);
    }

    /// Submits Flush commands with these CIDs, runs some turns, and takes what has completed.
    fn flushes(&self, pair: &mut Pair, cids: &[u16]) -> Vec<Cqe> {
        for cid in cids {
            pair.push(Sqe::flush(1).with_cid(*cid));
        }
        pair.ring();
        self.turns(8);
        all(pair)
    }
}

fn all(pair: &mut Pair) -> Vec<Cqe> {
    std::iter::from_fn(|| pair.take()).collect()
}

fn cids(cqes: &[Cqe]) -> Vec<u16> {
    cqes.iter().map(|cqe| cqe.cid).collect()
}

const READ: Option<u8> = Some(NvmOpcode::READ.raw());

fn read(slba: u64, blocks: u32, address: u64) -> Sqe {
    Sqe::read(1, slba, count(blocks)).with_prp1(address)
}

fn write(slba: u64, blocks: u32, address: u64) -> Sqe {
    Sqe::write(1, slba, count(blocks)).with_prp1(address)
}
